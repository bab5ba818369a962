package diskstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

var (
	_ store.Syncer = (*Store)(nil)
	_ store.Pinger = (*Store)(nil)
)

// Ping implements store.Pinger. A store that has failed stays so. It returns ErrFull while the disk is so full that not
// even accepted changes can be written.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	if !s.reserve.isUsedUp() {
		return nil
	}
	return s.fullError()
}

// Sync implements store.Syncer. With SyncEvery it fsyncs at once; otherwise it waits only for the calls that are
// under way.
func (s *Store) Sync(ctx context.Context) error {
	return s.do(ctx, "", inOrder, func(t *tx) { t.durable = true })
}

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

// lazyLog is a log of a store with SyncEvery, with fsyncs that are postponed until the next of Store.sync, or until
// Pebble closes it, which it does before it creates another one. Pebble asks for an fsync of each group, because
// otherwise it keeps the group in memory, where it would end with the process.
type lazyLog struct {
	vfs.File
	dirty  atomic.Bool // an fsync is postponed
	mu     sync.Mutex  // held during an fsync and the close
	closed bool
}

// Sync implements vfs.File.
func (f *lazyLog) Sync() error {
	f.dirty.Store(true)
	return nil
}

// SyncData implements vfs.File.
func (f *lazyLog) SyncData() error { return f.Sync() }

// syncNow fsyncs everything that was written so far.
func (f *lazyLog) syncNow() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || !f.dirty.Swap(false) { // before the fsync: writes during it wait for the next one
		return nil
	}
	return f.File.SyncData()
}

// Close implements vfs.File.
func (f *lazyLog) Close() error {
	err := f.syncNow()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	return errors.Join(err, f.File.Close())
}
