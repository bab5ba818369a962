package diskstore

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
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
	other int64 // bytes that others have written
}

// used returns the bytes that the files take. The caller holds the lock.
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

// fillUnlessFreed lets others write until nothing is left, unless the reserve was freed, because its space belongs to
// the store. It reports whether the reserve exists.
func (q *quotaFS) fillUnlessFreed(s *Store) (exists bool) {
	s.reserve.mu.Lock() // so that the reserve is not freed during the fill
	defer s.reserve.mu.Unlock()
	if s.reserve.made {
		q.fill(0)
	}
	return s.reserve.made
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
func newQuota(t *testing.T, opts ...Option) (q *quotaFS, mem *vfs.MemFS, clock *manualClock, s *Store) {
	mem, clock = vfs.NewCrashableMem(), newManualClock()
	q = &quotaFS{FS: mem, total: 1 << 30}
	s = openOn(t, q, clock, append([]Option{withReserve(testReserve), withMemTable(256 << 10)}, opts...)...)
	if !s.reserve.state().made {
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
		q.fillUnlessFreed(s) // again, since background work of Pebble frees some space now and then
		if acked, err := ackSome(t, s, "q", 10); err != nil || len(acked) != 10 {
			t.Fatalf("%d claims and acks went on, then %v", n+len(acked), err)
		}
	}
	if s.reserve.state().made {
		t.Error("the reserve was not needed: the disk was not full")
	}
	_, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "late"}}})
	if !errors.Is(err, store.ErrFull) {
		t.Errorf("send gives %v, want ErrFull", err)
	}
	q.fill(minRoom + 2*testReserve)
	for !s.reserve.state().made { // compactions take some of the room for a while
		clock.Advance(checkFull)
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
		for !s.reserve.state().full {
			if _, err := s.Stats(t.Context(), "q"); err != nil {
				return
			}
		}
	}()
	<-full
	if !s.reserve.state().made {
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
	for s.reserve.state().full {
		clock.Advance(checkFull)
		if _, err := s.Stats(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(listed(t, s, "q", store.StateReady)); got != 2800 {
		t.Errorf("%d messages are left, want 2800", got)
	}
}

// belowFloors is so little room that every change is refused.
const belowFloors = testReserve / purgeFloor / 2

// useUp claims and acks until the reserve is used up, since others take the freed space. It returns the acked ids.
func useUp(t *testing.T, q *quotaFS, s *Store) (acked []string) {
	t.Helper()
	for {
		if !q.fillUnlessFreed(s) {
			q.fill(belowFloors) // again, since background work of Pebble frees some space now and then
		}
		some, err := ackSome(t, s, "q", 10)
		acked = append(acked, some...)
		if errors.Is(err, store.ErrFull) {
			return acked
		}
		if err != nil || len(some) == 0 {
			t.Fatalf("after %d claims and acks: %v, want ErrFull", len(acked), err)
		}
	}
}

func TestUsedUpReserveRefusesChangesUntilThereIsRoom(t *testing.T) {
	q, _, clock, s := newQuota(t)
	defer s.Close()
	const n = 4000
	fillQueue(t, s, "q", n)
	acked := useUp(t, q, s)
	ctx, ids := t.Context(), []string{fmt.Sprintf("m%06d", n-1)}
	for what, call := range map[string]func() error{
		"send":       func() error { _, err := s.Send(ctx, "q", []store.Outgoing{plain("late")}); return err },
		"claim":      func() error { _, err := s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Hour}); return err },
		"settle":     func() error { _, err := s.Settle(ctx, "q", []store.Settlement{{Action: store.Ack}}); return err },
		"extend":     func() error { _, err := s.Extend(ctx, "q", []store.Extension{{For: time.Hour}}); return err },
		"reschedule": func() error { _, err := s.Reschedule(ctx, "q", ids, store.Due{Delay: time.Hour}); return err },
		"replay": func() error {
			_, err := s.Replay(ctx, "q", store.Selection{State: store.StateDead}, store.Due{})
			return err
		},
		"cancel": func() error { _, err := s.Cancel(ctx, "q", store.CancelRequest{IDs: ids}); return err },
		"purge":  func() error { _, err := s.Purge(ctx, "q", store.Selection{State: store.StateReady}); return err },
		"pause":  func() error { return s.SetPaused(ctx, "q", true) },
		"retain": func() error { return s.SetDeadRetention(ctx, "q", store.Retention{MaxCount: 1}, nil) },
		"set":    func() error { return s.SetProperties(ctx, "q", map[string]string{"a": "b"}, nil) },
		"delete": func() error { return s.Delete(ctx, "q") },
		"remove": func() error {
			_, err := s.Remove(ctx, "q", []store.Info{{Message: store.Message{ID: ids[0]}}})
			return err
		},
	} {
		q.fill(belowFloors)
		if err := call(); !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "free some space") {
			t.Errorf("%s gives %v, want ErrFull", what, err)
		}
	}
	if infos, err := s.Get(ctx, "q", ids); err != nil || infos[0] == nil {
		t.Errorf("get gives %v, %v, want the message", infos, err)
	}
	q.fill(minRoom + 2*testReserve)
	for s.reserve.state().full { // compactions take some of the room for a while
		clock.Advance(checkFull)
		if _, err := s.Stats(ctx, "q"); err != nil {
			t.Fatal(err)
		}
	}
	more, err := ackSome(t, s, "q", 10)
	if err != nil || len(more) != 10 {
		t.Errorf("with room again, %d claims and acks went on, then %v", len(more), err)
	}
	if got, want := len(listed(t, s, "q", store.StateReady))+len(listed(t, s, "q", store.StateLeased)),
		n-len(acked)-len(more); got != want {
		t.Errorf("%d messages are left, want %d", got, want)
	}
	wantSound(t, s)
}

