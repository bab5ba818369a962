package memstore

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"maps"
	"time"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/store"
)

// queue holds the messages of one queue: all by id, and each in exactly one of due, held and dead.
type queue struct {
	exists bool
	paused bool

	retention store.Retention // of dead messages, MaxAge in whole milliseconds
	dropped   int64           // dead messages removed because of it

	properties map[string]string // nil until one is set
	activity   activity.Ring

	flow flow

	moves moves

	// delayStart is when delays start to count in the current step: the clock, rounded up to a millisecond.
	delayStart int64
	micros     int64 // the clock in microseconds

	messages  map[string]*message
	due       index // scheduled and ready, by due time
	held      index // leased, by due time
	dead      index // by time of death
	halts     entry // dead messages before it halt keys
	leases    map[string]*lease
	deadlines index // leases by deadline

	groups map[string]index // the messages of each group, all at time 0 and thus by id

	dedup     map[string]int64 // acked ids, with the ends of their dedup windows
	dedupEnds index            // the same, by time

	once     map[string]*once // sends with a store.Once, by its key
	onceEnds index            // the same, by when they end
}

func newQueue() *queue {
	return &queue{
		messages:  map[string]*message{},
		due:       newIndex(),
		held:      newIndex(),
		dead:      newIndex(),
		leases:    map[string]*lease{},
		deadlines: newIndex(),
		groups:    map[string]index{},
		dedup:     map[string]int64{},
		dedupEnds: newIndex(),
		once:      map[string]*once{},
		onceEnds:  newIndex(),
	}
}

// tell tells the queue the time of the step that follows.
func (q *queue) tell(now time.Time) {
	q.delayStart, q.micros = store.UnixMillis(now), now.UnixMicro()
}

// message is a live message.
type message struct {
	store.Message
	raw       []byte // the bytes of one that was restored as unreadable, else nil
	due       int64
	place     int64 // in its lane: the due time in microseconds, or the order of its send
	arrived   bool  // it has a place in the order of its send
	attempts  int
	epoch     int64 // counts the leases it has left; part of the receipt
	delivered bool  // came back other than by Release, or was replayed: it no longer expires
	lease     *lease
	leasedKey string // the key at the claim; a successor may have another one
	follows   bool   // it is in its lease for the message that it follows

	lastError  string
	failures   []store.Failure
	deadReason store.DeadReason
	diedAt     int64
}

func (m *message) state(now int64) store.State {
	switch {
	case m.lease != nil:
		return store.StateLeased
	case m.deadReason != "":
		return store.StateDead
	case m.due > now:
		return store.StateScheduled
	}
	return store.StateReady
}

func (m *message) attemptsLeft() bool {
	return m.attempts < cmp.Or(m.MaxAttempts, store.DefaultMaxAttempts)
}

// size returns the number of bytes that the message counts against store.MaxBatchBytes.
func (m *message) size() int { return m.Message.Size() + len(m.raw) }

// normalize returns a copy of m as the store keeps it: in whole milliseconds, and sent at the time in its id.
func normalize(m store.Message) store.Message {
	m = clone(m)
	if t, ok := store.IDTime(m.ID); ok && m.SentAt.IsZero() {
		m.SentAt = t
	}
	m.WholeMillis()
	return m
}

// clone copies the payload and headers too, so that no caller shares them with the store.
func clone(m store.Message) store.Message {
	m.Payload = bytes.Clone(m.Payload)
	m.Headers = maps.Clone(m.Headers)
	return m
}

// dueAt returns a due time in milliseconds. Delays count from q.delayStart, so that they are never too short.
func (q *queue) dueAt(now int64, due store.Due) int64 {
	if !due.At.IsZero() {
		return store.UnixMillis(due.At)
	}
	if due.Delay <= 0 {
		return now
	}
	return q.delayStart + store.Millis(due.Delay)
}

func (q *queue) send(now int64, msgs []store.Outgoing) []store.SendResult {
	q.dropDedup(now)
	return each(msgs, func(out store.Outgoing) store.SendResult {
		return q.sendOne(now, &out)
	})
}

