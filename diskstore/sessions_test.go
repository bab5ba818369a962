package diskstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

func openIn(t *testing.T, fs vfs.FS, clock Clock) *Store {
	t.Helper()
	s, err := Open("later", WithClock(clock), withFS(fs))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRequestIsExecutedOnceAlsoAfterAKill(t *testing.T) {
	storetest.RunRequests(t, func(t *testing.T) (store.Store, func() []store.Store) {
		fs, clock := vfs.NewCrashableMem(), newManualClock()
		opened := func(fs vfs.FS) *Store {
			s := openIn(t, fs, clock)
			t.Cleanup(func() {
				wantSound(t, s)
				s.Close()
			})
			return s
		}
		s := opened(fs)
		return s, sync.OnceValue(func() []store.Store { return []store.Store{s, opened(same(fs))} })
	})
}

func TestEarlierRequestIsRefused(t *testing.T) {
	s := openIn(t, vfs.NewCrashableMem(), newManualClock())
	defer s.Close()
	pause := func(number int64) error {
		return s.SetPaused(store.WithRequest(t.Context(), store.Request{Session: "s:1", Number: number}), "q", true)
	}
	if err := pause(7); err != nil {
		t.Fatal(err)
	}
	if err := pause(6); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an earlier request returns %v", err)
	}
}

func TestRequestsAreForgottenTwoAtATime(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openIn(t, fs, clock)
	call := func(session string) {
		ctx := store.WithRequest(t.Context(), store.Request{Session: session, Number: 1})
		if err := s.SetPaused(ctx, "q", false); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		call(fmt.Sprint(i))
	}
	clock.Advance(rememberRequests + time.Millisecond)
	for i, want := range []int{4, 3, 3, 4} {
		call(fmt.Sprint("new ", i))
		if got := s.requests.byTime.Len(); got != want {
			t.Errorf("after %d calls %d are remembered, want %d", i+1, got, want)
		}
	}
	wantSound(t, s)
	s.Close()
	s = openIn(t, fs, clock)
	defer s.Close()
	if got := s.requests.byTime.Len(); got != 4 {
		t.Errorf("after opening it again %d are remembered, want 4", got)
	}
}

func TestRequestsThatWereLoadedAreInTheOrderOfTheirTime(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openIn(t, fs, clock)
	for _, session := range []string{"z", "m", "a"} {
		ctx := store.WithRequest(t.Context(), store.Request{Session: session, Number: 1})
		if err := s.SetPaused(ctx, "q", false); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Second)
	}
	s.Close()
	s = openIn(t, fs, clock)
	defer s.Close()
	var got string
	for e := s.requests.byTime.Front(); e != nil; e = e.Next() {
		got += e.Value.(*lastRequest).Session
	}
	if got != "zma" {
		t.Errorf("the sessions are %s, want zma", got)
	}
}
