package batch

import (
	"context"
	"sync"

	"github.com/laterq/later/store"
)

const (
	// maxDurableInFlight is the maximum number of in-flight batches of durable sends, per queue and Durability. It is
	// higher than maxInFlight because durable sends spend most of their time waiting for disks and replicas.
	maxDurableInFlight = 8
	// maxDurableBatchers is the number of Durabilities of a queue whose sends are batched. Sends with further ones go
	// alone.
	maxDurableBatchers = 16
)

// SendFunc makes one call of store.Store.Send for a queue.
type SendFunc func(ctx context.Context, msgs []store.Outgoing) ([]store.SendResult, error)

// Sends sends the messages of one queue. Its methods are safe for concurrent use.
//
// Messages that are sent one by one, because they may change a live message or repeat another send, do not share a call
// with others. Neither do durable messages: no send waits for a confirmation that another one asked for. Nor do
// messages with an urgency: a queue whose flow has none refuses the whole call.
type Sends struct {
	call       SendFunc
	prompt     SendFunc
	cfg        Config
	confirming context.Context

	plain    *Batcher[store.Outgoing, store.SendResult]
	oneByOne *Batcher[store.Outgoing, store.SendResult]

	mu      sync.RWMutex // guards the fields below
	durable map[store.Durability]*Batcher[store.Outgoing, store.SendResult]
	urgent  *Sends // of messages with an urgency; nil before the first one
	closed  bool
	alone   sync.WaitGroup // durable sends that are not batched
}

// NewSends returns Sends that make calls with call, or with prompt, which returns as soon as its context ends; prompt
// may be nil. Calls of durable sends end with confirming.
func NewSends(call, prompt SendFunc, confirming context.Context, cfg Config) *Sends {
	s := &Sends{
		call: call, prompt: prompt, cfg: cfg, confirming: confirming,
		plain: newBatcher(call, sendSize, cfg), oneByOne: newBatcher(call, sendSize, cfg),
	}
	s.plain.prompt, s.plain.linger, s.plain.gathers = prompt, gatherFor, true
	return s
}

// NewSettles returns a batcher of settles of one queue.
func NewSettles(
	call func(context.Context, []store.Settlement) ([]store.SettleResult, error), cfg Config,
) *Batcher[store.Settlement, store.SettleResult] {
	return newBatcher(call, func(s store.Settlement) int { return s.Size() }, cfg)
}

// sendSize returns the bytes that a message counts towards store.MaxBatchBytes.
func sendSize(m store.Outgoing) int { return m.Size() }

// Do sends a message, together with messages of other callers, and waits for its result, like Batcher.Do.
func (s *Sends) Do(ctx context.Context, m store.Outgoing) (store.SendResult, error) {
	if m.AsksUrgency() != store.UrgencyNormal {
		urgent, err := s.ofUrgent()
		if err != nil {
			return store.SendResult{}, err
		}
		return urgent.do(ctx, m)
	}
	return s.do(ctx, m)
}

// ofUrgent returns the Sends of messages with an urgency.
func (s *Sends) ofUrgent() (*Sends, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.cfg.Closed
	}
	if s.urgent == nil {
		s.urgent = NewSends(s.call, s.prompt, s.confirming, s.cfg)
	}
	return s.urgent, nil
}

func (s *Sends) do(ctx context.Context, m store.Outgoing) (store.SendResult, error) {
	switch {
	case m.Durable.Asked():
		return s.doDurable(ctx, m)
	case m.OneByOne():
		return s.oneByOne.Do(ctx, m)
	}
	return s.plain.Do(ctx, m)
}

// DoPart sends messages that calls.PartEnd has put together, in one call of their own.
func (s *Sends) DoPart(ctx context.Context, part []store.Outgoing) ([]store.SendResult, error) {
	if part[0].Durable.Asked() {
		return s.confirmed(ctx, part)
	}
	return s.call(ctx, part)
}

// doDurable is Do for a message with a Durability.
func (s *Sends) doDurable(ctx context.Context, m store.Outgoing) (store.SendResult, error) {
	b, err := s.batcher(m.Durable)
	if err != nil {
		return store.SendResult{}, err
	}
	if b != nil {
		return b.Do(ctx, m)
	}
	defer s.alone.Done()
	results, err := s.confirmed(ctx, []store.Outgoing{m})
	if err != nil {
		return store.SendResult{}, err
	}
	return results[0], nil
}

// batcher returns the batcher of a Durability. It returns nil when there are too many: the caller then sends alone and
// calls alone.Done.
func (s *Sends) batcher(d store.Durability) (*Batcher[store.Outgoing, store.SendResult], error) {
	s.mu.RLock()
	b := s.durable[d]
	s.mu.RUnlock()
	if b != nil {
		return b, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, s.cfg.Closed
	case s.durable[d] != nil:
		return s.durable[d], nil
	case len(s.durable) >= maxDurableBatchers:
		s.alone.Add(1)
		return nil, nil
	}
	cfg := s.cfg
	cfg.Timeout += d.Timeout
	b = newBatcher(s.confirmed, sendSize, cfg)
	b.maxInFlight = maxDurableInFlight
	if s.durable == nil {
		s.durable = map[store.Durability]*Batcher[store.Outgoing, store.SendResult]{}
	}
	s.durable[d] = b
	return b, nil
}

// confirmed sends durable messages. The call ends soon after the client begins to close.
func (s *Sends) confirmed(ctx context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.confirming, func() { cancel(context.Cause(s.confirming)) })()
	return s.mixed(ctx, msgs)
}

// mixed sends messages of which some are sent one by one, in one call for each run of messages that are and of messages
// that are not. When a later call fails, its messages and the messages after it have its error as their result.
func (s *Sends) mixed(ctx context.Context, msgs []store.Outgoing) ([]store.SendResult, error) {
	results := make([]store.SendResult, 0, len(msgs))
	for len(results) < len(msgs) {
		rest := msgs[len(results):]
		n := 1
		for n < len(rest) && rest[n].OneByOne() == rest[0].OneByOne() {
			n++
		}
		part, err := s.call(ctx, rest[:n])
		if err != nil && len(results) == 0 {
			return nil, err
		}
		if err != nil {
			for len(results) < len(msgs) {
				results = append(results, store.SendResult{Err: err})
			}
			break
		}
		results = append(results, part...)
	}
	return results, nil
}

// Close refuses new messages, and returns when the others have their results. DoPart is not affected.
func (s *Sends) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.plain.Close()
	s.oneByOne.Close()
	for _, b := range s.durable { // it no longer changes
		b.Close()
	}
	s.alone.Wait()
	if s.urgent != nil {
		s.urgent.Close()
	}
}