func (q *queue) sendOne(now int64, out *store.Outgoing) store.SendResult {
	if q.taken(now, out.ID) {
		return store.SendResult{Duplicate: true}
	}
	q.addSent(now, &message{Message: normalize(out.Message)}, out.Due)
	return store.SendResult{}
}

// addSent adds a message that is scheduled or ready.
func (q *queue) addSent(now int64, m *message, due store.Due) {
	arrives := q.setDue(now, m, due)
	q.add(m)
	q.wait(m, arrives)
}

// wait adds a message that is scheduled or ready. If it arrives, it is sorted at once in a Fair queue.
func (q *queue) wait(m *message, arrives bool) {
	q.due.add(m.due, m.ID)
	switch {
	case q.flow.Fair && arrives:
		q.sortOne(m)
	case q.flow.Fair:
		q.flow.unsorted.add(m.due, m.ID)
	}
}

// unwait takes out a message that was scheduled or ready, and reports whether it was sorted.
func (q *queue) unwait(m *message) (sorted bool) {
	q.due.remove(m.due, m.ID)
	if !q.flow.Fair {
		return false
	}
	if sorted = q.flow.keys.Remove(q.micros, m.inLane()); !sorted {
		q.flow.unsorted.remove(m.due, m.ID)
	}
	return sorted
}

// add adds a message, which the caller adds to another index too.
func (q *queue) add(m *message) {
	q.exists = true
	q.messages[m.ID] = m
	if m.Group == "" {
		return
	}
	if _, ok := q.groups[m.Group]; !ok {
		q.groups[m.Group] = newIndex()
	}
	q.groups[m.Group].add(0, m.ID)
}

// erase removes a message, which is in no other index any more.
func (q *queue) erase(m *message) {
	delete(q.messages, m.ID)
	if m.Group == "" {
		return
	}
	if q.groups[m.Group].remove(0, m.ID); q.groups[m.Group].len() == 0 {
		delete(q.groups, m.Group)
	}
}

// taken reports whether an id is live or within its dedup window.
func (q *queue) taken(now int64, id string) bool {
	return q.messages[id] != nil || q.dedup[id] > now
}

// startDedup starts a dedup window of an id until a time.
func (q *queue) startDedup(id string, until int64) {
	q.dedupEnds.remove(q.dedup[id], id)
	q.dedup[id] = until
	q.dedupEnds.add(until, id)
}

// dropDedup drops a bounded number of dedup windows and of remembered sends that have ended.
func (q *queue) dropDedup(now int64) {
	dropEnded(now, q.dedupEnds, func(id string) { delete(q.dedup, id) })
	dropEnded(now, q.onceEnds, func(key string) { delete(q.once, key) })
}

func dropEnded(now int64, ends index, drop func(id string)) {
	for range store.MaxBatch {
		e := ends.first()
		if e.at > now {
			return
		}
		ends.remove(e.at, e.id)
		drop(e.id)
	}
}

// claim claims messages, which the caller forwards at once if forwards is set.
func (q *queue) claim(now int64, req store.ClaimRequest, forwards bool) store.Claim {
	if q.flow.Limited() && req.IsOver(now) {
		return store.Claim{Now: time.UnixMicro(q.micros), Limited: true}
	}
	c := store.Claim{Now: time.UnixMicro(q.micros), Died: q.reap(now), Limited: q.flow.Limited()}
	c.Dropped = q.dropDead(now)
	l := &lease{
		id: rand.Text(), deadline: now + store.Millis(req.Lease), uncounted: req.Uncounted,
		members: map[string]*message{},
	}
	if c.Limited && !forwards {
		l.flow, l.keyed = q.flow.number, q.flow.keyed
	}
	most := q.most(req, forwards)
	if q.flow.Fair && !q.paused {
		q.sort(now)
	}
	size, dying := 0, 0
	for !q.paused && len(c.Messages) < req.Max && dying < store.MaxBatch {
		m := q.head(now)
		if m == nil {
			break
		}
		if m.raw != nil {
			dying++
			q.dieUnclaimed(now, m, store.DeadUnreadable, store.UnreadableText)
			c.Died = append(c.Died, m.ID)
			continue
		}
		if !m.delivered && m.Expired(m.due, now) {
			dying++
			q.dieUnclaimed(now, m, store.DeadExpired, store.ExpiredText)
			c.Died = append(c.Died, m.ID)
			c.Expired = append(c.Expired, m.ID)
			continue
		}
		if size += m.size(); size > store.MaxBatchBytes && len(c.Messages) > 0 || len(c.Messages) == most {
			break
		}
		c.Messages = append(c.Messages, q.hold(m, l))
	}
	if q.ordered() {
		q.flow.fences.Fence(q.micros, c.Messages)
	}
	q.flow.starts.Start(q.flow.Rate, q.micros, len(c.Messages))
	q.flow.claimed()
	if len(c.Messages) > 0 {
		q.leases[l.id] = l
		q.deadlines.add(l.deadline, l.id)
		c.Deadline = store.Time(l.deadline)
	}
	c.More = q.nextFor(forwards) <= q.micros || dying == store.MaxBatch || len(c.Dropped) == store.MaxBatch
	return c
}

