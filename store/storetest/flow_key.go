package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// keyFlowRules are the rules of turns and of limits of keys.
var keyFlowRules = slices.Concat(keySettingRules, overrideRules, keyConcurrencyRules, keyLearningRules,
	keyRateRules, fairRules, []rule{turnsRule}, laneRules, keyWaitRules)

func keyConcurrency(n int) store.Flow { return store.Flow{Key: store.KeyFlow{Concurrency: n}} }

// keyed returns n messages of a key. Their ids begin with the key.
func keyed(key string, n int, changes ...func(*store.Outgoing)) []store.Outgoing {
	msgs := many(n, append(changes, withKey(key))...)
	for i := range msgs {
		msgs[i].ID = fmt.Sprintf("%s%05d", key, i)
	}
	return msgs
}

// keyedIDs returns the ids of the messages from to to of keyed.
func keyedIDs(key string, from, to int) (ids []string) {
	for i := from; i < to; i++ {
		ids = append(ids, fmt.Sprintf("%s%05d", key, i))
	}
	return ids
}

// sort claims nothing until all ready messages are sorted.
func (e *env) sort() {
	e.Helper()
	for range 1000 {
		c, err := e.Store.Claim(e.Context(), e.queue,
			store.ClaimRequest{Max: store.MaxBatch, Ahead: store.MaxBatch, Lease: held})
		e.ok(err)
		e.equal("claimed by a claim that only sorts", len(c.Messages), 0)
		if !c.Unsorted {
			return
		}
	}
	e.Fatal("messages are left unsorted for ever")
}

// perKey returns the ids of claimed messages by their keys, each in the order in which they were claimed.
func perKey(claimed []store.Claimed) map[string][]string {
	all := map[string][]string{}
	for _, c := range claimed {
		all[c.Key] = append(all[c.Key], c.ID)
	}
	return all
}

// takesOf claims what limits allow, until nothing is left that may start, and compares the ids of each key.
func (e *env) takesOf(want map[string][]string) (claimed []store.Claimed) {
	e.Helper()
	for range 1000 {
		c := e.claimWith(store.MaxBatch, held)
		claimed = append(claimed, c.Messages...)
		if !c.More {
			e.equal("claimed by key", perKey(claimed), want)
			e.full()
			return claimed
		}
	}
	e.Fatal("claims never come to an end")
	return nil
}

// takesKey is takesOf messages of one key.
func (e *env) takesKey(key string, ids ...string) []store.Claimed {
	e.Helper()
	return e.takesOf(map[string][]string{key: ids})
}

// states returns all pages of Keys.
func (e *env) states(req store.KeysRequest) (all []store.KeyState) {
	e.Helper()
	for {
		page, err := e.Peer.Keys(e.Context(), e.queue, req)
		e.ok(err)
		if len(page) == 0 {
			return all
		}
		counts := len(page)
		if page[0].Key == "" {
			counts-- // no page could begin behind it
		}
		if counts > req.Limit || page[len(page)-1].Key == "" && req.After != "" {
			e.Fatalf("a page with limit %d has %d keys", req.Limit, len(page))
		}
		for i, s := range page {
			if i > 0 && s.Key <= page[i-1].Key || s.Key < req.After || s.Key == req.After && s.Key != "" {
				e.Fatalf("keys behind %q are not in order: %+v", req.After, page)
			}
		}
		all = append(all, page...)
		if req.After = page[len(page)-1].Key; req.After == "" {
			return all
		}
	}
}

// key returns the state of a key.
func (e *env) key(name string) store.KeyState {
	e.Helper()
	page, err := e.Store.Keys(e.Context(), e.queue, store.KeysRequest{Key: name, Limit: 1})
	e.ok(err)
	if len(page) != 1 || page[0].Key != name {
		e.Fatalf("keys that are %q: %+v", name, page)
	}
	return page[0]
}

// keyCounted checks how many messages of a key count.
func (e *env) keyCounted(name string, n int) {
	e.Helper()
	e.equal("messages that count for "+name, e.key(name).Leased, n)
}

func (e *env) override(key string, o store.KeyOverride) {
	e.Helper()
	e.ok(e.Peer.SetKeyFlow(e.Context(), e.queue, key, o))
}

// overrideOf returns an override of all fields.
func overrideOf(f store.KeyFlow) store.KeyOverride {
	return store.KeyOverride{Concurrency: &f.Concurrency, Rate: &f.Rate, Weight: &f.Weight}
}

