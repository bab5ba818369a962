package diskstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

var withUrgency = store.Flow{Urgency: true}

// sendUrgency sends messages of a key, or without one, that are due at once.
func sendUrgency(t testing.TB, s store.Store, u store.Urgency, key string, ids ...string) {
	t.Helper()
	var msgs []store.Outgoing
	for _, id := range ids {
		msgs = append(msgs, store.Outgoing{Message: store.Message{ID: id, Key: key, Urgency: u}})
	}
	if _, err := s.Send(t.Context(), "q", msgs); err != nil {
		t.Fatal(err)
	}
}

// A message keeps the urgency for which it was sorted, also when the flow loses or gets Urgency and the store is opened
// again, recovered or restored from a backup; so does one that gets its urgency by an edit. Once the queue was not Fair
// in between, it does not.
func TestSortedMessagesKeepTheirUrgency(t *testing.T) {
	for way, again := range map[string]func(t *testing.T, s *Store, fs vfs.FS, clock Clock) *Store{
		"reopen": func(t *testing.T, s *Store, fs vfs.FS, clock Clock) *Store {
			try(t, s.Close())
			return openOn(t, fs, clock)
		},
		"recover": func(t *testing.T, s *Store, fs vfs.FS, clock Clock) *Store {
			try(t, s.Close())
			return recoveredStore(t, fs, clock)
		},
		"backup": func(t *testing.T, s *Store, fs vfs.FS, clock Clock) *Store {
			try(t, s.Backup(t.Context(), "backup"))
			try(t, s.Close())
			s, err := Open("backup", withFS(fs), WithClock(clock))
			try(t, err)
			return s
		},
	} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/plain=%v", way, plain), func(t *testing.T) {
				fs, clock := vfs.NewMem(), newManualClock()
				s := openOn(t, fs, clock)
				defer func() { s.Close() }()
				limit(t, s, withUrgency)
				sendUrgency(t, s, store.UrgencyHigh, "", "a", "d")
				sendUrgency(t, s, store.UrgencyLow, "", "b")
				sendUrgency(t, s, store.UrgencyNormal, "", "c")
				later := store.Outgoing{Message: store.Message{ID: "e", Urgency: store.UrgencyHigh},
					Due: store.Due{Delay: time.Second}}
				_, err := s.Send(t.Context(), "q", []store.Outgoing{later})
				try(t, err)
				wantIDs(t, claimedIDs(t, s, 1), "a")
				edit := store.Outgoing{Message: store.Message{ID: "c", Urgency: store.UrgencyHigh},
					OnDuplicate: store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: true}}
				_, err = s.Send(t.Context(), "q", []store.Outgoing{edit})
				try(t, err)
				if plain {
					limit(t, s, store.Flow{})
				}
				limit(t, s, store.Flow{Fair: true})
				wantSound(t, s)
				s = again(t, s, fs, clock)
				wantSound(t, s)
				clock.Advance(time.Second)
				want := []string{"c", "d", "a", "e", "b"}
				if plain {
					want = []string{"a", "b", "c", "d", "e"}
				}
				if way != "recover" { // there its lease has ended
					want = slices.DeleteFunc(want, func(id string) bool { return id == "a" })
				}
				var got []string
				for range want {
					got = append(got, claimedIDs(t, s, 1)...)
				}
				wantIDs(t, got, want...)
				wantSound(t, s)
			})
		}
	}
}

// The starts that a class has to wait for are counted over a reopen, so messages of low urgency start nevertheless.
func TestTurnsOfUrgenciesGoOnAfterAReopen(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s, mem := openOn(t, fs, clock), memstore.New(memstore.WithClock(clock))
	defer func() { s.Close() }()
	defer mem.Close()
	for _, s := range []store.Store{s, mem} {
		try(t, s.SetFlow(t.Context(), "q", withUrgency, nil))
		for _, u := range urgencies {
			var ids []string
			for i := range 200 {
				ids = append(ids, fmt.Sprintf("%s%03d", u, i))
			}
			sendUrgency(t, s, u, "", ids...)
		}
	}
	low := 0
	for i := range 150 {
		if i%13 == 12 {
			wantSound(t, s)
			s.Close()
			s = openOn(t, fs, clock)
			wantSound(t, s)
		}
		got, want := claimUpTo(t, s, 1)[0], store.Claimed{}
		c, err := mem.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
		try(t, err)
		if want = c.Messages[0]; got.ID != want.ID {
			t.Fatalf("start %d is %s, want %s", i, got.ID, want.ID)
		}
		if got.Urgency == store.UrgencyLow {
			low++
		}
	}
	if low != 2 {
		t.Errorf("%d of 150 starts are of low urgency, want 2", low)
	}
}