// dropDead removes a bounded number of dead messages that exceed the retention and returns their ids.
func (q *queue) dropDead(now int64) (dropped []string) {
	for len(dropped) < store.MaxBatch && q.deadExcess(now) {
		e := q.firstDead()
		q.dead.remove(e.at, e.id)
		q.erase(q.messages[e.id])
		dropped = append(dropped, e.id)
		q.dropped++
	}
	return dropped
}

// deadExcess reports whether the first dead message that halts no key exceeds the retention.
func (q *queue) deadExcess(now int64) bool {
	r := q.retention
	return r.MaxCount > 0 && int64(q.dead.len())-q.halted() > r.MaxCount ||
		r.MaxAge > 0 && q.firstDead().at <= now-store.Millis(r.MaxAge)
}

// next returns the time in microseconds when a claim first has messages to return or leases to end. On a paused queue a
// claim still ends leases.
func (q *queue) next() int64 { return q.nextFor(false) }

// nextFor is next of a claim or of one that forwards, which holds no messages.
func (q *queue) nextFor(forwards bool) int64 {
	ends := micros(q.deadlines.first().at)
	if q.paused {
		return ends
	}
	return min(q.nextStart(forwards), ends)
}

// dieUnclaimed sets aside a message that was to be claimed. It gives its key up.
func (q *queue) dieUnclaimed(now int64, m *message, reason store.DeadReason, text string) {
	q.unwait(m)
	q.dropHold(m)
	m.lastError = text
	q.die(now, m, reason)
}

func (q *queue) die(now int64, m *message, reason store.DeadReason) {
	m.deadReason = reason
	m.diedAt = now
	q.dead.add(now, m.ID)
	q.haltsNot(m)
}

// remove removes a message in any state from the queue. It returns the key that it halted, or "".
func (q *queue) remove(m *message) (resumed string) {
	q.erase(m)
	switch {
	case m.lease != nil:
		q.unhold(m)
	case m.deadReason != "":
		q.dead.remove(m.diedAt, m.ID)
	default:
		q.unwait(m)
	}
	return q.dropHold(m)
}

func (q *queue) cancel(now int64, id string, keepID bool) store.CancelResult {
	m := q.messages[id]
	if m == nil {
		return store.CancelResult{Err: store.ErrNotFound}
	}
	state := m.state(now)
	if m.lease != nil {
		m.lease.lose(m)
	}
	q.remove(m)
	if keepID && m.DedupWindow > 0 {
		q.startDedup(id, now+store.Millis(m.DedupWindow))
	}
	return store.CancelResult{State: state}
}

func (q *queue) reschedule(now int64, id string, due store.Due) error {
	m := q.messages[id]
	switch {
	case m == nil:
		return store.ErrNotFound
	case m.lease != nil:
		return store.ErrLeased
	case m.deadReason != "":
		return store.ErrDead
	}
	q.unwait(m)
	m.setDue(q.dueAt(now, due))
	q.wait(m, false)
	return nil
}
