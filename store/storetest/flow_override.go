package storetest

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

// overrides returns the keys with an override, and in what they differ.
func (e *env) overrides() (text string) {
	e.Helper()
	for _, s := range e.states(store.KeysRequest{Overridden: true, Limit: 2}) {
		text += s.Key
		if s.Override == nil {
			e.Fatalf("key %q is listed without its override", s.Key)
		}
		if s.Override.Concurrency != nil {
			text += fmt.Sprint(" concurrency ", *s.Override.Concurrency)
		}
		if s.Override.Rate != nil {
			text += fmt.Sprintf(" rate %q", s.Override.Rate.Normal())
		}
		if s.Override.Weight != nil {
			text += fmt.Sprint(" weight ", *s.Override.Weight)
		}
		text += "\n"
	}
	return text
}

// refusesOverride checks that SetKeyFlow returns an ErrInvalid with the text of want.
func (e *env) refusesOverride(queue, key string, o store.KeyOverride, want error) {
	e.Helper()
	for _, s := range []store.Store{e.Store, e.Peer} {
		err := s.SetKeyFlow(e.Context(), queue, key, o)
		e.is(err, store.ErrInvalid)
		if !strings.Contains(err.Error(), want.Error()) {
			e.Fatalf("override %+v of %q is refused with %q, want %q", o, key, err, want)
		}
	}
}

