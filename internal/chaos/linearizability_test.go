//go:build unix

package chaos

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// phase is the state of the model's message.
type phase int

const (
	absent phase = iota
	waiting
	held
	dead
)

// model models one message according to the contract. A lease ends at its deadline. It may belong to a claim
// without a reply.
type model struct {
	phase    phase
	failed   int64 // attempts
	lease    string
	deadline int64 // ms
	deduped  bool
}

// input is one call for the message.
type input struct {
	kind     byte // of records, or atEnd
	outcome  string
	unknown  bool // whether the call took effect
	repeated bool // the store may have retried the call after a lost reply
	action   string
	lease    string
	deadline int64 // ms
	now, ret int64 // µs
	attempt  int64
	dedup    bool
	present  bool
}

// atEnd is the kind of the final observation of the message.
const atEnd = 'E'

// step returns the states in which the call may leave the message, or none if the call cannot have that outcome.
func (m model) step(in input) []model {
	switch in.kind {
	case beginSend:
		return m.send(in)
	case claimed:
		return m.claim(in)
	case beginSettle:
		return m.settle(in)
	case beginCancel:
		gone := model{deduped: m.deduped}
		switch {
		case in.unknown, in.outcome == outcomeNotFound && in.repeated:
			return []model{m, gone}
		case in.outcome == outcomeNotFound:
			return when(m.phase == absent, m)
		}
		return when(m.phase != absent, gone)
	case beginReplay:
		return m.replay(in)
	case extended:
		if m.phase == held && m.lease == in.lease {
			m.deadline = max(m.deadline, in.deadline)
		}
		return []model{m}
	}
	return when(in.present == (m.phase != absent), m)
}

func when(ok bool, m model) []model {
	if ok {
		return []model{m}
	}
	return nil
}

func (m model) send(in input) []model {
	present := model{phase: waiting}
	fresh := m.phase == absent && !m.deduped
	refused := in.outcome == outcomeInvalid
	switch {
	case fresh && (in.unknown || refused && in.repeated):
		return []model{m, present}
	case in.unknown || refused:
		return []model{m}
	case in.outcome == outcomeDuplicate:
		return when(!fresh, m)
	}
	return when(fresh, present)
}

func (m model) claim(in input) []model {
	failed := m.failed
	switch {
	case m.phase == held && in.now >= m.deadline*1000:
		failed++
	case m.phase != waiting:
		return nil
	}
	// Claims of processes that died before they recorded them count as attempts, too.
	return when(in.attempt > failed, model{phase: held, failed: in.attempt - 1, lease: in.lease, deadline: in.deadline})
}

// replay replays a message that may be dead: because it was buried, failed its last attempt or expired, or because the
// last lease expired.
func (m model) replay(in input) []model {
	mayBeDead := m.phase == dead || m.phase == waiting || m.phase == held && in.ret >= m.deadline*1000
	again := model{phase: waiting}
	switch {
	case in.unknown || in.outcome == outcomeNotFound && in.repeated:
		if mayBeDead {
			return []model{m, again}
		}
		return []model{m}
	case in.outcome == outcomeNotFound:
		return []model{m}
	}
	return when(mayBeDead, again)
}

func (m model) settle(in input) []model {
	holds := m.phase == held && m.lease == in.lease
	after := m
	if holds {
		switch after = (model{phase: waiting, failed: m.failed}); in.action {
		case "ack":
			after = model{deduped: in.dedup}
		case "nack":
			after.failed++
		case "bury":
			after.phase = dead
		}
	}
	switch {
	case in.unknown && holds && in.action == "nack":
		return []model{m, after, {phase: dead}} // perhaps its last attempt
	case in.unknown:
		return []model{m, after}
	case in.outcome == outcomeLost && in.repeated && in.action != "ack": // a repeated ack is recognized by its call number
		return []model{m, after}
	case in.outcome == outcomeLost:
		return when(!holds || in.ret >= m.deadline*1000, m)
	case holds && in.action == "nack":
		return []model{after, {phase: dead}}
	case holds:
		return []model{after}
	}
	return nil
}

var contract = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{model{}} },
	Step: func(state, in, _ any) (states []any) {
		for _, m := range state.(model).step(in.(input)) {
			states = append(states, m)
		}
		return states
	},
}).ToModel()