// moreKeyFlows are flows with limits of keys, in which each field differs from the first one's.
var moreKeyFlows = []store.Flow{
	{Concurrency: 7, Key: store.KeyFlow{Concurrency: 3, Rate: store.Rate{N: 3, Per: time.Second, Burst: 2}, Weight: 2}},
	{Concurrency: 7, Key: store.KeyFlow{Concurrency: 4, Rate: store.Rate{N: 3, Per: time.Second, Burst: 2}, Weight: 2}},
	{Concurrency: 7, Key: store.KeyFlow{Concurrency: 3, Rate: store.Rate{N: 4, Per: time.Second, Burst: 2}, Weight: 2}},
	{Concurrency: 7, Key: store.KeyFlow{Concurrency: 3, Rate: store.Rate{N: 3, Per: time.Minute, Burst: 2}, Weight: 2}},
	{Concurrency: 7, Key: store.KeyFlow{Concurrency: 3, Rate: store.Rate{N: 3, Per: time.Second, Burst: 3}, Weight: 2}},
	{Concurrency: 7, Key: store.KeyFlow{Concurrency: 3, Rate: store.Rate{N: 3, Per: time.Second, Burst: 2}, Weight: 3}},
	{Concurrency: 7, Key: store.KeyFlow{Concurrency: 3}}, {Concurrency: 7, Fair: true}, {Concurrency: 7}, {Fair: true},
	keyConcurrency(store.MaxConcurrency), {Key: store.KeyFlow{Weight: store.MaxWeight}},
	{Key: store.KeyFlow{Rate: store.Rate{N: store.MaxRate, Per: store.MaxPeriod, Burst: store.MaxRate}}},
	{Key: store.KeyFlow{Rate: store.Rate{N: 3, Per: 7 * time.Microsecond}}}, {},
}

