// Package codec encodes the types of the store contract as bytes, for the remote engine and for the calls that engines
// remember. It has no code for single types: it follows their declarations, so a new field is carried without a change
// here. Of Later, it imports the store contract. Start reading at Append and Decode.
//
// # Format
//
// Integers are varints, texts and slices begin with their length, and a struct begins with a number that has a bit for
// each field that is not zero; only these fields follow, in the order of their declaration. So data from before a
// struct got a new field at its end can be read. A program that does not know the field refuses data with it. For the
// reply to a call that is too late, so the remote protocol raises its version. Interfaces other than error are private
// to a process and are not encoded.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// ErrMalformed means that bytes do not encode the type as which they are decoded.
var ErrMalformed = errors.New("malformed encoding")

// Append appends the encoding of *v to b. It panics if a type is not supported.
func Append[T any](b []byte, v *T) []byte {
	value := reflect.ValueOf(v).Elem()
	return formOf(value.Type()).encode(b, value)
}

// maxMemory limits the memory of the values that are decoded from one text, since a few bytes can stand for a large
// value.
const maxMemory = 128 << 20

// Decode sets *v to the value that b encodes. Slices in *v are reused if they have room. It returns an ErrMalformed if
// b does not encode a T or has more bytes than the encoding.
func Decode[T any](b []byte, v *T) error {
	value := reflect.ValueOf(v).Elem()
	d := &decoder{b: b, memory: maxMemory}
	formOf(value.Type()).decode(d, value)
	if d.err == nil && len(d.b) > 0 {
		d.refuse("%d bytes follow", len(d.b))
	}
	return d.err
}

// form is how values of a type are encoded.
type form struct {
	encode func(b []byte, v reflect.Value) []byte
	decode func(d *decoder, v reflect.Value)
	size   int // of a value in memory, without values that it refers to
}

var (
	forms    sync.Map // of *form by reflect.Type
	makingMu sync.Mutex
)

func formOf(t reflect.Type) *form {
	if f, ok := forms.Load(t); ok {
		return f.(*form)
	}
	makingMu.Lock()
	defer makingMu.Unlock()
	return makeForm(t)
}

var (
	timeType  = reflect.TypeFor[time.Time]()
	errorType = reflect.TypeFor[error]()
)

// makeForm returns the form of a type, which it makes if necessary. The lock is held.
func makeForm(t reflect.Type) *form {
	if f, ok := forms.Load(t); ok {
		return f.(*form)
	}
	f := newForm(t)
	f.size = int(t.Size())
	forms.Store(t, f)
	return f
}

func newForm(t reflect.Type) *form {
	switch {
	case t == timeType:
		return &form{encode: appendTime, decode: (*decoder).time}
	case t == errorType:
		return &form{encode: appendError, decode: (*decoder).error}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &form{encode: appendBool, decode: (*decoder).bool}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &form{
			encode: func(b []byte, v reflect.Value) []byte { return binary.AppendVarint(b, v.Int()) },
			decode: (*decoder).int,
		}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &form{
			encode: func(b []byte, v reflect.Value) []byte { return binary.AppendUvarint(b, v.Uint()) },
			decode: (*decoder).uint,
		}
	case reflect.String:
		return &form{encode: appendText, decode: (*decoder).text}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &form{encode: appendBytes, decode: (*decoder).bytes}
		}
		return sliceForm(makeForm(t.Elem()))
	case reflect.Map:
		return mapForm(t, makeForm(t.Key()), makeForm(t.Elem()))
	case reflect.Pointer:
		return pointerForm(t, makeForm(t.Elem()))
	case reflect.Struct:
		return structForm(t)
	}
	panic(fmt.Sprintf("codec: values of type %v cannot be encoded", t))
}

// carried reports whether a struct's field is encoded.
func carried(f reflect.StructField) bool {
	return f.IsExported() && (f.Type.Kind() != reflect.Interface || f.Type == errorType)
}

type field struct {
	*form
	index int
	flag  bool // its bit says all
}

