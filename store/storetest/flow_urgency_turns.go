package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// passedOver counts, for UrgencyNormal and UrgencyLow, the starts that passed over messages that could have started,
// since the last start of that urgency. It knows the numbers as a range: an engine finds out that a message has expired
// when it is next.
type passedOver struct{ least, most map[store.Urgency]int }

// owed is how many starts may pass over an urgency, until one of its messages goes next. For low ones it is two less
// than LowEvery, because a start of a normal message may be owed just then.
var owed = map[store.Urgency]int{store.UrgencyNormal: store.NormalEvery - 1, store.UrgencyLow: store.LowEvery - 2}

func newPassedOver() passedOver {
	return passedOver{map[store.Urgency]int{}, map[store.Urgency]int{}}
}

// forget says that the numbers are not known any more.
func (p *passedOver) forget() {
	for u, n := range owed {
		p.least[u], p.most[u] = 0, n
	}
}

// start counts the start of a message while messages of the urgencies in waits may start too, and perhaps the ones in
// may. It returns an objection if the message starts before its turn.
func (p *passedOver) start(u store.Urgency, waits, may map[store.Urgency]bool) (wrong string) {
	for _, other := range urgencies {
		switch {
		case other == u:
		case other == store.UrgencyHigh: // it waits and is more urgent than u
			if waits[other] && !p.owes(u) {
				wrong = "before a high one"
			}
		case waits[other] && p.least[other] >= owed[other] && !(u == store.UrgencyNormal && p.owes(u)):
			wrong = fmt.Sprintf("although %d starts have passed over the urgency %q", p.least[other], other)
		case waits[other] && other == store.UrgencyNormal && u == store.UrgencyLow && !p.owes(u):
			wrong = "before a normal one"
		}
	}
	for other := range owed {
		if may[other] || waits[other] {
			p.most[other]++
		}
		if waits[other] {
			p.least[other]++
		}
	}
	p.least[u], p.most[u] = 0, 0
	return wrong
}

// owes reports whether the next start may be owed to an urgency.
func (p *passedOver) owes(u store.Urgency) bool {
	return u != store.UrgencyHigh && p.most[u] >= owed[u]
}

// starting checks the urgencies of the messages that start in a queue without limits of keys, or with an order of them.
type starting struct {
	*env
	live   map[string]waitingOne // the messages that wait, by id
	sent   int
	passed passedOver
	order  string // the first letters of the urgencies that have started, N for normal
}

// waitingOne is a message that waits to start.
type waitingOne struct {
	id, key string
	urgency store.Urgency
	place   int
	expires time.Time // zero if it does not
}

func (e *env) starting() *starting {
	e.limit(urgent)
	return &starting{env: e, live: map[string]waitingOne{}, passed: newPassedOver()}
}

// sends sends messages without a delay.
func (s *starting) sends(msgs ...store.Outgoing) {
	s.Helper()
	now := s.now()
	s.send(msgs...)
	for _, m := range msgs {
		s.sent++
		one := waitingOne{id: m.ID, key: m.Key, urgency: m.Urgency, place: s.sent}
		if m.ExpireAfter > 0 {
			one.expires = now.Add(m.ExpireAfter)
		}
		s.live[m.ID] = one
	}
}

// sendsOf sends n messages of an urgency with keys in turn, which a claim sorts. Their ids begin with name.
func (s *starting) sendsOf(n int, u store.Urgency, name string, keys ...string) {
	s.Helper()
	msgs := many(n, withUrgency(u))
	for i := range msgs {
		msgs[i].ID, msgs[i].Key = fmt.Sprintf("%s%05d", name, i), keys[i%len(keys)]
	}
	s.sends(msgs...)
	s.sort()
}

// waits returns the urgencies of messages that may start, and of the ones that may have expired. Of an ordered key only
// the first message may start, unless one has been taken.
func (s *starting) waits(now time.Time, ordered bool, taken map[string]bool) (waits, may map[store.Urgency]bool) {
	waits, may = map[store.Urgency]bool{}, map[store.Urgency]bool{}
	add := func(one waitingOne) {
		may[one.urgency] = true
		waits[one.urgency] = waits[one.urgency] || one.expires.IsZero() || one.expires.After(now)
	}
	first := map[string]waitingOne{}
	for _, one := range s.live {
		other, ok := first[one.key]
		switch {
		case !ordered || one.key == "":
			add(one)
		case !taken[one.key] && (!ok || one.place < other.place):
			first[one.key] = one
		}
	}
	for _, one := range first {
		add(one)
	}
	return waits, may
}

