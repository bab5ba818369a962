package codec

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"time"
)

func appendBool(b []byte, v reflect.Value) []byte {
	if v.Bool() {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendText(b []byte, v reflect.Value) []byte {
	return append(binary.AppendUvarint(b, uint64(v.Len())), v.String()...)
}

// appendBytes encodes nil differently from no bytes, as for slices.
func appendBytes(b []byte, v reflect.Value) []byte {
	if v.IsNil() {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(v.Len())+1), v.Bytes()...)
}

// appendTime encodes seconds and nanoseconds since 1970, since a time may be earlier than its nanoseconds can count.
func appendTime(b []byte, v reflect.Value) []byte {
	t := v.Addr().Interface().(*time.Time)
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond()))
}

// decoder reads a text. After the first error all that it reads is zero.
type decoder struct {
	b      []byte
	memory int // that may still be used
	err    error
}

func (d *decoder) refuse(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	d.b = nil
}

// spend accounts for memory.
func (d *decoder) spend(bytes int) {
	if d.memory -= bytes; d.memory < 0 {
		d.refuse("it stands for more than %d bytes", maxMemory)
	}
}

func (d *decoder) uvarint() uint64 {
	if len(d.b) > 0 && d.b[0] < 0x80 {
		n := d.b[0]
		d.b = d.b[1:]
		return uint64(n)
	}
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.refuse("a number is cut")
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) varint() int64 {
	n := d.uvarint()
	return int64(n>>1) ^ -int64(n&1)
}

// length reads one more than the length of a slice or map with elements of size bytes in memory, or 0 for nil.
func (d *decoder) length(size int) (n int, isNil bool) {
	count := d.uvarint()
	if count == 0 {
		return 0, true
	}
	if count--; count > uint64(len(d.b)) {
		d.refuse("%d elements are in %d bytes", count, len(d.b))
		return 0, true
	}
	d.spend(int(count) * size)
	return int(count), d.err != nil
}

// take reads n bytes, which are valid until the text changes.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.refuse("a text of %d bytes is in %d", n, len(d.b))
		return nil
	}
	taken := d.b[:n:n]
	d.b = d.b[n:]
	return taken
}

func (d *decoder) flag() bool {
	n := d.uvarint()
	if n > 1 {
		d.refuse("%d is neither yes nor no", n)
	}
	return n == 1
}

func (d *decoder) bool(v reflect.Value) { v.SetBool(d.flag()) }

func (d *decoder) int(v reflect.Value) {
	n := d.varint()
	if v.OverflowInt(n) {
		d.refuse("%d is no %v", n, v.Type())
		return
	}
	v.SetInt(n)
}

func (d *decoder) uint(v reflect.Value) {
	n := d.uvarint()
	if v.OverflowUint(n) {
		d.refuse("%d is no %v", n, v.Type())
		return
	}
	v.SetUint(n)
}

func (d *decoder) text(v reflect.Value) { v.SetString(string(d.take(d.uvarint()))) }

func (d *decoder) bytes(v reflect.Value) {
	n := d.uvarint()
	if n == 0 {
		v.SetZero()
		return
	}
	if taken := d.take(n - 1); d.err == nil {
		v.SetBytes(append(make([]byte, 0, len(taken)), taken...))
	}
}

func (d *decoder) time(v reflect.Value) {
	seconds, nanoseconds := d.varint(), d.uvarint()
	if nanoseconds >= uint64(time.Second) {
		d.refuse("a second has no %d nanoseconds", nanoseconds)
		return
	}
	*v.Addr().Interface().(*time.Time) = time.Unix(seconds, int64(nanoseconds))
}
