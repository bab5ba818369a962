package diskstore

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"sync"
)

// A claim, and the beginning of a wait, return when the log has been written, before its fsync. From then on the end of
// the process cannot undo the claim, so an attempt that kills its process counts. A power failure may undo it: then the
// messages are ready again, as if they had not been claimed.
//
// Pebble does not tell when a write to its log is done. Therefore each group ends with a tag, which goes to the log and
// nowhere else, and the file system looks for it at the end of Pebble's writes to the log. A tag may be missed, when
// Pebble splits it or a block ends behind it: then the next one, or the fsync, says that the group was written.

// forLog is Pebble's name of the reason to write a log.
const forLog = "pebble-wal"

const tagLength = 16

// written knows which groups the log has been written with.
type written struct {
	mu      sync.Mutex
	tag     [tagLength]byte // of the last group: eight random bytes, then its number
	last    uint64          // group that was tagged
	written uint64          // group, with all before it
	waiting []quickCalls
}

// quickCalls are calls that return when a group was written.
type quickCalls struct {
	group uint64
	calls []*request
}

func newWritten() *written {
	w := &written{}
	rand.Read(w.tag[:8])
	return w
}

// begin returns the number of a new group and the tag that ends it. The caller is the writer; the tag is valid until
// the next call.
func (w *written) begin() (group uint64, tag []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	binary.BigEndian.PutUint64(w.tag[8:], w.last)
	return w.last, w.tag[:]
}

// expect lets calls return when all groups so far were written.
func (w *written) expect(calls []*request) {
	if len(calls) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, quickCalls{w.last, calls})
	w.release()
}

// tagged returns the group with a tag at the end of a write to the log, or 0.
func (w *written) tagged(p []byte) (group uint64) {
	if len(p) < tagLength {
		return 0
	}
	tag := p[len(p)-tagLength:]
	if !bytes.Equal(tag[:8], w.tag[:8]) { // these bytes never change
		return 0
	}
	return binary.BigEndian.Uint64(tag[8:])
}

// reached notes that the log was written, or fsynced, with a group and all before it.
func (w *written) reached(group uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if group > w.written {
		w.written = group
		w.release()
	}
}

// release lets the calls of written groups go.
func (w *written) release() {
	n := 0
	for ; n < len(w.waiting) && w.waiting[n].group <= w.written; n++ {
		for _, r := range w.waiting[n].calls {
			r.done <- struct{}{} // has room
		}
		w.waiting[n].calls = nil
	}
	w.waiting = append(w.waiting[:0], w.waiting[n:]...)
}
