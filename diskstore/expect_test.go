package diskstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

func TestExpectRefuses(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	fairSubQueues(t, s, halting)
	moveKeys(t, s, "k")
	for _, c := range []struct {
		expected store.Expected
		want     error
	}{
		{store.Expected{Keys: []string{""}, Last: 1}, store.ErrInvalid},
		{store.Expected{Keys: []string{"k", "a/b"}, Last: 1}, store.ErrInvalid},
		{store.Expected{Last: maxPlace + 1}, store.ErrInvalid},
		{store.Expected{From: subA, Keys: []string{"k"}, Last: 1}, store.ErrConflict},
	} {
		if last, err := s.Expect(t.Context(), subB, c.expected); last != 0 || !errors.Is(err, c.want) {
			t.Errorf("%+v returns %d, %v", c.expected, last, err)
		}
	}
	if last := expect(t, s, store.Expected{From: subA, Number: 1, Last: -1}); last != 0 {
		t.Errorf("the last place is %d", last)
	}
	if _, err := s.Depart(t.Context(), subA, store.Departure{To: subB, Keys: []string{"a/b"}}); !errors.Is(err,
		store.ErrInvalid) {
		t.Errorf("the departure returns %v", err)
	}
	sendOf(t, s, subB, "k", "x")
	wantStarts(t, s, subB, "x")
	if last := expect(t, s, store.Expected{Last: maxPlace}); last != maxPlace {
		t.Errorf("the last place is %d", last)
	}
	sendOf(t, s, subB, "k", "y")
	wantStarts(t, s, subB, "y")
	wantSound(t, s)
}

func TestExpectIsConfirmed(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	s := openOn(t, fs, clock, SyncEvery(time.Hour))
	defer s.Close()
	fairSubQueues(t, s, halting)
	sendOf(t, s, subB, "k", "x")
	last := clock.Now().Add(time.Minute).UnixMicro()
	expect(t, s, store.Expected{From: subA, Keys: []string{"k"}, Last: last})
	after := openOn(t, synced(fs), clock)
	defer after.Close()
	wantSound(t, after)
	wantStarts(t, after, subB)
	if got := expect(t, after, store.Expected{}); got != last {
		t.Errorf("the last place is %d, want %d", got, last)
	}
}

func TestExpectedKeysStayExpected(t *testing.T) {
	for _, way := range []string{"reopened", "recovered", "backup"} {
		t.Run(way, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			fairSubQueues(t, s, halting)
			sendOf(t, s, subB, "held", "h0", "h1")
			settleIn(t, s, subB, claimIn(t, s, subB)[0], store.Settlement{Action: store.Nack})
			sendOf(t, s, subB, "k", "x", "y")
			sendOf(t, s, subB, "free", "z")
			last := clock.Now().Add(time.Minute).UnixMicro()
			expect(t, s, store.Expected{From: subA, Keys: []string{"k", "idle", "held"}, Last: last})
			wantSound(t, s)
			s = others(s, fs, clock)[way](t)
			defer func() { s.Close() }()
			wantSound(t, s)
			if got := expect(t, s, store.Expected{From: subA}); got != last {
				t.Errorf("the last place is %d, want %d", got, last)
			}
			wantStarts(t, s, subB, "z")
			if got := stateIn(t, s, subB, "held"); got.Holder != "h0" {
				t.Errorf("the held key is %+v", got)
			}
			moveKeys(t, s, "k")
			wantStarts(t, s, subB, "x", "y")
			sendOf(t, s, subB, "idle", "i")
			wantStarts(t, s, subB)
			wantSound(t, s)
			expect(t, s, store.Expected{From: subA, Number: 1, None: true, Keys: []string{"held"}})
			wantStarts(t, s, subB, "i")
			expect(t, s, store.Expected{From: subA, Number: 1, None: true})
			wantStarts(t, s, subB, "h0", "h1")
			wantSound(t, s)
		})
	}
}

func TestOtherFlowsKeepExpectedKeys(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	defer func() { s.Close() }()
	fairSubQueues(t, s, halting)
	expect(t, s, store.Expected{Keys: []string{"k"}})
	for _, f := range []store.Flow{{Key: store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Hour}}}, {Fair: true}} {
		try(t, s.SetFlow(t.Context(), subB, f, nil))
		execute(t, s, func(t *tx) { t.resetLanes(s.queues[subB]) })
		sendOf(t, s, subB, "k", "x")
		wantStarts(t, s, subB)
		wantSound(t, s)
		s.Close()
		s = openOn(t, fs, clock)
		wantStarts(t, s, subB)
		wantSound(t, s)
	}
	try(t, s.SetFlow(t.Context(), subB, store.Flow{}, nil))
	wantStarts(t, s, subB, "x")
	wantSound(t, s)
}

func TestCheckFindsDamageOfExpectedKeys(t *testing.T) {
	for name, c := range map[string]struct {
		check  string
		loaded string // after a reopen
		change func(value []byte) []byte
	}{
		"another bit": {"limits", "limits", func(v []byte) []byte { return append(v[:len(v)-1], 32) }},
		"no bit":      {"limits", "limits", func(v []byte) []byte { return append(v[:len(v)-1], 0) }},
		"dead without a hold": {"limits", "limits", func([]byte) []byte {
			return codec.Append(nil, &turns.State{Dead: true, Expected: true})
		}},
		"no state": {"limits", "limits", func(v []byte) []byte { return v[:len(v)-1] }},
		"not expected": {"holds counters", "holds", func([]byte) []byte {
			return codec.Append(nil, &turns.State{Holder: "x"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			fairSubQueues(t, s, halting)
			expect(t, s, store.Expected{Keys: []string{"k"}})
			wantSound(t, s)
			r := raw{t, s, s.queues[subB].number}
			r.set(r.id(kindKeyState, "k"), c.change(r.get(r.id(kindKeyState, "k"))))
			var got []string
			for _, f := range issuesOf(checked(t, s)) {
				got = append(got, f.Check)
			}
			if fmt.Sprint(got) != "["+c.check+"]" && fmt.Sprint(got) != "["+c.check+" counters]" {
				t.Errorf("found %v, want %s", got, c.check)
			}
			s.Close()
			s = openOn(t, fs, clock)
			wantIssues(t, issuesOf(checked(t, s)), c.loaded)
			s.Close()
			s = recoveredStore(t, fs, clock)
			defer s.Close()
			wantSound(t, s)
		})
	}
}
