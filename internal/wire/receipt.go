package wire

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/laterq/later/store"
)

// Receipt is the data with which any process can settle and extend a message. Its text has at most store.MaxReceipt
// bytes of letters, digits, - and _.
type Receipt struct {
	Queue string
	store.Receipt
	// DedupWindow is the dedup window of the message; see store.Settlement.
	DedupWindow time.Duration
	// Grouped reports whether the message is in a group; see store.Settlement.
	Grouped bool
	// Deadline is when the lease ends by the engine's clock, unless it is extended. It is zero if unknown.
	Deadline time.Time
	// Attempt is the number of the attempt.
	Attempt int
}

// receiptVersion is the first byte of a receipt, or groupedVersion if its message is in a group. Others follow:
//
//	queue, lease, id       each a uvarint of its length, and its bytes
//	epoch, index, attempt  uvarints
//	dedup window           uvarint, in milliseconds
//	deadline               uvarint, in milliseconds since 1970
//	checksum               4 bytes, CRC-32C of all before it, little-endian
//
// The checksum finds texts that were cut or mistyped. It does not protect against forgery.
const (
	receiptVersion = 1
	groupedVersion = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// String returns the text of the receipt. It leaves out Claim, which only the engine that set it can use.
func (r *Receipt) String() string {
	b := make([]byte, 0, 64+len(r.Queue)+len(r.Lease)+len(r.ID))
	if r.Grouped {
		b = append(b, groupedVersion)
	} else {
		b = append(b, receiptVersion)
	}
	for _, s := range []string{r.Queue, r.Lease, r.ID} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, n := range []int64{r.Epoch, int64(r.Index), int64(r.Attempt), store.Millis(r.DedupWindow),
		unixMillis(r.Deadline)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseReceipt returns the receipt with a text. It returns ErrInvalid for every text that String does not return.
func ParseReceipt(text string) (Receipt, error) {
	if len(text) > store.MaxReceipt {
		return Receipt{}, store.Invalid("receipt is %d bytes long: the limit is %d", len(text), store.MaxReceipt)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) <= crc32.Size {
		return Receipt{}, errNoReceipt
	}
	b, sum := b[:len(b)-crc32.Size], binary.LittleEndian.Uint32(b[len(b)-crc32.Size:])
	switch {
	case crc32.Checksum(b, castagnoli) != sum:
		return Receipt{}, errNoReceipt
	case b[0] != receiptVersion && b[0] != groupedVersion:
		return Receipt{}, store.Invalid("receipt has the version %d and this version of Later knows %d and %d: "+
			"use the version that made it", b[0], receiptVersion, groupedVersion)
	}
	d := receiptDecoder{left: b[1:]}
	r := Receipt{Queue: d.text(), Receipt: store.Receipt{Lease: d.text(), ID: d.text()}}
	r.Epoch, r.Index, r.Attempt = d.number(1<<62), int(d.number(store.MaxBatch-1)), int(d.number(store.MaxAttempts+1))
	r.DedupWindow = time.Duration(d.number(store.Millis(store.MaxDelay))) * time.Millisecond
	r.Deadline, r.Grouped = store.Time(d.number(1<<53)), b[0] == groupedVersion
	if d.bad || len(d.left) > 0 || store.CheckQueue(r.Queue) != nil || r.Check() != nil || r.String() != text {
		return Receipt{}, errNoReceipt
	}
	return r, nil
}

var errNoReceipt = store.Invalid("text is not a receipt: give one unchanged, as Delivery.Receipt returned it")

// unixMillis returns 0 for the zero time. A deadline is rounded down, so that the lease is held until then.
func unixMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// receiptDecoder reads the parts of a receipt. bad is set after one that is missing or too large.
type receiptDecoder struct {
	left []byte
	bad  bool
}

func (d *receiptDecoder) number(limit int64) int64 {
	n, size := binary.Uvarint(d.left)
	if d.bad || size <= 0 || n > uint64(limit) {
		d.bad = true
		return 0
	}
	d.left = d.left[size:]
	return int64(n)
}

func (d *receiptDecoder) text() string {
	n := d.number(int64(len(d.left)))
	if d.bad || n > int64(len(d.left)) {
		d.bad = true
		return ""
	}
	s := d.left[:n]
	d.left = d.left[n:]
	return string(s)
}
