package diskstore

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// quotaFS is a disk of a size, in memory: a write that does not fit returns ENOSPC after a part of it was written.
type quotaFS struct {
	vfs.FS
	mu    sync.Mutex
	total int64
	other int64 // what others have written
}

// used returns what the files take. The caller holds the lock.
func (q *quotaFS) used() int64 {
	used := q.other
	names, err := q.FS.List("later")
	if err != nil {
		return used // it is not made yet
	}
	for _, name := range names {
		if info, err := q.FS.Stat(q.FS.PathJoin("later", name)); err == nil {
			used += info.Size()
		}
	}
	return used
}

// fill lets others write until so much is left.
func (q *quotaFS) fill(left int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.other += q.total - q.used() - left
}

func (q *quotaFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	used := q.used()
	return vfs.DiskUsage{
		AvailBytes: uint64(max(0, q.total-used)),
		TotalBytes: uint64(q.total),
		UsedBytes:  uint64(used),
	}, nil
}

func (q *quotaFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := q.FS.Create(name, category)
	return &quotaFile{File: f, q: q}, err
}

func (q *quotaFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if _, err := q.FS.Stat(name); err != nil {
		return nil, err
	}
	f, err := q.FS.OpenReadWrite(name, category, opts...)
	return &quotaFile{File: f, q: q}, err
}

func (q *quotaFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := q.FS.ReuseForWrite(oldname, newname, category)
	return &quotaFile{File: f, q: q}, err
}

type quotaFile struct {
	vfs.File
	q  *quotaFS
	at int64
}

// room returns how much of n bytes can be written at a place. The caller holds the lock.
func (f *quotaFile) room(at int64, n int) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	grows := max(0, at+int64(n)-info.Size())
	if short := grows - (f.q.total - f.q.used()); short > 0 {
		return max(0, n-int(short)), syscall.ENOSPC
	}
	return n, nil
}

func (f *quotaFile) Write(p []byte) (int, error) {
	f.q.mu.Lock()
	defer f.q.mu.Unlock()
	n, full := f.room(f.at, len(p))
	n, err := f.File.Write(p[:n])
	f.at += int64(n)
	return n, errors.Join(err, full)
}

func (f *quotaFile) WriteAt(p []byte, at int64) (int, error) {
	f.q.mu.Lock()
	defer f.q.mu.Unlock()
	n, full := f.room(at, len(p))
	n, err := f.File.WriteAt(p[:n], at)
	return n, errors.Join(err, full)
}

const testReserve = 4 << 20

// newQuota returns a disk that has room, and a store on it.
func newQuota(t *testing.T) (q *quotaFS, mem *vfs.MemFS, clock *manualClock, s *Store) {
	mem, clock = vfs.NewCrashableMem(), newManualClock()
	q = &quotaFS{FS: mem, total: 1 << 30}
	s = openOn(t, q, clock, withReserve(testReserve), withMemTable(256<<10))
	if !s.reserve.exists() {
		t.Fatal("there is no reserve")
	}
	return q, mem, clock, s
}

// fillQueue sends messages of a kilobyte.
func fillQueue(t testing.TB, s *Store, queue string, n int) {
	t.Helper()
	for i := 0; i < n; i += 100 {
		var msgs []store.Outgoing
		for k := range 100 {
			msgs = append(msgs,
				store.Outgoing{Message: store.Message{ID: fmt.Sprintf("m%06d", i+k), Payload: noise[(i+k)%1000*1000:][:1000]}})
		}
		if _, err := s.Send(t.Context(), queue, msgs); err != nil {
			t.Fatal(err)
		}
	}
}

// ackSome claims and acks n messages one by one, and returns their ids.
func ackSome(t testing.TB, s *Store, queue string, n int) (acked []string, err error) {
	t.Helper()
	for range n {
		c, err := s.Claim(t.Context(), queue, store.ClaimRequest{Max: 1, Lease: time.Hour})
		if err != nil || len(c.Messages) == 0 {
			return acked, err
		}
		r, err := s.Settle(t.Context(), queue, []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}})
		if err != nil {
			return acked, err
		}
		if r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		acked = append(acked, c.Messages[0].ID)
	}
	return acked, nil
}