// operations returns a message's calls in the form that porcupine checks.
func (ck *checker) operations(m *message) (ops []porcupine.Operation) {
	last := int64(0)
	add := func(c *call, in input) {
		in.outcome, in.unknown = c.outcome, c.unknown()
		in.repeated = c.repeated()
		ret := c.ret
		if in.unknown {
			ret = math.MaxInt64 / 2 // it may still take effect
		}
		in.ret = ret
		last = max(last, c.at, c.ret)
		ops = append(ops, porcupine.Operation{Input: in, Call: c.at, Return: ret})
	}
	dedup := false
	for _, s := range m.sends {
		dedup = dedup || s.has(flagDedup)
		add(&s.call, input{kind: beginSend})
	}
	for _, c := range m.cancels {
		add(c, input{kind: beginCancel})
	}
	for _, c := range m.replays {
		add(c, input{kind: beginReplay})
	}
	for _, d := range m.deliveries {
		add(&call{at: d.call, ret: d.ret, outcome: outcomeOK}, input{
			kind: claimed, lease: d.lease, deadline: d.deadline, now: d.now, attempt: d.attempt,
		})
		for _, e := range ck.extends[d.lease] {
			if e.deadline == 0 {
				continue
			}
			add(&call{at: e.call, ret: e.ret, outcome: outcomeOK},
				input{kind: extended, lease: d.lease, deadline: e.deadline})
		}
		for _, s := range d.settles {
			add(&s.call, input{kind: beginSettle, lease: d.lease, action: s.action, dedup: dedup})
		}
	}
	end := input{kind: atEnd, present: ck.left[m.id] != nil}
	return append(ops, porcupine.Operation{Input: end, Call: last + 1, Return: math.MaxInt64/2 + 1})
}

// linearizable reports whether some order of the message's calls explains their outcomes. It does not check a message
// that was sent again after it was done, or that lost writes to replication.
func (ck *checker) linearizable(m *message) (ok, checked bool) {
	if len(m.sends) == 0 || m.resent() || ck.slack > 0 || ck.mayBeUndone(m) {
		return true, false
	}
	return porcupine.CheckOperations(contract, ck.operations(m)), true
}

// TestModelRefusesForbiddenHistories tests the model itself.
func TestModelRefusesForbiddenHistories(t *testing.T) {
	sent := &send{call: call{actor: "p", at: 10, ret: 20, outcome: outcomeOK}, key: "k", due: "+0", flags: flagNone}
	claim := func(actor, lease string, at, attempt int64, settles ...*settle) *delivery {
		return &delivery{
			actor: actor, call: at, now: at + 5, ret: at + 10, deadline: (at + 10_000) / 1000,
			lease: lease, attempt: attempt, settles: settles,
		}
	}
	settled := func(action, outcome string, at int64) *settle {
		return &settle{call: call{at: at, ret: at + 10, outcome: outcome}, action: action}
	}
	for _, c := range []struct {
		name       string
		deliveries []*delivery
		present    bool
		want       bool
	}{
		{"acked", []*delivery{claim("a", "A", 100, 1, settled("ack", outcomeOK, 200))}, false, true},
		{"never delivered", nil, true, true},
		{"vanished", nil, false, false},
		{"acked and still there", []*delivery{claim("a", "A", 100, 1, settled("ack", outcomeOK, 200))}, true, false},
		{"nacked, then acked", []*delivery{
			claim("a", "A", 100, 1, settled("nack", outcomeOK, 200)),
			claim("b", "B", 300, 2, settled("ack", outcomeOK, 400)),
		}, false, true},
		{"lease ended, late ack refused", []*delivery{
			claim("a", "A", 100, 1, settled("ack", outcomeLost, 20_000)),
			claim("b", "B", 15_000, 2, settled("ack", outcomeOK, 16_000)),
		}, false, true},
		{"late ack accepted", []*delivery{
			claim("a", "A", 100, 1, settled("ack", outcomeOK, 20_000)),
			claim("b", "B", 15_000, 2, settled("nack", outcomeOK, 21_000)),
		}, true, false},
		{"claimed while held", []*delivery{
			claim("a", "A", 100, 1),
			claim("b", "B", 300, 2, settled("ack", outcomeOK, 400)),
		}, false, false},
		{"attempts shrink", []*delivery{
			claim("a", "A", 100, 2, settled("nack", outcomeOK, 200)),
			claim("b", "B", 300, 1, settled("ack", outcomeOK, 400)),
		}, false, false},
		{"delivered after its ack", []*delivery{
			claim("a", "A", 100, 1, settled("ack", outcomeOK, 200)),
			claim("b", "B", 20_000, 2, settled("ack", outcomeOK, 20_100)),
		}, false, false},
		{"ack refused while held", []*delivery{claim("a", "A", 100, 1, settled("ack", outcomeLost, 200))}, true, false},
	} {
		ck := &checker{left: map[string]*later.Info{}}
		if c.present {
			ck.left["k"] = &later.Info{State: store.StateScheduled}
		}
		m := &message{id: "k", sends: []*send{sent}, deliveries: c.deliveries}
		if ok := porcupine.CheckOperations(contract, ck.operations(m)); ok != c.want {
			t.Errorf("%s: linearizable = %t", c.name, ok)
		}
	}
}