var keySettingRules = []rule{
	{"a flow with limits of keys is kept with the queue until it is changed or the queue is deleted", func(e *env) {
		for _, f := range moreKeyFlows {
			e.limit(f)
			e.equal("exists", e.stats().Exists, true)
			e.equal("flow", e.flow().Flow, f.Normal())
		}
		e.limit(moreKeyFlows[0])
		e.purge(store.Selection{})
		e.ok(e.Peer.SetPaused(e.Context(), e.queue, true))
		e.equal("flow after a purge", e.flow().Flow, moreKeyFlows[0].Normal())
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.equal("flow after a delete", e.flow().Flow, store.Flow{})
		e.equal("exists", e.stats().Exists, false)
	}},
	{"a flow with limits of keys replaces only the former one that the caller names", func(e *env) {
		replace := func(f, former store.Flow) error { return e.Store.SetFlow(e.Context(), e.queue, f, &former) }
		former := moreKeyFlows[0]
		e.is(replace(store.Flow{}, former), store.ErrConflict)
		e.equal("exists", e.stats().Exists, false)
		e.ok(replace(former, store.Flow{}))
		for _, other := range moreKeyFlows[1:] {
			e.is(replace(concurrency(1), other), store.ErrConflict)
		}
		e.equal("flow", e.flow().Flow, former.Normal())
		e.ok(replace(moreKeyFlows[1], former.Normal()))
		e.ok(replace(store.Flow{Fair: true}, e.flow().Flow))
		e.ok(replace(keyConcurrency(1), store.Flow{Key: store.KeyFlow{Weight: 1}})) // a weight implies Fair
		e.ok(replace(store.Flow{}, keyConcurrency(1)))
		e.equal("flow", e.flow().Flow, store.Flow{})
	}},
	{"limits of keys that are not allowed are refused with their error", func(e *env) {
		for _, f := range []store.KeyFlow{
			{Concurrency: -1}, {Concurrency: store.MaxConcurrency + 1}, {Weight: -1}, {Weight: store.MaxWeight + 1},
			{Rate: store.Rate{N: -1, Per: time.Second}}, {Rate: store.Rate{N: 10, Per: 9 * time.Microsecond}},
			{Rate: store.Rate{N: 1, Per: store.MaxPeriod, Burst: 2}},
		} {
			e.refusesFlow(e.queue, store.Flow{Key: f})
		}
		e.equal("exists", e.stats().Exists, false)
		for _, queue := range []string{"topic:" + e.queue, "schedules:"} {
			e.refusesFlow(queue, store.Flow{Fair: true})
		}
	}},
	{"limits of keys and turns change no messages", func(e *env) {
		c := e.inEveryState()
		e.send(keyed("k", 3, group("g"))...)
		e.send(keyed("l", 3, delay(-time.Second))...)
		look := func() (text string) {
			for _, state := range allStates {
				for _, info := range e.list(store.ListRequest{State: state, Limit: 3}) {
					text += describe(&info) + "\n" + describe(e.get(info.ID)) + "\n"
				}
			}
			for _, info := range e.list(store.ListRequest{Group: "g", Limit: 2}) {
				text += describe(&info) + "\n"
			}
			now := e.now()
			bounds := []time.Time{now.Add(-time.Hour), now, now.Add(time.Hour)}
			s := e.stats()
			return text + fmt.Sprint(e.histogram(bounds), ms(s.NextDue), s.Ready, s.Scheduled)
		}
		e.advance(2 * time.Second)
		before := look()
		for _, f := range append(moreKeyFlows, keyConcurrency(1), store.Flow{}) {
			e.limit(f)
			e.equal("messages", look(), before)
			if f.Normal().Fair {
				e.sort()
			}
			e.equal("messages that are sorted", look(), before)
			e.count(1, 7, 1, 1)
		}
		e.ack(c)
	}},
	{"a queue without limits of keys has no keys", func(e *env) {
		e.send(keyed("k", 3)...)
		for _, f := range []store.Flow{{}, concurrency(1)} {
			e.limit(f)
			for _, req := range []store.KeysRequest{{Limit: 5}, {Limit: 5, Key: "k"}, {Limit: 5, Overridden: true}} {
				e.equal("keys", e.states(req), []store.KeyState(nil))
			}
			e.equal("counts", e.flow().Keys, store.KeyCounts{})
		}
		e.equal("claimed", len(e.claim(5)), 1)
	}},
	{"a request for keys that is not allowed is refused", func(e *env) {
		e.limit(store.Flow{Fair: true})
		for _, req := range []store.KeysRequest{
			{}, {Limit: store.MaxKeysPage + 1}, {Limit: 1, Key: "k", Overridden: true}, {Limit: 1, Key: "a/b"},
			{Limit: 1, After: "a\x00"},
		} {
			_, err := e.Store.Keys(e.Context(), e.queue, req)
			e.is(err, store.ErrInvalid)
		}
	}},
	{"keys that wait are listed in order, with their states", func(e *env) {
		e.limit(keyConcurrency(1))
		now := e.now()
		e.send(keyed("b", 3)...)
		e.send(keyed("a", 2, at(now.Add(-time.Minute)))...)
		e.send(message("none", at(now.Add(-time.Hour))), message("later", withKey("z"), delay(time.Hour)))
		e.equal("keys before a claim", e.states(store.KeysRequest{Limit: 2}), []store.KeyState(nil))
		e.sort()
		for _, limit := range []int{1, 2, 3, 500} {
			var lines []string
			for _, s := range e.states(store.KeysRequest{Limit: limit}) {
				e.at("now", s.Now, now)
				e.equal("next", s.Next.IsZero(), true)
				lines = append(lines, fmt.Sprintf("%q %d since %d, %d leased of %d, weight %d", s.Key, s.Waiting,
					ms(now)-ms(s.Since), s.Leased, s.Concurrency, s.Weight))
			}
			e.equal("keys", strings.Join(lines, "\n"), `"" 1 since 3600000, 0 leased of 0, weight 1
"a" 2 since 60000, 0 leased of 1, weight 1
"b" 3 since 0, 0 leased of 1, weight 1`)
		}
		e.equal("counts", e.flow().Keys, store.KeyCounts{Waiting: 3})
		e.takesOf(map[string][]string{"": {"none"}, "a": {"a00000"}, "b": {"b00000"}})
		e.equal("counts", e.flow().Keys, store.KeyCounts{Waiting: 2, Full: 2})
		for key, waiting := range map[string]int64{"a": 1, "b": 2, "z": 0, "unknown": 0} {
			s := e.key(key)
			e.equal("waiting of "+key, s.Waiting, waiting)
			e.equal("since", s.Since.IsZero(), waiting == 0)
			e.equal("full", s.Full(), waiting > 0)
			e.equal("concurrency", s.Concurrency, 1)
		}
		e.equal("keys that are behind their own", len(e.states(store.KeysRequest{Key: "a", After: "a", Limit: 1})), 0)
	}},
}
