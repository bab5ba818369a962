package storetest

import (
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laterq/later/store"
)

func (e *env) setProperties(set map[string]string) {
	e.Helper()
	e.ok(e.Store.SetProperties(e.Context(), e.queue, set, nil))
}

// hasProperties compares all properties of the queue.
func (e *env) hasProperties(want map[string]string) {
	e.Helper()
	got, err := e.Peer.Properties(e.Context(), e.queue)
	e.ok(err)
	if !maps.Equal(got, want) {
		e.Fatalf("properties: got %q, want %q", got, want)
	}
}

// manyProperties returns n properties with names that begin with a prefix.
func manyProperties(prefix string, n int) map[string]string {
	set := map[string]string{}
	for i := range n {
		set[fmt.Sprintf("%s%04d", prefix, i)] = "value"
	}
	return set
}

// fillProperties sets as many properties as a queue may have, and returns them.
func (e *env) fillProperties() map[string]string {
	e.Helper()
	all := map[string]string{}
	for i := range store.MaxProperties / store.MaxBatch {
		set := manyProperties(fmt.Sprint("p", i), store.MaxBatch)
		e.setProperties(set)
		maps.Copy(all, set)
	}
	e.equal("number of properties", len(all), store.MaxProperties)
	e.hasProperties(all)
	return all
}