// purgeAll purges the messages of a queue in a state, and returns how many they were.
func purgeAll(t *testing.T, s *Store, queue string, state store.State) (n int) {
	t.Helper()
	for sel := (store.Selection{State: state}); ; {
		b, err := s.Purge(t.Context(), queue, sel)
		if err != nil {
			t.Fatalf("after %d messages, purge: %v", n, err)
		}
		n += b.Done
		if sel.Before = b.Before; !b.More {
			return n
		}
	}
}

func TestPurgeMakesRoomOnAFullDisk(t *testing.T) {
	// More than the log and the table that are written when the disk becomes full.
	q, _, clock, s := newQuota(t, withMemTable(2<<20), withReserve(3*testReserve))
	defer s.Close()
	const n = 30_000
	fillQueue(t, s, "q", n)
	later := plain("later")
	later.Due.Delay = time.Hour
	if _, err := s.Send(t.Context(), "mixed", []store.Outgoing{plain("now"), later}); err != nil {
		t.Fatal(err)
	}
	held := plain("held")
	if _, err := s.Send(t.Context(), "leased", []store.Outgoing{held, plain("ready")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), "leased", store.ClaimRequest{Max: 1, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for i, id := range []string{"dies", "stays"} {
		if _, err := s.Send(t.Context(), "dead", []store.Outgoing{plain(id)}); err != nil || i == 1 {
			try(t, err)
			break
		}
		c, err := s.Claim(t.Context(), "dead", store.ClaimRequest{Max: 1, Lease: time.Hour})
		try(t, err)
		_, err = s.Settle(t.Context(), "dead", []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Bury}})
		try(t, err)
	}
	if stats, err := s.Stats(t.Context(), "q"); err != nil || stats.Ready != n { // and keeps the count
		t.Errorf("%d messages are ready, %v, want %d", stats.Ready, err, n)
	}
	acked := 0
	for ; q.fillUnlessFreed(s); acked += 10 {
		if _, err := ackSome(t, s, "q", 10); err != nil {
			t.Fatal(err)
		}
	}
	if got := purgeAll(t, s, "mixed", store.StateReady); got != 1 {
		t.Errorf("%d ready messages were purged, want 1", got)
	}
	if got := live(t, s, "mixed"); len(got) != 1 || got["later"] != store.StateScheduled {
		t.Errorf("a purge of ready messages leaves %v", got)
	}
	if got := purgeAll(t, s, "leased", store.StateReady); got != 1 {
		t.Errorf("%d ready messages beside a leased one were purged, want 1", got)
	}
	if infos, err := s.Get(t.Context(), "leased", []string{"held"}); err != nil || infos[0] == nil ||
		infos[0].State != store.StateLeased {
		t.Errorf("the leased message is %v, %v", infos, err)
	}
	if got := purgeAll(t, s, "dead", store.StateReady); got != 1 || live(t, s, "dead")["dies"] != store.StateDead {
		t.Errorf("%d ready messages beside a dead one were purged, want 1 and the dead one left", got)
	}
	if got := purgeAll(t, s, "mixed", store.StateDead) + purgeAll(t, s, "q", store.StateScheduled); got != 0 {
		t.Errorf("%d messages were purged in states without any", got)
	}
	if got := purgeAll(t, s, "q", store.StateReady); got != n-acked {
		t.Errorf("%d messages were purged, want %d", got, n-acked)
	}
	if got := live(t, s, "q"); len(got) > 0 {
		t.Errorf("%d messages are left", len(got))
	}
	for s.reserve.state().full { // others keep their space
		clock.Advance(checkFull)
		if _, err := s.Stats(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
	}
	awaitRoom := func() { // until tables are removed
		for err := error(store.ErrFull); errors.Is(err, store.ErrFull); runtime.Gosched() {
			clock.Advance(checkFull)
			_, err = s.Send(t.Context(), "another", []store.Outgoing{plain(store.NewID())})
		}
	}
	awaitRoom()
	fillQueue(t, s, "q", 100) // with ids that were purged
	if got := live(t, s, "q"); len(got) != 100 {
		t.Errorf("%d messages are there after the purge, want 100", len(got))
	}
	awaitRoom()
	wantSound(t, s)
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

// A queue that was deleted before the disk was full leaves nothing to flush, since the table would take the reserve.
func TestEarlierDeletionsTakeNothingOfTheReserve(t *testing.T) {
	q, _, clock, s := newQuota(t, withMemTable(4<<20))
	defer s.Close()
	send(t, s, "deleted")
	try(t, s.Delete(t.Context(), "q"))
	fillQueue(t, s, "q", 500)
	for q.fillUnlessFreed(s) {
		if _, err := ackSome(t, s, "q", 10); err != nil {
			t.Fatal(err)
		}
	}
	for looks := s.reserve.state().looks; s.reserve.state().looks < looks+2; runtime.Gosched() {
		clock.Advance(checkFull)
	}
	execute(t, s, func(*tx) {
		if !s.room.flushed.IsZero() {
			t.Error("the memory table was flushed")
		}
	})
}

// A look for room may come in the group in which a queue is deleted.
func TestLookForRoomFindsTheDeletionsOfItsGroup(t *testing.T) {
	q, _, clock, s := newQuota(t)
	defer s.Close()
	fillQueue(t, s, "q", 3000)
	try(t, s.db.Flush())
	try(t, s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	fillQueue(t, s, "other", 100) // while there are messages, not all tables are merged at once
	try(t, s.db.Flush())
	for q.fillUnlessFreed(s) {
		if _, err := ackSome(t, s, "q", 10); err != nil {
			t.Fatal(err)
		}
	}
	execute(t, s, func(tx *tx) {
		try(t, tx.removeQueue(s.queues["q"]))
		s.askForRoom(0)
	})
	tables := func() int64 { return s.db.Metrics().Total().TablesSize }
	for begin := time.Now(); tables() > 1<<20; runtime.Gosched() {
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("the deletion made no room: %d bytes of tables are left", tables())
		}
		clock.Advance(checkFull)
	}
}