func structForm(t reflect.Type) *form {
	var fields []field
	var private []int
	for i := range t.NumField() {
		f := t.Field(i)
		switch {
		case carried(f):
			fields = append(fields, field{makeForm(f.Type), i, f.Type.Kind() == reflect.Bool})
		case !f.IsExported():
			panic(fmt.Sprintf("codec: %v has the field %s, which is not exported", t, f.Name))
		default:
			private = append(private, i)
		}
	}
	if len(fields) > 63 {
		panic(fmt.Sprintf("codec: %v has %d fields and a number has bits for 63", t, len(fields)))
	}
	return &form{
		encode: func(b []byte, v reflect.Value) []byte {
			var set uint64
			for i := range fields {
				if !v.Field(fields[i].index).IsZero() {
					set |= 1 << i
				}
			}
			b = binary.AppendUvarint(b, set)
			for i := range fields {
				if f := &fields[i]; set&(1<<i) != 0 && !f.flag {
					b = f.encode(b, v.Field(f.index))
				}
			}
			return b
		},
		decode: func(d *decoder, v reflect.Value) {
			set := d.uvarint()
			if set>>len(fields) != 0 {
				d.refuse("%v has a field that this version does not know", t)
				return
			}
			for i := range fields {
				f := &fields[i]
				switch {
				case set&(1<<i) == 0:
					v.Field(f.index).SetZero()
				case f.flag:
					v.Field(f.index).SetBool(true)
				default:
					f.decode(d, v.Field(f.index))
				}
			}
			for _, i := range private {
				v.Field(i).SetZero()
			}
		},
	}
}

// sliceForm encodes a slice as one more than its length, so that a nil slice differs from an empty one.
func sliceForm(elem *form) *form {
	return &form{
		encode: func(b []byte, v reflect.Value) []byte {
			if v.IsNil() {
				return append(b, 0)
			}
			b = binary.AppendUvarint(b, uint64(v.Len())+1)
			for i := range v.Len() {
				b = elem.encode(b, v.Index(i))
			}
			return b
		},
		decode: func(d *decoder, v reflect.Value) {
			n, isNil := d.length(elem.size)
			if isNil || d.err != nil {
				v.SetZero()
				return
			}
			if v.IsNil() || v.Cap() < n {
				v.Set(reflect.MakeSlice(v.Type(), n, n))
			}
			v.SetLen(n)
			for i := 0; i < n && d.err == nil; i++ {
				elem.decode(d, v.Index(i))
			}
		},
	}
}

func mapForm(t reflect.Type, key, elem *form) *form {
	return &form{
		encode: func(b []byte, v reflect.Value) []byte {
			if v.IsNil() {
				return append(b, 0)
			}
			b = binary.AppendUvarint(b, uint64(v.Len())+1)
			for entries := v.MapRange(); entries.Next(); {
				b = elem.encode(key.encode(b, entries.Key()), entries.Value())
			}
			return b
		},
		decode: func(d *decoder, v reflect.Value) {
			n, isNil := d.length(2 * (key.size + elem.size))
			if isNil || d.err != nil {
				v.SetZero()
				return
			}
			m := reflect.MakeMapWithSize(t, n)
			k, e := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
			for i := 0; i < n && d.err == nil; i++ {
				k.SetZero()
				key.decode(d, k)
				e.SetZero()
				elem.decode(d, e)
				m.SetMapIndex(k, e)
			}
			v.Set(m)
		},
	}
}

func pointerForm(t reflect.Type, elem *form) *form {
	return &form{
		encode: func(b []byte, v reflect.Value) []byte {
			if v.IsNil() {
				return append(b, 0)
			}
			return elem.encode(append(b, 1), v.Elem())
		},
		decode: func(d *decoder, v reflect.Value) {
			if !d.flag() {
				v.SetZero()
				return
			}
			d.spend(elem.size)
			p := reflect.New(t.Elem())
			elem.decode(d, p.Elem())
			v.Set(p)
		},
	}
}
