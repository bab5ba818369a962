package redisstore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// A message may have entries in several lanes of its key: one that was purged and sent again at the same due time has
// the one of its former urgency too.
func (q *limitedQueue) sortTwice(key string) {
	q.Helper()
	q.sendAs(store.UrgencyLow, key, "x")
	q.sortReady()
	entries, err := q.rdb.ZRange(q.Context(), q.key("lanes"), 0, -1).Result()
	if q.ok(err); len(entries) != 1 {
		q.Fatalf("entries %q", entries)
	}
	q.ok(q.rdb.ZAdd(q.Context(), q.key("lanes"), redis.Z{Member: key + "\x01" + entries[0][len(key)+1:]}).Err())
	q.ok(q.rdb.ZAdd(q.Context(), q.key("turns_high"), redis.Z{Member: key}).Err())
}

func TestAMessageInTwoLanesOfItsKeyStartsOnce(t *testing.T) {
	q := newLimitedQueue(t, "twice urgent", urgent)
	q.sortTwice("k")
	q.set(store.Flow{Fair: true}) // the message is of neither lane
	msgs := claim(t, q.s, q.queue, 10, time.Minute).Messages
	if len(msgs) != 1 {
		t.Errorf("%d messages started", len(msgs))
	}
	q.leased(1)
	q.turns(nil, nil, nil)
	if n := q.entries("lanes"); n > 0 {
		t.Errorf("%d entries are left", n)
	}
	q.ack(msgs)
	q.empty()
}

// The lane of its urgency counts, also when a claim has read the other one first.
func TestAMessageInTwoLanesOfItsKeyKeepsItsUrgency(t *testing.T) {
	order := store.Flow{Urgency: true, Key: store.KeyFlow{Order: store.OrderContinue}}
	for name, c := range map[string]struct {
		flow store.Flow
		key  string
	}{
		"no order": {urgent, "k"}, "no key": {urgent, ""}, "no key in an order": {order, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := newLimitedQueue(t, "twice low, "+name, c.flow)
			q.sortTwice(c.key)
			msgs := claim(t, q.s, q.queue, 10, time.Minute).Messages
			if len(msgs) == 0 {
				q.turns(nil, nil, []string{c.key})
				msgs = claim(t, q.s, q.queue, 10, time.Minute).Messages
			}
			if len(msgs) != 1 {
				t.Errorf("%d messages started", len(msgs))
			}
			if at := q.meta("flow_pass_low"); at == "0" || at == "" {
				t.Errorf("clock of low urgency is %q", at)
			}
			q.leased(1)
			q.ack(msgs)
			q.empty()
		})
	}
}

// The end of an order takes steps. Each step that meets a key lets the former holder enter the lane of its urgency,
// whatever else the key has.
func TestHoldersKeepTheirUrgencyWhenTheOrderIsRemoved(t *testing.T) {
	const n = 800
	for name, before := range map[string]bool{"others wait": true, "others are sent in between": false} {
		for _, u := range []store.Urgency{store.UrgencyHigh, store.UrgencyLow} {
			t.Run(name+", "+string(u), func(t *testing.T) {
				q := newLimitedQueue(t, "former holders, "+name+string(u),
					store.Flow{Urgency: true, Key: store.KeyFlow{Order: store.OrderContinue}})
				q.holdAs(u, "k", n, store.Snooze)
				q.advance(time.Hour)
				for q.sortReady().Unsorted {
				}
				if before {
					q.sendMany(1, numbered("k", n)...)
				}
				q.setInSteps(urgent)
				if q.holders() == 0 {
					t.Error("one step ended all holds")
				}
				if !before {
					q.sendMany(1, numbered("k", n)...)
				}
				for q.sortReady().Unsorted {
				}
				q.set(urgent)
				class := string(rune(slices.Index(urgencies, u)))
				entries, err := q.rdb.ZRange(t.Context(), q.key("lanes"), 0, -1).Result()
				if q.ok(err); len(entries) != 2*n || q.holders() != 0 {
					t.Errorf("%d entries of lanes, %d holders", len(entries), q.holders())
				}
				wrong := 0
				for _, entry := range entries {
					if strings.Contains(entry, "of-") != strings.Contains(entry, class) {
						wrong++
					}
				}
				if wrong > 0 {
					t.Errorf("%d messages are in lanes of other urgencies", wrong)
				}
				keys := [3][]string{numbered("k", n)}
				keys[slices.Index(urgencies, u)] = keys[0]
				q.turns(keys[0], keys[1], keys[2])
			})
		}
	}
}

func TestARepairLetsAKeyWaitWithTheUrgencyOfItsReadyHolder(t *testing.T) {
	q := newLimitedQueue(t, "lost turn", store.Flow{Urgency: true, Key: store.KeyFlow{Order: store.OrderContinue}})
	q.holdAs(store.UrgencyHigh, "k", 2, store.Snooze)
	q.advance(time.Hour)
	q.sortReady()
	keys := numbered("k", 2)
	q.sendMany(1, keys[1]) // another one of the key is in a lane
	q.turns(nil, keys, nil)
	q.ok(q.rdb.Del(t.Context(), q.key("turns_high")).Err())
	if found := q.issues(true); len(found) != 1 || !strings.Contains(found[0], "messages and no turn") {
		t.Errorf("found %q", found)
	}
	q.turns(nil, keys, nil)
}
