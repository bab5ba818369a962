package redisstore

import (
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

var urgent = store.Flow{Urgency: true}

// sendAs sends messages of a key with an urgency, a ms apart, and lets another ms pass.
func (q *limitedQueue) sendAs(u store.Urgency, key string, ids ...string) {
	q.Helper()
	for _, id := range ids {
		m := store.Message{ID: id, Key: key, Urgency: u}
		_, err := q.s.Send(q.Context(), q.queue, []store.Outgoing{{Message: m}})
		q.ok(err)
		q.advance(time.Millisecond)
	}
}

// turns checks which keys are in the turns of normal, high and low urgency, and that the state of keys is sound.
func (q *limitedQueue) turns(normal, high, low []string) {
	q.Helper()
	for name, want := range map[string][]string{"turns": normal, "turns_high": high, "turns_low": low} {
		got, err := q.rdb.ZRange(q.Context(), q.key(name), 0, -1).Result()
		q.ok(err)
		if slices.Sort(got); !slices.Equal(got, want) {
			q.Errorf("keys in %s: %q, want %q", name, got, want)
		}
	}
	q.noIssues()
}

func TestAKeyWithSeveralUrgenciesIsListedOnce(t *testing.T) {
	q := newLimitedQueue(t, "keys of urgencies", urgent)
	began := q.flow().Now
	q.sendAs(store.UrgencyLow, "b", "b-low")
	q.sendAs(store.UrgencyNormal, "b", "b1", "b2")
	q.sendAs(store.UrgencyHigh, "b", "b-high")
	q.sendAs(store.UrgencyLow, "b!", "next")
	q.sendAs(store.UrgencyHigh, "", "none")
	q.sendAs(store.UrgencyHigh, "a", "a-high")
	q.sortReady()
	q.turns([]string{"b"}, []string{"", "a", "b"}, []string{"b", "b!"})
	if f := q.flow(); f.Keys != (store.KeyCounts{Waiting: 6}) || !f.Urgency {
		t.Errorf("%+v", f)
	}
	var got []store.KeyState
	for after := ""; ; {
		page, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Limit: 1, After: after})
		q.ok(err)
		if len(page) == 0 {
			break
		}
		got, after = append(got, page...), page[len(page)-1].Key
	}
	for i, want := range []struct {
		key     string
		waiting int64
		since   time.Duration
	}{{"", 1, 5}, {"a", 1, 6}, {"b", 4, 0}, {"b!", 1, 4}} {
		since := began.Truncate(time.Millisecond).Add(want.since * time.Millisecond)
		if len(got) != 4 || got[i].Key != want.key || got[i].Waiting != want.waiting || !got[i].Since.Equal(since) {
			t.Fatalf("%+v\nwant %+v since %v", got, want, since)
		}
	}
	one, err := q.s.Keys(t.Context(), q.queue, store.KeysRequest{Limit: 1, Key: "b"})
	if q.ok(err); len(one) != 1 || one[0].Waiting != 4 || !one[0].Since.Equal(began.Truncate(time.Millisecond)) {
		t.Errorf("%+v", one)
	}
}

// A message that leaves takes its key out of the turns of its urgency, and only of these.
func TestRemovedMessagesTakeTheirKeysOutOfTheTurnsOfTheirUrgency(t *testing.T) {
	for name, remove := range map[string]func(q *limitedQueue, id string) error{
		"cancel": func(q *limitedQueue, id string) error {
			_, err := q.s.Cancel(q.Context(), q.queue, store.CancelRequest{IDs: []string{id}})
			return err
		},
		"reschedule": func(q *limitedQueue, id string) error {
			_, err := q.s.Reschedule(q.Context(), q.queue, []string{id}, store.Due{Delay: time.Hour})
			return err
		},
		"remove": func(q *limitedQueue, id string) error {
			infos, err := q.s.Get(q.Context(), q.queue, []string{id})
			q.ok(err)
			_, err = q.s.Remove(q.Context(), q.queue, []store.Info{*infos[0]})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newLimitedQueue(t, "leaving "+name, urgent)
			q.sendAs(store.UrgencyNormal, "k", "k1")
			q.sendAs(store.UrgencyHigh, "k", "k2", "k3")
			q.sendAs(store.UrgencyLow, "k", "k4")
			q.sortReady()
			k := []string{"k"}
			q.turns(k, k, k)
			q.set(store.Flow{Fair: true}) // the messages stay where they are
			q.ok(remove(q, "k3"))
			q.turns(k, k, k)
			q.ok(remove(q, "k2"))
			q.turns(k, nil, k)
			q.ok(remove(q, "k1"))
			q.turns(nil, nil, k)
			q.ok(remove(q, "k4"))
			q.turns(nil, nil, nil)
			if n := q.entries("lanes"); n != 0 {
				t.Errorf("%d entries are left", n)
			}
		})
	}
}

// A key with an order waits with the urgency of its next message, whichever call changes which one that is.
func TestAKeyWithAnOrderWaitsWithTheUrgencyOfItsNextMessage(t *testing.T) {
	q := newLimitedQueue(t, "order of urgencies", store.Flow{Urgency: true, Key: store.KeyFlow{Order: store.OrderHalt}})
	k := []string{"k"}
	cancel := func(id string) {
		t.Helper()
		_, err := q.s.Cancel(t.Context(), q.queue, store.CancelRequest{IDs: []string{id}})
		q.ok(err)
	}
	q.sendAs(store.UrgencyNormal, "k", "a")
	q.sendAs(store.UrgencyLow, "k", "b")
	q.sendAs(store.UrgencyHigh, "k", "c", "d")
	q.sendAs(store.UrgencyNormal, "k", "e", "f")
	q.turns(k, nil, nil)
	cancel("a")
	q.turns(nil, nil, k)
	cancel("b")
	q.turns(nil, k, nil)
	q.ok(q.settle(q.claimOne("c").Receipt, store.Bury))
	q.turns(nil, nil, nil) // halted
	cancel("d")
	q.ok(q.s.ResumeKey(t.Context(), q.queue, "k"))
	q.turns(k, nil, nil)
	q.ok(q.settle(q.claimOne("e").Receipt, store.Bury))
	_, err := q.s.Replay(t.Context(), q.queue, store.Selection{State: store.StateDead, IDs: []string{"e"}}, store.Due{})
	q.ok(err)
	q.sortReady()
	if q.turns(k, nil, nil); q.holders() != 1 {
		t.Errorf("%d messages hold keys", q.holders())
	}
	cancel("e") // the ready holder
	q.turns(k, nil, nil)
	_, err = q.s.Purge(t.Context(), q.queue, store.Selection{State: store.StateReady})
	q.ok(err)
	q.turns(nil, nil, nil)
}

// A purge of everything leaves no turns, also of many keys.
func TestPurgeTakesKeysOfAllUrgenciesOutOfTheirTurns(t *testing.T) {
	q := newLimitedQueue(t, "purge of urgencies", urgent)
	for _, u := range urgencies {
		q.sendAs(u, "k", "k"+string(u))
	}
	q.sortReady()
	purgeAll(q)
	q.turns(nil, nil, nil)
	if f := q.flow(); f.Keys != (store.KeyCounts{}) {
		t.Errorf("%+v", f.Keys)
	}
	q.empty()
}
