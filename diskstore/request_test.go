package diskstore

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/laterq/later/store"
)

// hanging is a file system that blocks syncs of the log while on is set, until free is closed. hangs receives a token
// for each blocked sync.
type hanging struct {
	vfs.FS
	on    atomic.Bool
	hangs chan struct{}
	free  chan struct{}
}

func newHanging() *hanging {
	h := &hanging{hangs: make(chan struct{}, 100), free: make(chan struct{})}
	h.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if h.on.Load() && isLogSync(op) {
			h.hangs <- struct{}{}
			<-h.free
		}
		return nil
	}))
	return h
}

func TestContextEndsEveryCallWhileTheDiskHangs(t *testing.T) {
	disk := newHanging()
	s := openOn(t, disk, newManualClock())
	defer s.Close()
	defer close(disk.free)
	disk.on.Store(true)
	go s.Send(context.Background(), "q", []store.Outgoing{{Message: store.Message{ID: "m"}}})
	<-disk.hangs

	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	begin := func(run func(*tx)) chan error {
		ended := make(chan error, 1)
		go func() { ended <- s.do(ctx, "q", urgent, run) }()
		return ended
	}
	var ran [2]chan struct{} // two groups are with the writer and the acknowledger, and wait for the disk
	var done [2]chan error
	for i := range done {
		ran[i] = make(chan struct{})
		done[i] = begin(func(*tx) { close(ran[i]) })
		<-ran[i]
	}
	var unseen atomic.Bool
	unseen.Store(true)
	notRun := begin(func(*tx) { unseen.Store(false) })
	calls := make(chan error, 3)
	go func() { calls <- s.Wait(ctx, "other") }()
	go func() { _, err := s.Stats(ctx, "q"); calls <- err }()
	go func() { _, err := s.Extend(ctx, "q", []store.Extension{{Lease: "l"}}); calls <- err }()
	for waiting := 0; waiting < 1+cap(calls); runtime.Gosched() {
		s.backlog.mu.Lock()
		waiting = len(s.backlog.urgent)
		s.backlog.mu.Unlock()
	}
	cancel(cause)
	for range cap(calls) {
		if err := <-calls; err != cause {
			t.Errorf("a call that had not begun gives %v, want the cause and nothing else", err)
		}
	}
	if err := <-notRun; err != cause {
		t.Errorf("a call that had not begun gives %v, want the cause and nothing else", err)
	}
	for i := range done {
		if err := <-done[i]; !errors.Is(err, cause) || !strings.Contains(err.Error(), "outcome unknown") {
			t.Errorf("a call that has run gives %v, want the cause and that the outcome is unknown", err)
		}
	}
	disk.on.Store(false)
	disk.free <- struct{}{}
	if _, err := s.Stats(t.Context(), "q"); err != nil { // comes after it
		t.Fatal(err)
	}
	if !unseen.Load() {
		t.Error("a call that was given up before it began has run")
	}
}

// The arguments of a call belong to its caller again when the call returns, so the writer must not use them any more.
func TestCallIsNotLeftWhileTheWriterIsInIt(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	var passed int
	ctx, cancel := context.WithCancel(t.Context())
	err := s.do(ctx, "q", urgent, func(*tx) {
		cancel()
		runtime.Gosched()
		passed++
	})
	if passed++; passed != 2 || err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: the call is left with %d, %v", passed, err)
	}
	cause := errors.New("the disk is on fire")
	err = s.do(t.Context(), "q", urgent, func(*tx) {
		s.fail(cause)
		runtime.Gosched()
		passed++
	})
	if passed++; passed != 4 || !errors.Is(err, cause) {
		t.Errorf("failed: the call is left with %d, %v", passed, err)
	}
}

func TestEveryCloseWaitsForTheFirst(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	begun, end := make(chan struct{}), make(chan struct{})
	go s.do(context.Background(), "q", urgent, func(*tx) { close(begun); <-end })
	<-begun
	first, second := make(chan struct{}), make(chan struct{})
	var ending atomic.Bool
	go func() { defer close(first); s.Close() }()
	<-s.closed
	go func() {
		defer close(second)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !ending.Load() {
			t.Error("the second Close returned while the first is at it")
		}
	}()
	for range 1000 {
		runtime.Gosched()
	}
	ending.Store(true)
	close(end)
	<-second
	<-first
}

// A read splits its group: the earlier changes are written without a wait for the sync. They must be synced all the
// same.
func TestSendThatSharesAGroupWithAReadIsDurable(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer s.Close()
	send(t, s, "first")
	begun, end := make(chan struct{}), make(chan struct{})
	go s.do(context.Background(), "q", urgent, func(*tx) { close(begun); <-end })
	<-begun
	results := make(chan error, 2)
	waiting := func(n int) {
		for got := 0; got < n; runtime.Gosched() {
			s.backlog.mu.Lock()
			if l := s.backlog.small.queues["q"]; l != nil {
				got = len(l.requests)
			}
			s.backlog.mu.Unlock()
		}
	}
	go func() {
		_, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "second"}}})
		results <- err
	}()
	waiting(1)
	go func() {
		_, err := s.Reschedule(t.Context(), "q", []string{"none"}, store.Due{})
		results <- err
	}()
	waiting(2)
	close(end)
	for range cap(results) {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	after := openOn(t, synced(fs), clock)
	defer after.Close()
	if got := live(t, after, "q"); len(got) != 2 {
		t.Errorf("after a power failure there is %v, want both messages", got)
	}
}
