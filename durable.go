package later

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

const (
	// maxDurableInFlight is the number of batches of durable sends, of one queue and Durability, that are on their
	// way at a time. They are more than plain ones, since most of their time they wait for disks and replicas.
	maxDurableInFlight = 8
	// maxDurableBatchers is the number of Durabilities of a queue whose sends travel together. Those of others go alone.
	maxDurableBatchers = 16
	// confirmGrace is how much longer Close lets durable sends wait for their confirmation.
	confirmGrace = time.Second
)

// Durability says how safe a message must be before its send is over. Durable makes one. It is an Option for all
// sends of a client, a QueueOption for those of a queue (see Queue.With), and a SendOption for one message; the
// nearest to the message counts. The zero Durability asks for no more than what the store always gives, and as an
// option it takes back what is asked of all.
type Durability struct {
	asked store.Durability
	kind  durabilityKind
}

type durabilityKind uint8

const (
	durabilityDefault durabilityKind = iota // of the queue or the client
	durabilityAsked
	durabilityNone
)

// Durable has a send return nil only when so many replicas, 0 to store.MaxReplicas, have the message, and the
// disk of the server itself:
//
//   - Redis and Valkey from 7.2 with an append-only file: fsynced by the primary and by that many replicas
//     (WAITAOF). With appendfsync everysec that takes up to a second.
//   - Without one, or before 7.2: in the memory of that many replicas (WAIT). Then 0 replicas is ErrUnsupported,
//     unless the server fsyncs before it answers (appendfsync always).
//   - The embedded store: 0 is its fsync, whatever its sync says; more is ErrUnsupported.
//   - The store in memory: ErrUnsupported.
//
// What is not confirmed within timeout, store.MinConfirm to store.MaxConfirm from when the store wrote it, gives
// ErrNotDurable and says how far it got. The message is there all the same, and is delivered unless the store loses it.
// Sending it again with the same id (WithID, or the id that was returned) confirms the first one's write: then
// ErrDuplicate says that the message is there and as durable as asked, and ErrNotDurable that it still is not.
//
// A failover can still lose a confirmed message when a replica is promoted that did not confirm it; Redis prefers
// the one that has received the most. Concurrent durable sends travel and wait together, apart from plain ones.
func Durable(replicas int, timeout time.Duration) Durability {
	return Durability{store.Durability{Replicas: replicas, Timeout: timeout}, durabilityAsked}
}

// String gives "2 replicas within 1s", "disk within 1s", or "as the store gives".
func (d Durability) String() string {
	switch {
	case d.kind != durabilityAsked:
		return "as the store gives"
	case d.asked.Replicas == 0:
		return fmt.Sprintf("disk within %v", d.asked.Timeout)
	case d.asked.Replicas == 1:
		return fmt.Sprintf("1 replica within %v", d.asked.Timeout)
	}
	return fmt.Sprintf("%d replicas within %v", d.asked.Replicas, d.asked.Timeout)
}

func (d Durability) check() error {
	if d.kind == durabilityAsked && !d.asked.Asked() {
		return store.Invalid("durability's timeout is 0s: give %v to %v", store.MinConfirm, store.MaxConfirm)
	}
	return d.asked.Check()
}

// given is d as an option that was given: the zero one takes back.
func (d Durability) given() Durability {
	if d.kind == durabilityDefault {
		d.kind = durabilityNone
	}
	return d
}

// or is what is asked for, by d or else by what it defaults to.
func (d Durability) or(of Durability) store.Durability {
	if d.kind == durabilityDefault {
		return of.asked
	}
	return d.asked
}

func (d Durability) applySend(o *Outgoing) error {
	if o.Durability.kind != durabilityDefault {
		return twice("durability")
	}
	o.Durability = d.given()
	return d.check()
}

func (d Durability) applyClient(o *options) error {
	if o.durability.kind != durabilityDefault {
		return twice("durability")
	}
	o.durability = d.given()
	return d.check()
}

func (d Durability) applyQueue(q *Queue) error {
	q.durability = d.given()
	return d.check()
}

// QueueOption changes the queue that Queue.With gives.
type QueueOption interface {
	applyQueue(*Queue) error
}

// With gives the same queue with other defaults for what is sent by it; q stays as it is. An option that is nil or
// not allowed is reported, as ErrInvalid, by each method of the Queue.
func (q *Queue) With(opts ...QueueOption) *Queue {
	with := *q
	for i, opt := range opts {
		err := nilOption(i)
		if opt != nil {
			err = opt.applyQueue(&with)
		}
		if err != nil && with.invalid == nil {
			with.invalid = err
		}
	}
	return &with
}

// durableSends gathers the durable sends of a queue, those of each Durability apart, so that none waits for what
// another one asks.
type durableSends struct {
	client *Client
	queue  string

	mu     sync.RWMutex
	byKind map[store.Durability]*batcher[store.Outgoing, store.SendResult]
	closed bool
}

// do sends a message and waits for its result, as batcher.do does.
func (s *durableSends) do(ctx context.Context, m store.Outgoing) (store.SendResult, error) {
	b, err := s.batcher(m.Durable)
	if err != nil {
		return store.SendResult{}, err
	}
	if b != nil {
		return b.do(ctx, m)
	}
	if err := s.client.begin(); err != nil {
		return store.SendResult{}, err
	}
	defer s.client.calls.Done()
	results, err := s.send(ctx, []store.Outgoing{m})
	if err != nil {
		return store.SendResult{}, err
	}
	return results[0], nil
}

// batcher gives the one of a Durability; nil when there are too many.
func (s *durableSends) batcher(d store.Durability) (*batcher[store.Outgoing, store.SendResult], error) {
	s.mu.RLock()
	b := s.byKind[d]
	s.mu.RUnlock()
	if b != nil {
		return b, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClientClosed
	}
	if b := s.byKind[d]; b != nil || len(s.byKind) >= maxDurableBatchers {
		return b, nil
	}
	b = newBatcher(s.send, sendSize)
	b.maxInFlight, b.timeout = maxDurableInFlight, callTimeout+d.Timeout
	if s.byKind == nil {
		s.byKind = map[store.Durability]*batcher[store.Outgoing, store.SendResult]{}
	}
	s.byKind[d] = b
	return b, nil
}

// send makes one call, which ends soon when the client closes.
func (s *durableSends) send(ctx context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.client.confirming, func() { cancel(errClientClosed) })()
	return s.client.store.Send(ctx, s.queue, msgs)
}

func (s *durableSends) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, b := range s.byKind { // nobody adds to it any more
		b.close()
	}
}