func TestClaimsAndAcksGoOnWhenTheDiskIsFull(t *testing.T) {
	q, _, clock, s := newQuota(t)
	defer s.Close()
	fillQueue(t, s, "q", 2000)
	for n := 0; n < 1000; n += 10 {
		if s.reserve.exists() {
			q.fill(0) // again, since background work of Pebble frees some space now and then
		}
		if acked, err := ackSome(t, s, "q", 10); err != nil || len(acked) != 10 {
			t.Fatalf("%d claims and acks went on, then %v", n+len(acked), err)
		}
	}
	if s.reserve.exists() {
		t.Error("the reserve was not needed: the disk was not full")
	}
	_, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "late"}}})
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("send gives %v, want ErrFull", err)
	}
	q.fill(minRoom + 2*testReserve)
	clock.Advance(checkFull)
	for !s.reserve.exists() { // the loop that looks for room is on its way
		if _, err := s.Stats(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
	}
	fillQueue(t, s, "new", 100)
	if got := len(listed(t, s, "q", store.StateReady)); got != 1000 {
		t.Errorf("%d messages are left, want 1000", got)
	}
	wantSound(t, s)
}

func TestCompactionsLeaveTheReserveAlone(t *testing.T) {
	q, _, clock, s := newQuota(t)
	defer s.Close()
	fillQueue(t, s, "q", 3000)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	q.fill(20_000) // less than a compaction needs
	compacted := make(chan error, 1)
	go func() { compacted <- s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false) }()
	full := make(chan struct{})
	go func() { // a compaction that finds no room says so
		defer close(full)
		for !s.reserve.isFull() {
			if _, err := s.Stats(t.Context(), "q"); err != nil {
				return
			}
		}
	}()
	<-full
	if !s.reserve.exists() {
		t.Error("a compaction used the reserve up")
	}
	if acked, err := ackSome(t, s, "q", 200); err != nil || len(acked) != 200 {
		t.Errorf("%d claims and acks went on, then %v", len(acked), err)
	}
	q.fill(minRoom + 10*testReserve)
	clock.Advance(checkFull)
	if err := <-compacted; err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	for s.reserve.isFull() {
		clock.Advance(checkFull)
		if _, err := s.Stats(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(listed(t, s, "q", store.StateReady)); got != 2800 {
		t.Errorf("%d messages are left, want 2800", got)
	}
}

// TestUsedUpReserveStopsTheStoreAndLosesNothing runs in a child process, since goroutines of Pebble's do not end.
func TestUsedUpReserveStopsTheStoreAndLosesNothing(t *testing.T) {
	if !inChild(t) {
		return
	}
	q, mem, clock, s := newQuota(t)
	const n = 4000
	fillQueue(t, s, "q", n)
	var acked []string
	var err error
	ackOnFullDisk := func(until func() bool) { // background work of Pebble frees some space now and then
		for err == nil && len(acked) < n && !until() {
			q.fill(0)
			var more []string
			more, err = ackSome(t, s, "q", 10)
			acked = append(acked, more...)
		}
	}
	ackOnFullDisk(func() bool { return !s.reserve.exists() })
	if err != nil || s.reserve.exists() {
		t.Errorf("after %d claims and acks: %v, want the reserve in use", len(acked), err)
	}
	ackOnFullDisk(func() bool { return false }) // others take what the reserve gave
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("after %d claims and acks: %v, want ErrUnavailable for a full disk", len(acked), err)
	}
	if _, err := s.Stats(t.Context(), "q"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("stats gives %v, want ErrUnavailable", err)
	}
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	s.Close()
	s = openOn(t, after, clock)
	gone := map[string]bool{}
	for _, id := range acked {
		gone[id] = true
	}
	left := live(t, s, "q")
	for i := range n {
		id := fmt.Sprintf("m%06d", i)
		if _, there := left[id]; there == gone[id] && id != fmt.Sprintf("m%06d", len(acked)) {
			t.Errorf("%s: there is %v, and acked is %v", id, there, gone[id])
			break
		}
	}
	if !t.Failed() {
		fmt.Println(kept)
		os.Exit(3) // before the leak check
	}
}

func TestStoreOpensOnAFullDisk(t *testing.T) {
	q, _, clock, s := newQuota(t)
	fillQueue(t, s, "q", 2000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	q.fill(0)
	s = openOn(t, q, clock, withReserve(testReserve), withMemTable(256<<10))
	defer s.Close()
	if acked, err := ackSome(t, s, "q", 100); err != nil || len(acked) != 100 {
		t.Errorf("%d claims and acks went on, then %v", len(acked), err)
	}
}
