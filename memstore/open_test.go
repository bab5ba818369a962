package memstore_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func openURL(t *testing.T, url string) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, store.OpenConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("open %s: %v", url, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func send(t *testing.T, s store.Store, id string, delay time.Duration) {
	t.Helper()
	out := store.Outgoing{Message: store.Message{ID: id}, Due: store.Due{Delay: delay}}
	if _, err := s.Send(t.Context(), "q", []store.Outgoing{out}); err != nil {
		t.Fatalf("send: %v", err)
	}
}

func has(t *testing.T, s store.Store, id string) bool {
	t.Helper()
	infos, err := s.Get(t.Context(), "q", []string{id})
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return infos[0] != nil
}

func TestOpenWithoutNameReturnsAPrivateStore(t *testing.T) {
	a, b := openURL(t, "mem://"), openURL(t, "mem://")
	send(t, a, "m", 0)
	if has(t, b, "m") {
		t.Error("two private stores share a message")
	}
}

func TestOpenWithNameReturnsASharedStore(t *testing.T) {
	a, b, other := openURL(t, "mem://shop"), openURL(t, "mem://shop"), openURL(t, "mem://other")
	send(t, a, "m", 0)
	if !has(t, b, "m") {
		t.Error("a store of the same name lacks the message")
	}
	if has(t, other, "m") {
		t.Error("a store of another name has the message")
	}
}

func TestSharedStoreIsFreedWhenItsLastUserCloses(t *testing.T) {
	a, b := openURL(t, "mem://freed"), openURL(t, "mem://freed")
	send(t, a, "m", 0)
	for range 2 { // the second Close must not count
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Stats(t.Context(), "q"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Stats after Close: %v, want ErrClosed", err)
	}
	if !has(t, b, "m") {
		t.Error("the message was lost when the first user closed")
	}
	b.Close()
	if has(t, openURL(t, "mem://freed"), "m") {
		t.Error("the message outlived the last user")
	}
}

func TestCloseEndsOnlyItsOwnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := openURL(t, "mem://waits"), openURL(t, "mem://waits")
		ended := make(chan error, 2)
		go func() { ended <- a.Wait(context.Background(), "q") }()
		go func() { ended <- b.Wait(context.Background(), "q") }()
		synctest.Wait()
		a.Close()
		synctest.Wait()
		if err := <-ended; !errors.Is(err, store.ErrClosed) {
			t.Errorf("wait ended with %v, want ErrClosed", err)
		}
		if len(ended) != 0 {
			t.Error("closing one user ended the other's wait")
		}
		send(t, b, "m", 0)
		if err := <-ended; err != nil {
			t.Errorf("wait: %v", err)
		}
	})
}

func TestOpenRefusesAnythingButAName(t *testing.T) {
	for url, want := range map[string]string{
		"mem://?size=1":     "size=1",
		"mem://shop?size=1": "size=1",
		"mem://shop/1":      "mem://NAME",
		"mem://u:p@shop":    "mem://NAME",
		"mem://shop#1":      "mem://NAME",
	} {
		_, err := store.Open(t.Context(), url, store.OpenConfig{Logger: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%q): %v, want ErrInvalid with %q", url, err, want)
		}
	}
}

func TestWaitReturnsInTheMillisecondOfTheDueTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		defer s.Close()
		send(t, s, "later", time.Hour)
		send(t, s, "m", 1500*time.Microsecond) // rounded up to 2 ms
		begin := time.Now()
		if err := s.Wait(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited != 2*time.Millisecond {
			t.Errorf("waited %v, want 2ms", waited)
		}
	})
}

func TestWaitBlocksWhileTheQueueIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		defer s.Close()
		send(t, s, "m", time.Minute)
		if err := s.SetPaused(t.Context(), "q", true); err != nil {
			t.Fatal(err)
		}
		woke := make(chan time.Time, 1)
		begin := time.Now()
		go func() {
			if err := s.Wait(context.Background(), "q"); err != nil {
				t.Errorf("wait: %v", err)
			}
			woke <- time.Now()
		}()
		time.Sleep(time.Hour) // of the bubble's fake clock
		send(t, s, "n", 0)
		if err := s.SetPaused(t.Context(), "q", false); err != nil {
			t.Fatal(err)
		}
		if waited := (<-woke).Sub(begin); waited != time.Hour {
			t.Errorf("Wait returned after %v, want 1h, when the queue was resumed", waited)
		}
	})
}

func TestManualClockEndsAWait(t *testing.T) {
	clock := memstore.NewManualClock(time.UnixMilli(1_000_000))
	s := memstore.New(memstore.WithClock(clock))
	defer s.Close()
	send(t, s, "m", time.Hour)
	woke := make(chan error)
	go func() { woke <- s.Wait(t.Context(), "q") }()
	for range 60 {
		clock.Advance(time.Minute)
	}
	if err := <-woke; err != nil {
		t.Fatal(err)
	}
	if got := clock.Now(); !got.Equal(time.UnixMilli(1_000_000).Add(time.Hour)) {
		t.Errorf("clock is at %v, want an hour after its start", got)
	}
}

func TestEndedContextRefusesACall(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := s.Send(ctx, "q", []store.Outgoing{{Message: store.Message{ID: "m"}}}); !errors.Is(err, cause) {
		t.Errorf("Send: %v, want the context's cause", err)
	}
	if has(t, s, "m") {
		t.Error("the refused message was sent")
	}
}