var overrideRules = []rule{
	{"an override is kept until it is changed or removed", func(e *env) {
		limits := store.KeyFlow{Concurrency: 5, Rate: store.Rate{N: 9, Per: time.Second, Burst: 3}, Weight: 4}
		e.limit(store.Flow{Concurrency: 100, Key: limits})
		none, two, weight, rate := 0, 2, 7, store.Rate{N: 1, Per: time.Hour}
		for _, o := range []store.KeyOverride{
			{Concurrency: &two}, {Concurrency: &none}, {Rate: &rate}, {Rate: &store.Rate{}}, {Weight: &weight},
			{Concurrency: &two, Rate: &rate, Weight: &weight}, {Rate: &rate, Weight: &weight},
		} {
			e.override("k", o)
			s := e.key("k")
			e.equal("limits in force", s.KeyFlow, o.Of(limits))
			if s.Override == nil {
				e.Fatalf("key has no override: %+v", s)
			}
			e.equal("fields", [3]bool{s.Override.Concurrency != nil, s.Override.Rate != nil, s.Override.Weight != nil},
				[3]bool{o.Concurrency != nil, o.Rate != nil, o.Weight != nil})
			e.equal("limits of another key", e.key("l").KeyFlow, limits)
		}
		limits.Concurrency = 6
		e.limit(store.Flow{Key: limits})
		e.equal("inherited", e.key("k").Concurrency, 6)
		e.equal("weight", e.key("k").Weight, 7)
		e.override("k", store.KeyOverride{})
		e.equal("override", e.key("k").Override, (*store.KeyOverride)(nil))
		e.equal("limits", e.key("k").KeyFlow, limits)
		e.override("never had one", store.KeyOverride{})
		e.equal("overrides", e.overrides(), "")
		e.equal("flow", e.flow().Flow, store.Flow{Key: limits}.Normal())
	}},
	{"keys with an override are listed in order, whether or not they wait", func(e *env) {
		e.limit(store.Flow{Fair: true})
		e.send(keyed("b", 1)...)
		one, ten, rate := 1, 10, store.Rate{N: 3, Per: time.Second}
		e.override("c", store.KeyOverride{Concurrency: &one})
		e.override("a b:c{d}", store.KeyOverride{Concurrency: &ten, Weight: &ten})
		e.override("ÿ", store.KeyOverride{Rate: &rate, Weight: &one})
		e.override("b", store.KeyOverride{Rate: &store.Rate{}})
		want := "a b:c{d} concurrency 10 weight 10\nb rate \"\"\nc concurrency 1\nÿ rate \"3/1s\" weight 1\n"
		e.equal("overrides", e.overrides(), want)
		e.sort()
		e.equal("overrides", e.overrides(), want)
		e.claimAll()
		e.equal("overrides", e.overrides(), want)
		e.purge(store.Selection{})
		e.equal("overrides after a purge", e.overrides(), want)
	}},
	{"a flow that is not fair, or a delete, removes the overrides", func(e *env) {
		one := 1
		for _, remove := range []func(){
			func() { e.limit(concurrency(5)) }, func() { e.limit(store.Flow{}) },
			func() { e.ok(e.Peer.Delete(e.Context(), e.queue)) },
		} {
			e.limit(store.Flow{Fair: true})
			e.equal("overrides", e.overrides(), "")
			e.override("k", store.KeyOverride{Concurrency: &one})
			e.limit(store.Flow{Concurrency: 8, Fair: true})
			e.equal("overrides", e.overrides(), "k concurrency 1\n")
			remove()
			e.equal("overrides", e.overrides(), "")
		}
	}},
	{"an override is refused in a queue that is not fair", func(e *env) {
		one := 1
		for _, o := range []store.KeyOverride{{Concurrency: &one}, {}} {
			e.refusesOverride(e.queue, "k", o, store.NotFair(e.queue))
		}
		e.equal("exists", e.stats().Exists, false)
		e.equal("listed", e.listed(), false)
		e.limit(concurrency(3))
		e.refusesOverride(e.queue, "k", store.KeyOverride{Weight: &one}, store.NotFair(e.queue))
		e.limit(store.Flow{Fair: true})
		e.override("k", store.KeyOverride{Weight: &one})
		e.limit(store.Flow{})
		e.refusesOverride(e.queue, "k", store.KeyOverride{Weight: &one}, store.NotFair(e.queue))
	}},
	{"an override that is not allowed is refused with its error", func(e *env) {
		e.limit(store.Flow{Fair: true})
		none, one := 0, 1
		bad := []store.KeyOverride{{Weight: &none}}
		for _, f := range []store.KeyFlow{
			{Concurrency: -1}, {Concurrency: store.MaxConcurrency + 1}, {Weight: -1}, {Weight: store.MaxWeight + 1},
			{Rate: store.Rate{N: 10, Per: 9 * time.Microsecond}},
		} {
			f.Weight = cmp.Or(f.Weight, 1)
			bad = append(bad, overrideOf(f))
		}
		for _, o := range bad {
			e.refusesOverride(e.queue, "k", o, store.CheckKeyFlow(e.queue, "k", o))
		}
		for _, key := range []string{"", "a/b", "a\x00", strings.Repeat("k", store.MaxKey+1), ".", "\xff"} {
			o := store.KeyOverride{Weight: &one}
			e.refusesOverride(e.queue, key, o, store.CheckKeyFlow(e.queue, key, o))
		}
		o := store.KeyOverride{Weight: &one}
		e.refusesOverride("topic:"+e.queue, "k", o, store.CheckKeyFlow("topic:"+e.queue, "k", o))
		e.equal("overrides", e.overrides(), "")
	}},
	{"a queue has a limited number of overrides", func(e *env) {
		e.limit(store.Flow{Fair: true})
		if os.Getenv("LATER_LONG") == "" {
			e.Skip("10,000 calls take seconds: set LATER_LONG")
		}
		one, two := 1, 2
		var next atomic.Int64
		e.concurrently(func(_ int, s store.Store) error {
			for i := next.Add(1); i <= store.MaxKeyFlows; i = next.Add(1) {
				err := s.SetKeyFlow(e.Context(), e.queue, fmt.Sprint(i), store.KeyOverride{Weight: &one})
				if err != nil {
					return err
				}
			}
			return nil
		})
		e.refusesOverride(e.queue, "more", store.KeyOverride{Weight: &one}, store.TooManyKeyFlows(e.queue))
		e.override("1", store.KeyOverride{Weight: &two})
		e.override("more", store.KeyOverride{})
		e.override("2", store.KeyOverride{})
		e.override("more", store.KeyOverride{Weight: &one})
		e.refusesOverride(e.queue, "2", store.KeyOverride{Weight: &one}, store.TooManyKeyFlows(e.queue))
		all := e.states(store.KeysRequest{Overridden: true, Limit: store.MaxKeysPage})
		e.equal("number of overrides", len(all), store.MaxKeyFlows)
	}},
}