// TestUrgenciesAreKeptAfterACrash crashes at every write. Each disk has the classes, the counts of starts and the
// leases of one moment between two calls, and the moments come in their order.
func TestUrgenciesAreKeptAfterACrash(t *testing.T) {
	clock := newManualClock()
	c := newCrashPoints(vfs.NewCrashableMem())
	s := openOn(t, c, clock, withMemTable(64<<10))
	moment := func(s *Store) (text string) {
		execute(t, s, func(t *tx) {
			try := func(err error) {
				if err != nil {
					text += err.Error()
				}
			}
			try(t.flush())
			q := t.s.queues["q"]
			text = fmt.Sprint(q.flow.Urgency, q.flow.Passed, len(q.held))
			var err error
			for e, value := range t.each(&err, q, &q.due, entry{}, lastTime) {
				text += fmt.Sprint(" ", e.id, dueRecord(e, value).rank.class&urgencyBits)
			}
			try(err)
		})
		return text
	}
	limit(t, s, withUrgency)
	moments := []string{moment(s)}
	c.take(func() {
		step := func(call func()) {
			call()
			moments = append(moments, moment(s))
		}
		for i := range 12 {
			for j, u := range urgencies {
				step(func() { sendUrgency(t, s, u, "", fmt.Sprint("m", i, "-", j)) })
			}
			step(func() { claimUpTo(t, s, 1) })
			if i%5 == 4 {
				step(func() { limit(t, s, store.Flow{Fair: true}) })
				step(func() { claimUpTo(t, s, 1) })
				step(func() { limit(t, s, withUrgency) })
			}
		}
	})
	s.Close()
	last, different := 0, map[string]bool{}
	for i, fs := range c.left {
		s := openOn(t, fs, clock)
		got := moment(s)
		at := slices.Index(moments, got)
		if at < 0 || i%2 == 0 && at < last {
			t.Errorf("crash before %s: the disk is that of moment %d, %s, after %d", c.ops[i], at, got, last)
		}
		if i%2 == 0 { // without anything that was not synced
			last = at
		}
		different[got] = true
		wantSound(t, s)
		s.Close()
	}
	if len(different) < 20 {
		t.Errorf("the crashes left %d different disks, want more", len(different))
	}
}

func TestCheckFindsWrongClasses(t *testing.T) {
	const lost = `sorted for urgency "high" is 1 instead of 2`
	for name, c := range map[string]struct {
		live, text, loaded string // the checks that fail while the store is open, with a text, and after a reopen
		damage             func(r raw, key []byte)
	}{
		"lost": {"counters", lost, "", func(r raw, key []byte) { r.set(key, nil) }},
		"another": {"counters", lost, "", func(r raw, key []byte) {
			class := class(r.s.queues["q"].flow.Keyed)&^urgencyBits | 1
			r.set(key, binary.BigEndian.AppendUint16([]byte{dueClassed}, uint16(class)))
		}},
		"none": {"keys counters", lost, "keys", func(r raw, key []byte) { r.set(key, []byte{dueClassed, 1, 4}) }},
		"cut":  {"keys counters", lost, "keys", func(r raw, key []byte) { r.set(key, []byte{dueClassed, 1}) }},
		"starts": {"counters", "passed low urgency is 5 instead of 1", "", func(r raw, _ []byte) {
			r.meta(func(m *meta) { m.Flow.Passed.Low = 5 })
		}},
		"no starts": {"counters", "cannot be read", "counters", func(r raw, _ []byte) {
			r.meta(func(m *meta) { m.Flow.Passed.Low = -5 })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fs, clock := vfs.NewMem(), newManualClock()
			s := openOn(t, fs, clock)
			defer func() { s.Close() }()
			limit(t, s, withUrgency)
			sendUrgency(t, s, store.UrgencyHigh, "", "a", "b", "c")
			sendUrgency(t, s, store.UrgencyLow, "", "d")
			wantIDs(t, claimedIDs(t, s, 1), "a")
			wantSound(t, s)
			r := raw{t, s, s.queues["q"].number}
			c.damage(r, r.time(kindDue, r.due("b"), "b"))
			issues := issuesOf(checked(t, s))
			if wantIssues(t, issues, c.live); !strings.Contains(fmt.Sprint(issues), c.text) {
				t.Errorf("check reports %+v, want %q", issues, c.text)
			}
			s.Close()
			s = openOn(t, fs, clock)
			wantIssues(t, issuesOf(checked(t, s)), c.loaded)
			s.Close()
			s = recoveredStore(t, fs, clock)
			wantSound(t, s)
			claimUpTo(t, s, 9)
			wantSound(t, s)
		})
	}
}

// A send with an urgency that the queue does not take is refused whole, and neither the queue nor the key of a Once is
// left behind. A repetition of a send has its result, whatever the flow is by then.
func TestRefusedUrgenciesLeaveNothingBehind(t *testing.T) {
	s := openOn(t, vfs.NewMem(), newManualClock())
	defer s.Close()
	send := func(number int64) error {
		ctx := store.WithRequest(t.Context(), store.Request{Session: "session", Number: number})
		_, err := s.Send(ctx, "q", []store.Outgoing{{Message: store.Message{ID: "a"}},
			{Message: store.Message{ID: "b", Urgency: store.UrgencyLow}}})
		return err
	}
	for i, f := range []store.Flow{{}, {}, {Fair: true}} {
		if i > 0 { // else there is no queue
			limit(t, s, f)
		}
		if err := send(1); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("send returns %v", err)
		}
		once := store.Outgoing{Message: store.Message{ID: "c", Urgency: store.UrgencyHigh},
			Once: &store.Once{Key: string(make([]byte, store.OnceSize)), Fingerprint: string(make([]byte, store.OnceSize))}}
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{once}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("send with a Once returns %v", err)
		}
		execute(t, s, func(tx *tx) {
			if q := s.queues["q"]; q != nil && (q.due.n > 0 || q.forget.n > 0) {
				t.Errorf("%d messages and %d remembered ids are left behind", q.due.n, q.forget.n)
			}
		})
	}
	limit(t, s, withUrgency)
	try(t, send(2))
	limit(t, s, store.Flow{})
	try(t, send(2))
}