var propertyRules = []rule{
	{"properties are set, replaced, and removed by an empty value", func(e *env) {
		e.hasProperties(nil)
		e.setProperties(map[string]string{"a": "1", "b": "2", "c": "3"})
		e.hasProperties(map[string]string{"a": "1", "b": "2", "c": "3"})
		e.setProperties(map[string]string{"a": "one", "b": "", "d": "4", "unknown": ""})
		e.hasProperties(map[string]string{"a": "one", "c": "3", "d": "4"})
		e.setProperties(map[string]string{"a": "", "c": "", "d": ""})
		e.hasProperties(nil)
		e.equal("exists", e.stats().Exists, true)
	}},
	{"names and values of properties are kept byte by byte", func(e *env) {
		set := map[string]string{
			" ": " ", "größe": "日本", "{a}:b/c*?[": "line\nand\x00tab\t", "1": "0", "-": "-1", "name": `{"json": [1.5]}`,
			strings.Repeat("n", store.MaxPropertyName): strings.Repeat("v", store.MaxPropertyValue),
		}
		e.setProperties(set)
		e.hasProperties(set)
	}},
	{"a queue with only properties exists until it is deleted", func(e *env) {
		e.equal("exists", e.stats().Exists, false)
		e.setProperties(map[string]string{"a": "1"})
		s := e.stats()
		e.equal("exists, paused", []bool{s.Exists, s.Paused}, []bool{true, false})
		e.equal("listed", e.listed(), true)
		e.count(0, 0, 0, 0)
		e.ok(e.Peer.Delete(e.Context(), e.queue))
		e.hasProperties(nil)
		e.equal("exists", e.stats().Exists, false)
		e.equal("listed", e.listed(), false)
		e.send(message("m"))
		e.hasProperties(nil)
	}},
	{"a call that only removes properties does not create a queue", func(e *env) {
		e.setProperties(map[string]string{"a": "", "b": ""})
		e.equal("exists", e.stats().Exists, false)
		e.equal("listed", e.listed(), false)
	}},
	{"reading properties does not create a queue", func(e *env) {
		e.hasProperties(nil)
		e.equal("exists", e.stats().Exists, false)
	}},
	{"properties are kept by acks, purges, a pause and a retention", func(e *env) {
		set := map[string]string{"a": "1", "b": "2"}
		e.setProperties(set)
		e.send(message("last"))
		e.ack(e.claimOne("last", held))
		e.hasProperties(set)
		e.sendDead("dead")
		e.send(message("ready"), message("leased"))
		e.claim(1)
		e.purge(store.Selection{})
		e.count(0, 0, 0, 0)
		e.hasProperties(set)
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.retain(store.Retention{MaxCount: 1})
		e.ok(e.Store.SetPaused(e.Context(), e.queue, false))
		e.hasProperties(set)
	}},
	{"setting properties leaves messages, pause and retention alone", func(e *env) {
		e.send(message("ready"), message("scheduled", delay(time.Hour)))
		e.ok(e.Store.SetPaused(e.Context(), e.queue, true))
		e.retain(store.Retention{MaxCount: 7})
		e.setProperties(map[string]string{"a": "1"})
		e.count(1, 1, 0, 0)
		s := e.stats()
		e.equal("paused", s.Paused, true)
		e.equal("retention", s.DeadRetention, store.Retention{MaxCount: 7})
	}},
	{"properties of one queue are not those of another", func(e *env) {
		f := e.other()
		e.setProperties(map[string]string{"a": "1"})
		f.setProperties(map[string]string{"a": "2"})
		e.ok(e.Store.Delete(e.Context(), e.queue))
		e.hasProperties(nil)
		f.hasProperties(map[string]string{"a": "2"})
	}},
	{"a call that would exceed the number of properties changes nothing", func(e *env) {
		all := e.fillProperties()
		err := e.Store.SetProperties(e.Context(), e.queue,
			map[string]string{"p00000": "", "p00001": "other", "new": "1", "newer": "2"}, nil)

		e.is(err, store.ErrTooLarge)
		if limit := fmt.Sprint(store.MaxProperties); !strings.Contains(err.Error(), limit) {
			e.Fatalf("error %q does not name the limit %s", err, limit)
		}
		e.hasProperties(all)
		e.setProperties(map[string]string{"p00000": "", "p00001": "other", "new": "1"})
		delete(all, "p00000")
		all["p00001"], all["new"] = "other", "1"
		e.hasProperties(all)
	}},
	{"the largest properties are kept", func(e *env) {
		all := map[string]string{}
		for i := range store.MaxProperties / store.MaxBatch {
			set := map[string]string{}
			for j := range store.MaxBatch {
				name := fmt.Sprintf("%0*d", store.MaxPropertyName, i*store.MaxBatch+j)
				set[name] = strings.Repeat("v", store.MaxPropertyValue)
			}
			e.setProperties(set)
			maps.Copy(all, set)
		}
		e.hasProperties(all)
	}},
	{"properties whose condition is not met are not set, and do not create the queue", func(e *env) {
		trySet := func(set map[string]string, c *store.Condition) error {
			return e.Store.SetProperties(e.Context(), e.queue, set, c)
		}
		e.is(trySet(map[string]string{"a": "1"}, when("version", "1")), store.ErrConflict)
		e.equal("exists", e.stats().Exists, false)
		e.equal("listed", e.listed(), false)
		e.ok(trySet(map[string]string{"a": "1", "version": "1"}, when("version", "")))
		for _, value := range []string{"", "2"} {
			e.is(trySet(map[string]string{"a": "", "b": "2", "version": "2"}, when("version", value)),
				store.ErrConflict)
		}
		e.hasProperties(map[string]string{"a": "1", "version": "1"})
		e.ok(trySet(map[string]string{"a": "", "version": ""}, when("version", "1")))
		e.hasProperties(nil)
		e.fillProperties()
		e.is(trySet(map[string]string{"new": "1"}, when("new", "2")), store.ErrConflict)
		e.is(trySet(map[string]string{"new": "1"}, when("new", "")), store.ErrTooLarge)
	}},
	{"of concurrent sets with the same condition one is done", func(e *env) {
		var done atomic.Int32
		e.concurrently(func(worker int, s store.Store) error {
			err := s.SetProperties(e.Context(), e.queue, map[string]string{"version": fmt.Sprint(worker)},
				when("version", ""))
			if err == nil {
				done.Add(1)
			} else if store.CodeOf(err) != store.ErrConflict.Code {
				return err
			}
			return nil
		})
		e.equal("done", done.Load(), int32(1))
	}},
	{"properties that are not allowed are refused", func(e *env) {
		for _, set := range []map[string]string{nil, {}, {"": "1"}, {"a\n": "1"}, {"\xff": ""}, {"a": "\xff"},
			{strings.Repeat("n", store.MaxPropertyName+1): "1"}} {
			e.is(e.Store.SetProperties(e.Context(), e.queue, set, nil), store.ErrInvalid)
		}
		long := map[string]string{"a": strings.Repeat("v", store.MaxPropertyValue+1)}
		e.is(e.Store.SetProperties(e.Context(), e.queue, long, nil), store.ErrTooLarge)
		e.is(e.Store.SetProperties(e.Context(), e.queue, manyProperties("p", store.MaxBatch+1), nil), store.ErrTooLarge)
		e.equal("exists", e.stats().Exists, false)
	}},
	{"what the caller does with its maps does not change properties", func(e *env) {
		set := map[string]string{"a": "1"}
		e.setProperties(set)
		set["a"], set["b"] = "2", "2"
		got, err := e.Store.Properties(e.Context(), e.queue)
		e.ok(err)
		got["a"], got["c"] = "3", "3"
		e.hasProperties(map[string]string{"a": "1"})
	}},
	{"concurrent sets of different properties do not lose one another", func(e *env) {
		const each = 20
		want := map[string]string{}
		for w := range workers {
			for i := range each {
				want[fmt.Sprint(w, " ", i)] = "kept"
			}
		}
		e.concurrently(func(worker int, s store.Store) error {
			for i := range each {
				name := fmt.Sprint(worker, " ", i)
				for _, set := range []map[string]string{{name: "1", name + "x": "1"}, {name: "kept", name + "x": ""}} {
					if err := s.SetProperties(e.Context(), e.queue, set, nil); err != nil {
						return err
					}
				}
			}
			return nil
		})
		e.hasProperties(want)
	}},
	{"concurrent sets do not exceed the number of properties", func(e *env) {
		e.concurrently(func(worker int, s store.Store) error {
			set := manyProperties(fmt.Sprint(worker), store.MaxProperties*2/workers)
			err := s.SetProperties(e.Context(), e.queue, set, nil)
			if err != nil && store.CodeOf(err) != store.ErrTooLarge.Code {
				return err
			}
			return nil
		})
		all, err := e.Peer.Properties(e.Context(), e.queue)
		e.ok(err)
		e.equal("number of properties", len(all), store.MaxProperties)
	}},
}