// takesSome claims once, acks the messages and checks the order in which they started.
func (s *starting) takesSome(max int) store.Claim {
	s.Helper()
	ordered, taken := s.flow().Key.Order != store.OrderNone, map[string]bool{}
	c := s.claimWith(max, held)
	for _, m := range c.Messages {
		waits, may := s.waits(c.Now, ordered, taken)
		if wrong := s.passed.start(m.Urgency, waits, may); wrong != "" {
			s.Fatalf("%s of urgency %q starts %s, after %s", m.ID, m.Urgency, wrong, s.order)
		}
		delete(s.live, m.ID)
		s.order += letters[m.Urgency]
		taken[m.Key] = true
	}
	for _, id := range c.Died {
		delete(s.live, id)
	}
	s.ack(c.Messages...)
	return c
}

var letters = map[store.Urgency]string{store.UrgencyHigh: "H", store.UrgencyNormal: "N", store.UrgencyLow: "L"}

// drains claims until none waits, up to max messages at once, in turn.
func (s *starting) drains(max ...int) {
	s.Helper()
	for i := range 100 + len(s.live) {
		if len(s.live) > 0 {
			s.takesSome(max[i%len(max)])
		}
	}
	s.equal("messages that do not start", len(s.live), 0)
}

// takesAll drains the queue, which is empty then.
func (s *starting) takesAll(max ...int) {
	s.Helper()
	s.drains(max...)
	s.empty()
}

// hasEvery checks that of so many starts in a row at least one has an urgency, up to its last one.
func (s *starting) hasEvery(u store.Urgency, every int) {
	s.Helper()
	last := strings.LastIndex(s.order, letters[u])
	for i := 0; i+every <= last+1; i++ {
		if !strings.Contains(s.order[i:i+every], letters[u]) {
			s.Fatalf("none of %d starts in a row has the urgency %q: %s", every, u, s.order[i:i+every])
		}
	}
}

