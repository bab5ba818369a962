package storetest

import (
	"github.com/laterq/later/store"
)

// modelSorted is the urgency for which a claim has sorted a ready message. It is zero unless a claim has.
type modelSorted struct {
	urgency store.Urgency
	sorted  bool
	again   bool // an engine may sort it again at the next claim
	unsure  bool // it may have another urgency
	// late is set if its key had an order that was removed: an engine may let the key wait with it later.
	late bool
}

// modelLane names messages that start in their order.
type modelLane struct {
	key     string
	urgency store.Urgency
	alone   string // the id of a message whose urgency is unsure
}

// laneOf returns the lane of a sorted message. An ordered key has one for all urgencies.
func (m *model) laneOf(x *modelMessage) modelLane {
	switch {
	case !m.flow.Fair:
		return modelLane{}
	case m.ordered() && x.Key != "":
		return modelLane{key: x.Key}
	case x.unsure:
		return modelLane{key: x.Key, alone: x.ID}
	}
	return modelLane{key: x.Key, urgency: x.urgency}
}

// sort sorts the ready messages of a Fair queue, as claims do. Claims of a paused queue need not.
func (m *model) sort() {
	if !m.flow.Fair {
		return
	}
	for _, x := range m.in(store.StateReady) {
		u := m.flow.UrgencyOf(&x.Message)
		switch {
		case !x.sorted:
			x.modelSorted = modelSorted{urgency: u, sorted: true, again: m.paused}
		case x.again && !m.paused:
			x.again, x.unsure = false, x.unsure || x.urgency != u
		}
	}
}

// unsort follows a new due time of a message. An engine need not sort it again if that is the former one.
func (x *modelMessage) unsort(same bool) {
	if same && x.sorted {
		x.again = true
	} else {
		x.modelSorted = modelSorted{}
	}
}

// replaced follows a replacement of a message that had another urgency before, or the same.
func (m *model) replaced(x *modelMessage, was store.Urgency) {
	switch u := m.flow.UrgencyOf(&x.Message); {
	case !x.sorted:
	case was != x.Urgency:
		x.urgency = u
	case x.urgency != u:
		x.unsure = true
	}
}

// setUrgency follows a change of the flow.
func (m *model) setUrgency(was store.Flow) {
	for _, x := range m.messages {
		if was.Fair != m.flow.Fair {
			x.modelSorted = modelSorted{}
		}
		x.late = x.late || was.Key.Order != store.OrderNone && !m.ordered()
	}
	if was.Fair != m.flow.Fair {
		m.passed.forget()
		clear(m.stale)
	}
}

// purgeTurns follows a purge: keys may have turns until engines find out that all their messages are gone.
func (m *model) purgeTurns(purged []*modelMessage) {
	for _, x := range purged {
		if x.sorted {
			m.stale[x.urgency] = true
		}
	}
}

// modelStarts are the sorted messages that have not started yet, while a claim starts some.
type modelStarts struct {
	*model
	left []*modelMessage // in order
	room map[string]int  // of each key
}

func (m *model) startsOf(ready []*modelMessage, forwards bool) *modelStarts {
	s := &modelStarts{m, m.inOrder(ready), map[string]int{}}
	for _, x := range s.left {
		s.room[x.Key] = m.keyLimit(x.Key, forwards)
	}
	return s
}

// start starts a message. It returns an objection if the message starts before the turn of its urgency.
func (s *modelStarts) start(id string) (wrong string) {
	waits, may := s.waits()
	for i, x := range s.left {
		if x.ID != id {
			continue
		}
		s.left = append(s.left[:i:i], s.left[i+1:]...)
		s.room[x.Key]--
		if x.unsure {
			s.passed.forget()
			return ""
		}
		return s.passed.start(x.urgency, waits, may)
	}
	return ""
}

// waits returns the urgencies of messages that may start now, and of the ones that may be able to.
func (s *modelStarts) waits() (waits, may map[store.Urgency]bool) {
	waits, may = map[store.Urgency]bool{}, map[store.Urgency]bool{}
	behind := map[string]bool{} // ordered keys: whether a message that may start comes before the others
	for _, u := range urgencies {
		may[u] = s.stale[u]
	}
	dying := map[string]bool{} // ordered keys with a message that dies before the others start
	for _, x := range s.left {
		if s.room[x.Key] <= 0 || behind[x.Key] {
			continue
		}
		for _, u := range urgencies {
			may[u] = may[u] || u == x.urgency || x.unsure
		}
		dies := x.raw != nil || s.expired(x)
		if !dies && !x.unsure && !x.late && !dying[x.Key] {
			waits[x.urgency] = true
		}
		if s.ordered() && x.Key != "" {
			behind[x.Key], dying[x.Key] = !dies, dies
		}
	}
	return waits, may
}
