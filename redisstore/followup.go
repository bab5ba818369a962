package redisstore

import (
	"cmp"
	"context"
	"errors"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// Linked implements store.Linker. In a Cluster two queues are on different nodes, so a script cannot change both.
func (s *Store) Linked(queue, to string) bool {
	tag, _ := keyParts(queue)
	other, _ := keyParts(to)
	return !s.isCluster() || tag == other
}

// ackThen acks the settlements at indexes, which have follow-ups, and sends these. A server that is full refuses all of
// them.
func (s *Store) ackThen(
	ctx context.Context, queue string, settlements []store.Settlement, indexes []int, results []store.SettleResult,
) error {
	var names []string // of the queues with follow-ups
	groups := map[string]*followUps{}
	for k, p := range indexes {
		then := settlements[p].Then
		for i := range then {
			g := groups[then[i].Queue]
			if g == nil {
				g = &followUps{}
				groups[then[i].Queue] = g
				names = append(names, then[i].Queue)
			}
			g.add(k+1, &then[i].Message)
		}
	}
	c := s.newCall("ack_then", queue, 6+3*len(indexes))
	for _, name := range names {
		c.addQueue(s.keys.of(name))
	}
	c.args[2] = len(keyNames) * (1 + len(names))
	condition := settlements[indexes[0]].If
	s.addConditionKey(c, queue, condition)
	defer s.sessions.release(s.stampRequest(ctx, c))
	c.addCondition(condition)
	c.add(len(indexes))
	for _, p := range indexes {
		st := &settlements[p]
		c.add(&st.Receipt.Lease, token(&st.Receipt), windowOf(st))
	}
	var create []int
	for _, name := range names {
		g := groups[name]
		create = append(create, len(c.args))
		c.add("0", g.longest, g.inspect, len(g.args)/4)
		c.add(g.args...)
	}
	reply, err := s.runAllRegistered(ctx, queue, c, names, create)
	if errors.Is(err, store.ErrFull) || isConflict(reply) {
		for _, p := range indexes {
			results[p].Err = cmp.Or(err, error(store.ErrConflict))
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, position := range reply.([]any) {
		results[indexes[position.(int64)-1]].Err = store.ErrLeaseLost
	}
	return nil
}

// followUps are the follow-ups in one queue.
type followUps struct {
	args    []any // four for each message
	longest int
	inspect bool
}

// add adds a follow-up of the ack with a number.
func (g *followUps) add(ack int, m *store.Outgoing) {
	value := envelope.Append(nil, &m.Message)
	g.longest = max(g.longest, len(value)+prefixSize)
	g.inspect = g.inspect || envelope.Unusual(value[0])
	g.args = append(g.args, ack, string(appendDue(nil, m.Due)), m.ID, value)
}

// followUpWork limits the follow-ups of a call with several acks: their number, their work as in maxSendWork, and the
// queues that they go to. The follow-ups of a single ack may have store.MaxFollowUpBytes.
type followUpWork struct {
	queues  map[string]struct{}
	n, work int
}

const (
	ackWork   = 4
	queueWork = 20 // for each queue with follow-ups
)

// add adds the follow-ups of one message, and reports whether the call can have them.
func (w *followUpWork) add(then []store.FollowUp) bool {
	if len(then) == 0 {
		return true
	}
	if w.queues == nil {
		w.queues = make(map[string]struct{}, 1)
	}
	w.work += ackWork
	for i := range then {
		m := &then[i].Message
		w.queues[then[i].Queue] = struct{}{}
		w.n, w.work = w.n+1, w.work+sendWork(&m.Message, m.Due)
	}
	return len(w.queues) <= store.MaxFollowUpQueues && w.n <= store.MaxBatch &&
		w.work+queueWork*len(w.queues) <= maxSendWork
}
