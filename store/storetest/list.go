package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

var listRules = []rule{
	{"scheduled and ready messages are listed by due time, each in its state", func(e *env) {
		now := e.now()
		e.send(message("r2", at(now.Add(-time.Second))), message("r1", at(now.Add(-time.Minute))), message("r3"),
			message("s2", delay(2*time.Hour)), message("s1", delay(time.Hour)), message("s3", delay(3*time.Hour)))
		for _, limit := range []int{1, 2, store.MaxBatch} {
			ready := e.list(store.ListRequest{State: store.StateReady, Limit: limit})
			e.equal("ready", infoIDs(ready), []string{"r1", "r2", "r3"})
			scheduled := e.list(store.ListRequest{State: store.StateScheduled, Limit: limit})
			e.equal("scheduled", infoIDs(scheduled), []string{"s1", "s2", "s3"})
		}
		for _, info := range e.list(store.ListRequest{State: store.StateReady, Limit: 10}) {
			e.equal("listed", describe(&info), describe(e.live(info.ID, store.StateReady)))
		}
	}},
	{"a listing of no state or an unknown one is refused", func(e *env) {
		e.send(message("m"))
		for _, state := range []store.State{store.StateNone, "late"} {
			_, err := e.Store.List(e.Context(), e.queue, store.ListRequest{State: state, Limit: 10})
			e.is(err, store.ErrInvalid)
		}
	}},
	{"dead messages are listed by time of death", func(e *env) {
		for _, id := range []string{"c", "a", "b"} {
			e.sendDead(id)
			e.advance(time.Millisecond)
		}
		for _, limit := range []int{1, 10} {
			listed := e.list(store.ListRequest{State: store.StateDead, Limit: limit})
			e.equal("dead", infoIDs(listed), []string{"c", "a", "b"})
			for _, info := range listed {
				e.equal("listed", describe(&info), describe(e.live(info.ID, store.StateDead)))
			}
		}
	}},
	{"leased messages are listed with their lease's deadline", func(e *env) {
		e.send(many(7)...)
		var want []string
		for i := range 3 {
			for _, c := range e.claimWith(2, held+time.Duration(i)*time.Second).Messages {
				want = append(want, c.ID)
			}
		}
		for _, limit := range []int{1, 2, 10} {
			seen := map[string]bool{}
			for _, info := range e.list(store.ListRequest{State: store.StateLeased, Limit: limit}) {
				seen[info.ID] = true
				e.equal("listed", describe(&info), describe(e.live(info.ID, store.StateLeased)))
			}
			e.equal("number leased", len(seen), len(want))
			for _, id := range want {
				e.equal("listed "+id, seen[id], true)
			}
		}
	}},
	{"ids are listed alone, in the same order", func(e *env) {
		const size = store.MaxPayload / 2
		for i := range 6 {
			m := message(fmt.Sprint("m", i), group("g"), delay(time.Duration(i%2)*time.Hour))
			m.Payload = make([]byte, size)
			e.send(m)
		}
		e.send(message("other", delay(48*time.Hour)))
		e.claimWith(1, held)
		e.sendDead("dead", group("g"))
		states := []store.State{store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead,
			store.StateNone}
		for _, state := range states {
			req := store.ListRequest{State: state, Limit: store.MaxBatch}
			if state == store.StateNone {
				req.Group = "g"
			}
			var want []store.Info
			for _, info := range e.list(req) {
				want = append(want, store.Info{Message: store.Message{ID: info.ID}})
			}
			req.IDsOnly = true
			for _, req.Limit = range []int{1, 2, store.MaxBatch} {
				e.equal(fmt.Sprintf("ids of state %q", state), fmt.Sprintf("%+v", e.list(req)),
					fmt.Sprintf("%+v", want))
			}
		}
	}},
	{"a page of large messages is bounded in bytes in every state", func(e *env) {
		const n, length = 12, store.MaxPayload / 2
		for i := range n {
			m := message(fmt.Sprint("m", i))
			m.Payload = make([]byte, length)
			e.send(m)
		}
		e.pages(store.StateReady, n, length)
		for range n { // each claim is bounded in bytes too
			e.claim(n)
		}
		e.pages(store.StateLeased, n, length)
	}},
	{"cancelled messages are not listed as leased", func(e *env) {
		e.send(many(3)...)
		c := e.claim(3)
		e.cancel(c[1].ID, store.StateLeased)
		listed := infoIDs(e.list(store.ListRequest{State: store.StateLeased, Limit: 10}))
		slices.Sort(listed)
		e.equal("leased", listed, []string{c[0].ID, c[2].ID})
		e.send(message(c[1].ID))
		listed = infoIDs(e.list(store.ListRequest{State: store.StateLeased, Limit: 10}))
		slices.Sort(listed)
		e.equal("leased", listed, []string{c[0].ID, c[2].ID})
	}},
	{"ids cancelled, sent and claimed again are listed once for any page size", func(e *env) {
		for range 3 { // earlier leases keep the ids too
			e.send(many(3)...)
			for _, c := range e.claimWith(3, held).Messages {
				e.cancel(c.ID, store.StateLeased)
			}
		}
		e.send(many(3)...)
		var want []string
		for _, c := range e.claimWith(3, held).Messages {
			want = append(want, c.ID)
		}
		slices.Sort(want)
		for _, limit := range []int{1, 2, 3, 100} {
			listed := infoIDs(e.list(store.ListRequest{State: store.StateLeased, Limit: limit}))
			slices.Sort(listed)
			e.equal("leased", listed, want)
		}
	}},
	{"a state without messages and an unknown queue have an empty page", func(e *env) {
		for _, state := range allStates {
			e.equal("listed", len(e.list(store.ListRequest{State: state, Limit: 10})), 0)
		}
	}},
	{"a listing may be limited to a time range with an exclusive end", func(e *env) {
		now := e.now()
		for i := range 5 {
			e.send(message(fmt.Sprint("s", i), at(now.Add(time.Hour+time.Duration(i)*time.Millisecond))))
			e.send(message(fmt.Sprint("r", i), at(now.Add(-time.Hour+time.Duration(i)*time.Millisecond))))
		}
		for _, limit := range []int{1, 10} {
			req := store.ListRequest{
				State: store.StateScheduled, Limit: limit,
				From: now.Add(time.Hour + time.Millisecond), To: now.Add(time.Hour + 3*time.Millisecond),
			}
			e.equal("scheduled", infoIDs(e.list(req)), []string{"s1", "s2"})
			req.To = time.Time{}
			e.equal("scheduled", infoIDs(e.list(req)), []string{"s1", "s2", "s3", "s4"})
			req = store.ListRequest{State: store.StateReady, Limit: limit, To: now.Add(-time.Hour + 2*time.Millisecond)}
			e.equal("ready", infoIDs(e.list(req)), []string{"r0", "r1"})
			req = store.ListRequest{State: store.StateReady, Limit: limit, From: now.Add(time.Hour)}
			e.equal("ready", len(e.list(req)), 0)
		}
	}},
	{"a listing of dead messages may be limited by time of death", func(e *env) {
		var died []time.Time
		for i := range 4 {
			died = append(died, e.now())
			e.sendDead(fmt.Sprint("d", i))
			e.advance(time.Second)
		}
		req := store.ListRequest{State: store.StateDead, Limit: 1, From: died[1], To: died[3]}
		e.equal("dead", infoIDs(e.list(req)), []string{"d1", "d2"})
	}},
	{"list pages through 1200 messages due in the same millisecond", func(e *env) {
		const n = 1200
		due := e.now().Add(time.Hour)
		e.send(many(n, at(due))...)
		for _, limit := range []int{100, store.MaxBatch} {
			listed := infoIDs(e.list(store.ListRequest{State: store.StateScheduled, Limit: limit}))
			e.equal("number listed", len(listed), n)
			slices.Sort(listed)
			e.equal("number of different ids", len(slices.Compact(listed)), n)
		}
	}},
	{"list pages through 1200 messages that died in the same millisecond", func(e *env) {
		const n = 1200
		e.send(many(n, maxAttempts(1))...)
		for range 3 {
			e.claimWith(store.MaxBatch, short)
		}
		e.advance(short)
		e.equal("claimed", len(e.claimAll()), 0)
		listed := infoIDs(e.list(store.ListRequest{State: store.StateDead, Limit: 100}))
		slices.Sort(listed)
		e.equal("number of different ids", len(slices.Compact(listed)), n)
		e.equal("number listed", len(listed), n)
	}},
	{"a message that stays is listed exactly once while others come and go", func(e *env) {
		due := e.now().Add(time.Hour)
		for i := range 20 {
			e.send(message(fmt.Sprintf("stays%02d", i), at(due)), message(fmt.Sprintf("goes%02d", i), at(due)))
		}
		seen := map[string]int{}
		req := store.ListRequest{State: store.StateScheduled, Limit: 3}
		for page := 0; ; page++ {
			p, err := e.Store.List(e.Context(), e.queue, req)
			e.ok(err)
			for _, info := range p.Messages {
				seen[info.ID]++
			}
			if p.Next == "" {
				break
			}
			// The last message listed goes, and others come before and after it.
			if last := p.Messages[len(p.Messages)-1].ID; last[0] == 'g' {
				e.cancel(last, store.StateScheduled)
			}
			e.send(message(fmt.Sprintf("a%02d", page), at(due.Add(-time.Second))))
			if page < 5 {
				e.send(message(fmt.Sprintf("z%02d", page), at(due)))
			}
			req.Cursor = p.Next
		}
		for i := range 20 {
			e.equal("times listed", seen[fmt.Sprintf("stays%02d", i)], 1)
		}
	}},
	{"an unknown cursor is refused", func(e *env) {
		e.send(many(3)...)
		for _, state := range []store.State{store.StateReady, store.StateLeased} {
			_, err := e.Store.List(e.Context(), e.queue,
				store.ListRequest{State: state, Limit: 1, Cursor: "not a cursor"})
			e.is(err, store.ErrInvalid)
		}
	}},
	{"list changes nothing", func(e *env) {
		e.send(many(10)...)
		e.claim(5)
		before := e.stats()
		for _, state := range []store.State{store.StateReady, store.StateLeased} {
			e.equal("number listed", len(e.list(store.ListRequest{State: state, Limit: 3})), 5)
		}
		after := e.stats()
		e.equal("ready, leased", []int64{after.Ready, after.Leased}, []int64{before.Ready, before.Leased})
	}},
}

// pages lists n messages with payloads of a length and checks the number of bytes in each page.
func (e *env) pages(state store.State, n, length int) {
	seen := map[string]bool{}
	for cursor := ""; ; {
		req := store.ListRequest{State: state, Limit: store.MaxBatch, Cursor: cursor}
		page, err := e.Store.List(e.Context(), e.queue, req)
		e.ok(err)
		if size := len(page.Messages) * length; size > store.MaxBatchBytes+length {
			e.Errorf("a page of %s messages has %d bytes", state, size)
		}
		for _, info := range page.Messages {
			seen[info.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	e.equal("number listed", len(seen), n)
}