var urgencyTurnRules = []rule{
	{"high messages start first and low ones last, each by due time, then id", func(e *env) {
		for i, max := range []int{1, 9, 2, 4} {
			f := e.other()
			f.limit(urgent)
			key, now := withKey([]string{"", "k"}[i/2]), f.now()
			due := func(d time.Duration) func(*store.Outgoing) { return at(now.Add(-d)) }
			f.send(message("l2", key, low, due(time.Minute)), message("l1", key, low, due(time.Hour)),
				message("n1", key, due(2*time.Second)), message("n2", key, due(time.Second)), message("h3", key, high),
				message("h1", key, high, due(time.Second)), message("h2", key, high, due(time.Second)),
				message("l3", key, low, due(time.Second)), message("later", key, high, delay(time.Hour)))
			var got []string
			for range 8 {
				c := f.claimWith(max, held)
				got = append(got, ids(c.Messages)...)
				f.ack(c.Messages...)
			}
			f.equal("claimed", got, []string{"h1", "h2", "h3", "n1", "n2", "l1", "l2", "l3"})
			f.count(1, 0, 0, 0)
		}
	}},
	{"normal messages get an eighth of the starts and low ones a 64th, however many are claimed at once", func(e *env) {
		for _, max := range [][]int{{1}, {7}, {8}, {100}, {1, 2, 3, 5, 64}} {
			for _, keys := range [][]string{{""}, {"", "a", "b", "c"}} {
				s := e.other().starting()
				s.sendsOf(250, store.UrgencyHigh, "high", keys...)
				s.sendsOf(60, store.UrgencyNormal, "normal", keys...)
				s.sendsOf(12, store.UrgencyLow, "low", keys...)
				s.takesAll(max...)
				seven := strings.Repeat("HHHHHHHN", 7)
				first := seven + "HHHHHHLN" + seven + "HHHHHLHN"
				s.equal("urgencies of the first starts", s.order[:len(first)], first)
				s.hasEvery(store.UrgencyNormal, store.NormalEvery)
				s.hasEvery(store.UrgencyLow, store.LowEvery)
			}
		}
	}},
	{"low messages get a 64th of the starts while normal ones wait, and every eighth is normal while low ones wait",
		func(e *env) {
			s := e.starting()
			s.sendsOf(200, store.UrgencyNormal, "normal", "", "k")
			s.sendsOf(9, store.UrgencyLow, "low", "l", "")
			s.takesAll(10, 1)
			s.equal("low ones", strings.Count(s.order[:189], "L"), 3)
			s.hasEvery(store.UrgencyLow, store.LowEvery)
			s = e.other().starting()
			s.sendsOf(50, store.UrgencyHigh, "high", "")
			s.sendsOf(50, store.UrgencyLow, "low", "")
			s.takesAll(3, 20)
			s.equal("urgencies", s.order, strings.Repeat("H", 50)+strings.Repeat("L", 50))
			s = e.other().starting()
			s.sendsOf(80, store.UrgencyHigh, "high", "")
			s.sendsOf(2, store.UrgencyLow, "low", "k")
			s.takesSome(55)
			s.sendsOf(2, store.UrgencyNormal, "normal", "")
			s.takesAll(20)
			s.equal("urgencies when two are owed", s.order[55:65], "HHHHHHHNLH")
		}},
	{"an urgency has no credit for the time in which it was idle", func(e *env) {
		s := e.starting()
		s.sendsOf(260, store.UrgencyHigh, "high", "")
		s.takesSome(100)
		s.sendsOf(3, store.UrgencyNormal, "normal", "")
		s.takesSome(7)
		s.sendsOf(2, store.UrgencyLow, "low", "k")
		s.takesSome(1)
		s.equal("urgencies", s.order, strings.Repeat("H", 107)+"N")
		s.takesAll(9)
		s.equal("the first low one", strings.Index(s.order, "L"), 107+62)
		s.equal("normal ones", s.order[108:124], "HHHHHHHNHHHHHHHN")
	}},
	{"an urgency goes on with its count of starts that passed over it, when it waits again", func(e *env) {
		s := e.starting()
		s.sendsOf(100, store.UrgencyHigh, "high", "")
		s.sendsOf(1, store.UrgencyNormal, "normal", "")
		s.takesSome(5)
		s.cancel("normal00000", store.StateReady)
		delete(s.live, "normal00000")
		s.takesSome(20)
		s.sendsOf(1, store.UrgencyNormal, "again", "k")
		s.takesSome(3)
		s.equal("urgencies", s.order, strings.Repeat("H", 27)+"N")
	}},
	{"a start of an urgency begins its count again, also when no other one waits", func(e *env) {
		s := e.starting()
		for _, keys := range []string{"", "k"} {
			s.sendsOf(5, store.UrgencyHigh, "a"+keys, keys)
			s.sendsOf(1, store.UrgencyNormal, "b"+keys, keys)
			s.takesAll(10)
			s.sendsOf(8, store.UrgencyHigh, "c"+keys, keys)
			s.sendsOf(1, store.UrgencyNormal, "d"+keys, keys)
			s.takesAll(1)
		}
		s.equal("urgencies", s.order, strings.Repeat("HHHHHNHHHHHHHNH", 2))
	}},
	{"messages that die when they are next use up no start", func(e *env) {
		s := e.starting()
		for name, u := range map[string]store.Urgency{"h": store.UrgencyHigh, "n": store.UrgencyNormal,
			"l": store.UrgencyLow} {
			dying := many(30, withUrgency(u), expireAfter(time.Second), withKey("k"))
			for i := range dying {
				dying[i].ID = fmt.Sprint(name, " dies ", i)
			}
			s.sends(dying...)
			s.sendsOf(40, u, name, "k", "")
		}
		s.restore(store.Info{Message: store.Message{ID: "raw"}, State: store.StateReady, Due: s.now().Add(-time.Hour),
			Raw: []byte{0xff, 1}})
		s.sort()
		s.advance(time.Second)
		s.drains(5)
		s.equal("urgencies of the first starts", s.order[:40], strings.Repeat("HHHHHHHN", 5))
		s.count(0, 0, 0, 91)
		s.full()
	}},
}
