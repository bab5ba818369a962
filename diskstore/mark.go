package diskstore

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2"
)

// Every batch ends with a mark, which is in the log and nowhere else: who wrote it, and up to which sequence
// number all was fsynced before. So what a log lost of what was acknowledged can be told from what the machine's
// death kept from being written: the former has marks behind it that say that it was there. Pebble's own offsets
// of what was synced say the same, but lag behind it by whole blocks.
//
// The run is a random number, one for each time that the store was opened. Who sends messages does not know it,
// so no payload passes for a mark.
type mark struct {
	run    uint64
	synced uint64
}

const markLength = 1 + 1 + 8 + 8 // kind, length, run, synced

func newRun() uint64 { return rand.Uint64() }

// addMark is called right before a batch is applied.
func (t *tx) addMark() error {
	b := binary.BigEndian.AppendUint64(t.value[:0], t.s.run)
	t.value = binary.BigEndian.AppendUint64(b, t.s.synced.Load())
	return t.batch.LogData(t.value, nil)
}

// readMark reads the mark at the end of a batch, or of a part of one.
func readMark(b []byte) (m mark, ok bool) {
	if len(b) < markLength {
		return mark{}, false
	}
	b = b[len(b)-markLength:]
	if b[0] != byte(pebble.InternalKeyKindLogData) || b[1] != markLength-2 {
		return mark{}, false
	}
	return mark{binary.BigEndian.Uint64(b[2:]), binary.BigEndian.Uint64(b[10:])}, true
}

// noteSynced notes that all before a sequence number is fsynced.
func (s *Store) noteSynced(next uint64) {
	for {
		before := s.synced.Load()
		if next <= before || s.synced.CompareAndSwap(before, next) {
			return
		}
	}
}

// behind is the sequence number behind a batch that was applied.
func behind(b *pebble.Batch) uint64 { return uint64(b.SeqNum()) + uint64(b.Count()) }
