package diskstore

import (
	"bytes"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"
)

// change is what a table or a log holds: the writing or removal of a key.
type change struct {
	key, value []byte
	seq        uint64 // of two changes of a key the one with the higher number is newer; 0 is the oldest
	kind       pebble.InternalKeyKind
}

// span is the removal of all keys from one to before another that are older than it.
type span struct {
	from, to []byte
	seq      uint64
}

// The columns of the blocks that hold changes and spans; see sstable/colblk of Pebble. A change: the key in two
// parts, its sequence number and kind, three marks, its value. A span: the keys where spans begin and end, and the
// first of each one's rows; the rows.
var (
	changeColumns = []colblk.DataType{colblk.DataTypePrefixBytes, colblk.DataTypeBytes, colblk.DataTypeUint,
		colblk.DataTypeBool, colblk.DataTypeBytes, colblk.DataTypeBool, colblk.DataTypeBool}
	spanColumns = []colblk.DataType{colblk.DataTypeBytes, colblk.DataTypeUint, colblk.DataTypeUint,
		colblk.DataTypeBytes, colblk.DataTypeBytes}
)

// columnsAt is where the columns begin in both: before it is the longest key's length, or the number of keys.
const columnsAt = 4

var keySchema = colblk.DefaultKeySchema(pebble.DefaultComparer, 16)

// decodeBlock reads a block with its trailer, whose checksum is right.
func decodeBlock(b []byte) (changes []change, spans []span, err error) {
	defer func() { // the decoders panic on what they do not expect
		if r := recover(); r != nil {
			changes, spans, err = nil, nil, corrupt("a block cannot be decoded: %v", r)
		}
	}()
	if b, err = decompress(b); err != nil || len(b) < columnsAt+8 {
		return nil, nil, err
	}
	switch header := colblk.DecodeHeader(b[columnsAt:]); {
	case header.Version != colblk.Version1:
	case hasColumns(b, header, changeColumns):
		changes, err = decodeChanges(b)
	case hasColumns(b, header, spanColumns):
		spans, err = decodeSpans(b, int(header.Rows))
	}
	return changes, spans, err
}

func decompress(b []byte) ([]byte, error) {
	how := block.CompressionIndicator(b[len(b)-trailerLength])
	b = b[:len(b)-trailerLength]
	if how == block.NoCompressionIndicator {
		return slices.Clone(b), nil // which aligns it
	}
	n, err := block.DecompressedLen(how, b)
	if err != nil {
		return nil, err
	}
	out := make([]byte, n)
	return out, block.DecompressInto(how, b, out)
}

func hasColumns(b []byte, header colblk.Header, want []colblk.DataType) bool {
	if int(header.Columns) != len(want) {
		return false
	}
	d := colblk.DecodeBlock(b, columnsAt)
	for i, column := range want {
		if d.DataType(i) != column {
			return false
		}
	}
	return true
}

func decodeChanges(b []byte) (changes []change, err error) {
	var decoder colblk.DataBlockDecoder
	decoder.Init(&keySchema, b)
	var it colblk.DataBlockIter
	it.InitOnce(&keySchema, pebble.DefaultComparer, nil) // values are all in the block: no option puts them elsewhere
	if err := it.Init(&decoder, block.NoTransforms); err != nil {
		return nil, err
	}
	for kv := it.First(); kv != nil; kv = it.Next() {
		changes = append(changes, change{
			key: slices.Clone(kv.K.UserKey), value: kv.InPlaceValue(), seq: uint64(kv.SeqNum()), kind: kv.Kind(),
		})
	}
	return changes, nil
}

func decodeSpans(b []byte, rows int) (spans []span, err error) {
	d := colblk.DecodeBlock(b, columnsAt)
	bounds := int(b[0]) | int(b[1])<<8 | int(b[2])<<16 | int(b[3])<<24
	keys := colblk.DecodeColumn(&d, 0, bounds, colblk.DataTypeBytes, colblk.DecodeRawBytes)
	first := colblk.DecodeColumn(&d, 1, bounds, colblk.DataTypeUint, colblk.DecodeUnsafeUints)
	trailers := d.Uints(2)
	for i := range bounds - 1 {
		for row := int(first.At(i)); row < int(first.At(i+1)) && row < rows; row++ {
			trailer := trailers.At(row) // sequence number, then a byte of kind
			if pebble.InternalKeyKind(trailer&0xff) != pebble.InternalKeyKindRangeDelete {
				continue
			}
			spans = append(spans, span{bytes.Clone(keys.At(i)), bytes.Clone(keys.At(i + 1)), trailer >> 8})
		}
	}
	return spans, nil
}
