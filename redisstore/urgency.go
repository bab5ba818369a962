package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// needUrgency has a call that sends messages refused unless the flow of the queue has Urgency, if one of the messages
// has an urgency. Then the call begins with the rendering for queues with a flow, which no other queue accepts. create
// is the index in args of the permission to create the queue.
func (c *call) needUrgency(queue string, create int, n int, urgency func(i int) store.Urgency) {
	if c.plain.flow == nil || store.UrgencyKept(queue) {
		return
	}
	for i := range n {
		if u := urgency(i); u != store.UrgencyNormal {
			c.urgency, c.plain, c.args[create] = u, c.plain.flow(), "2"
			return
		}
	}
}

// runSend executes a call that sends messages, and registers the queue's name, afterwards if the call may be refused: a
// refused call must not list the queue. create is as for needUrgency.
func (s *Store) runSend(ctx context.Context, queue string, c *call, create int, conditional bool) (any, error) {
	if c.urgency != store.UrgencyNormal {
		return s.runUrgent(ctx, queue, c)
	}
	if conditional {
		return s.runCreating(ctx, queue, c, create)
	}
	return s.runRegistered(ctx, queue, c, create)
}

// runUrgent executes a call with an urgency. A refused call must not list the queue, and no reply asks for the queue's
// name. So the first success registers it, as other sends do before, so that a lost registry is rebuilt.
func (s *Store) runUrgent(ctx context.Context, queue string, c *call) (any, error) {
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return nil, err
	}
	if _, known := s.registered.Load(queue); !known {
		if err := s.register(ctx, queue); err != nil { // a later send does it
			s.log.DebugContext(ctx, "registering a queue failed", "queue", queue, "error", err)
		}
	}
	return reply, nil
}

// newerError returns the error of a call that the format of the queue does not let happen.
func (s *Store) newerError(ctx context.Context, queue string, c *call) error {
	if c.urgency != store.UrgencyNormal {
		cmd := redis.NewStringCmd(ctx, "hget", s.keys.key(queue, "meta"), "format")
		err := s.process(ctx, cmd)
		if errors.Is(err, redis.Nil) || err == nil && knownFormat(cmd.Val()) {
			return store.NoUrgency(queue, c.urgency)
		}
	}
	return s.formatError(ctx, queue)
}
