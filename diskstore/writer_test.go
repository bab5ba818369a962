package diskstore

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// gatedFS is a file system that writes and syncs logs only while their gates are open.
type gatedFS struct {
	vfs.FS
	write, sync gate
}

// gate is something that can be held up.
type gate struct {
	mu      sync.RWMutex
	waiting chan struct{} // has a token when a call has come to the gate; made by shut
}

// shut holds up all calls from now on. It returns a channel that receives when one arrives, and a function that opens
// the gate.
func (g *gate) shut() (arrived <-chan struct{}, open func()) {
	g.mu.Lock()
	g.waiting = make(chan struct{}, 1)
	return g.waiting, sync.OnceFunc(g.mu.Unlock)
}

func (g *gate) pass() {
	if g.mu.TryRLock() {
		g.mu.RUnlock()
		return
	}
	select {
	case g.waiting <- struct{}{}: // shut made it before
	default:
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
}

func (fs *gatedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	if err == nil && category == forLog {
		f = &gatedFile{f, fs}
	}
	return f, err
}

type gatedFile struct {
	vfs.File
	fs *gatedFS
}

func (f *gatedFile) Write(p []byte) (int, error) {
	f.fs.write.pass()
	return f.File.Write(p)
}

func (f *gatedFile) Sync() error {
	f.fs.sync.pass()
	return f.File.Sync()
}

func (f *gatedFile) SyncData() error { return f.Sync() }

// openGated opens a store on a file system that can be held up, and fail.
func openGated(t *testing.T) (*Store, *gatedFS, *vfs.MemFS) {
	memory := vfs.NewCrashableMem()
	fs := &gatedFS{FS: memory}
	s := openOn(t, fs, newManualClock())
	t.Cleanup(func() { s.Close() })
	return s, fs, memory
}

// inBackground starts f and returns a channel that is closed when f has returned.
func inBackground(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// waitFor waits until something is true.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); runtime.Gosched() {
		if time.Since(begin) > patience {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// wantWaiting fails if a call has returned, or does so when other goroutines get their turn.
func wantWaiting(t *testing.T, call string, done <-chan struct{}) {
	t.Helper()
	for range 1000 {
		runtime.Gosched()
		select {
		case <-done:
			t.Errorf("%s returned", call)
			return
		default:
		}
	}
}

func TestReadReturnsOnlyWhatIsDurable(t *testing.T) {
	s, fs, _ := openGated(t)
	send(t, s, "first")
	arrived, open := fs.sync.shut()
	defer open()
	sent := inBackground(func() { send(t, s, "m") })
	<-arrived
	read := inBackground(func() {
		if infos, err := s.Get(t.Context(), "q", []string{"m"}); err != nil || infos[0] == nil {
			t.Error(infos, err)
		}
	})
	waitFor(t, "the read was executed", func() bool {
		wantWaiting(t, "Get of a message that is not durable", read)
		return t.Failed() || len(s.writing) == 1
	})
	wantWaiting(t, "Get of a message that is not durable", read)
	wantWaiting(t, "Send of a message that is not durable", sent)
	open()
	<-read
	<-sent
}

func TestClaimReturnsBeforeItsFsync(t *testing.T) {
	s, fs, memory := openGated(t)
	send(t, s, "m")
	arrived, open := fs.sync.shut()
	defer open()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := s.Claim(ctx, "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
	if err != nil || len(c.Messages) != 1 {
		t.Fatal(c, err)
	}
	<-arrived
	after := openOn(t, synced(memory), newManualClock())
	defer after.Close()
	if state := live(t, after, "q")["m"]; state != store.StateReady {
		t.Errorf("after a power failure before the fsync the message is %q, want it ready again", state)
	}
	acked := inBackground(func() {
		r, err := s.Settle(ctx, "q", []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}})
		if err != nil || r[0].Err != nil {
			t.Error(r, err)
		}
	})
	waitFor(t, "the ack was executed", func() bool { return len(s.writing) == 1 })
	wantWaiting(t, "an ack that is not durable", acked)
	open()
	<-acked
}

// Otherwise an attempt that kills its process at once would not count.
func TestClaimReturnsWhenItIsWritten(t *testing.T) {
	s, fs, _ := openGated(t)
	send(t, s, "m")
	arrived, open := fs.write.shut()
	defer open()
	claimed := inBackground(func() {
		if _, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour}); err != nil {
			t.Error(err)
		}
	})
	<-arrived
	waitFor(t, "the claim waits for the log", func() bool {
		wantWaiting(t, "a claim that is not written", claimed)
		s.written.mu.Lock()
		defer s.written.mu.Unlock()
		return t.Failed() || len(s.written.waiting) == 1
	})
	wantWaiting(t, "a claim that is not written", claimed)
	open()
	<-claimed
}

func TestClaimWithDeathsWaitsForItsFsync(t *testing.T) {
	s, fs, _ := openGated(t)
	m := store.Outgoing{Message: store.Message{ID: "m", ExpireAt: time.UnixMilli(1)}}
	if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
		t.Fatal(err)
	}
	arrived, open := fs.sync.shut()
	defer open()
	claimed := inBackground(func() {
		c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
		if err != nil || len(c.Died) != 1 {
			t.Error(c, err)
		}
	})
	<-arrived
	wantWaiting(t, "a claim that reports a death that is not durable", claimed)
	open()
	<-claimed
}

func TestTagThatIsMissedIsMadeUpForByTheNextOrByTheFsync(t *testing.T) {
	w := newWritten()
	call := func() *request { return &request{done: make(chan struct{}, 1)} }
	first, second, third := call(), call(), call()
	w.begin()
	w.expect([]*request{first})
	_, tag := w.begin()
	w.expect([]*request{second})
	w.reached(w.tagged([]byte("shorter")))
	w.reached(w.tagged(append([]byte("tag in the middle "), append(tag, "of a block"...)...)))
	if len(first.done)+len(second.done) != 0 {
		t.Error("calls return without a tag")
	}
	w.reached(w.tagged(append([]byte("changes"), tag...)))
	if len(first.done) != 1 || len(second.done) != 1 {
		t.Error("calls do not return with the tag of their group or a later one")
	}
	group, _ := w.begin()
	w.expect([]*request{third})
	if len(third.done) != 0 {
		t.Error("a call returns with the tag of an earlier group")
	}
	w.reached(group)
	if len(third.done) != 1 {
		t.Error("a call does not return with the fsync of its group")
	}
}
