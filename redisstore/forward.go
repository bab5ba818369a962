package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

var _ store.Forwarder = (*Store)(nil)

// ForwardsTo implements store.Forwarder. In a Cluster, Forward reaches keys and channels with the name of the queue as
// hash tag, because a script cannot change two slots.
func (s *Store) ForwardsTo(queue string, to store.Target) (bool, error) {
	if err := to.Check(); err != nil {
		return false, err
	}
	switch {
	case to.Kind == store.TargetQueue && to.Name == queue:
		return false, store.Invalid("destination of queue %q is the queue itself: give another one", queue)
	case to.Kind == store.TargetQueue:
		return s.Linked(queue, to.Name), nil
	case to.Kind != store.TargetChannel && s.keys.prefix != "" && strings.HasPrefix(to.Name, s.keys.prefix):
		return false, store.Invalid("destination %q begins with %q, as this store's own keys do: give another key", to,
			s.keys.prefix)
	}
	tag, _ := keyParts(queue)
	return !s.isCluster() || hashTag(to.Name) == tag, nil
}

// hashTag returns the part of a key that selects its slot.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// Forward implements store.Forwarder. It works on a full server too: a move needs no memory.
func (s *Store) Forward(ctx context.Context, queue string, req store.ForwardRequest) (store.Forwarded, error) {
	direct, err := s.ForwardsTo(queue, req.To)
	if err != nil {
		return store.Forwarded{}, err
	}
	if !direct {
		return store.Forwarded{}, store.Invalid("queue %q cannot be moved to %q in one step: they are in different "+
			"slots of the Cluster", queue, req.To)
	}
	if err := s.ready(ctx); err != nil {
		return store.Forwarded{}, err
	}
	c := s.newCall("forward", queue, 7+len(keyNames))
	option, channel := any("0"), ""
	switch req.To.Kind {
	case store.TargetQueue:
		c.addQueue(s.keys.of(req.To.Name))
	case store.TargetList:
		c.add(req.To.Name)
		option = "RPUSH"
		if req.To.Front {
			option = "LPUSH"
		}
	case store.TargetStream:
		c.add(req.To.Name)
		option = req.To.MaxLen
	case store.TargetChannel:
		option, channel = "PUBLISH", req.To.Name
		if s.isCluster() {
			option = "SPUBLISH"
			c.add(channel)
		}
	}
	c.args[2] = len(c.args) - 3
	waiting := s.waker.claiming(ctx, queue)
	c.add(req.Max, waiting.channel, string(req.To.Kind))
	create := len(c.args)
	c.add(option, channel, req.IDs)
	var reply any
	if req.To.Kind == store.TargetQueue {
		reply, err = s.runAllRegistered(ctx, queue, c, []string{req.To.Name}, []int{create})
	} else {
		reply, err = s.run(ctx, queue, c)
	}
	if found, ok := reply.(string); err == nil && ok {
		err = fmt.Errorf("%w: key %q is a %s, not a %s: delete it or choose another key", store.ErrUnavailable,
			req.To.Name, found, req.To.Kind)
	}
	if err != nil {
		s.waker.failed(waiting)
		return store.Forwarded{}, err
	}
	r := reply.([]any)
	f := store.Forwarded{
		Now:   time.UnixMicro(r[0].(int64)),
		More:  r[2].(int64) == 1,
		Count: int(r[3].(int64)),
		IDs:   texts(r[4]), Died: texts(r[5]), Expired: texts(r[6]),
	}
	if len(r) > 7 {
		f.Dropped = texts(r[7])
	}
	s.waker.claimed(waiting, claimReply{now: f.Now, next: c.nextTime(r[1]), more: f.More,
		busy: r[2].(int64) == 2, removed: f.Count > 0})
	return f, nil
}

// texts returns a list of a reply.
func texts(reply any) (list []string) {
	for _, text := range reply.([]any) {
		list = append(list, text.(string))
	}
	return list
}

// Deliver implements store.Forwarder.
func (s *Store) Deliver(ctx context.Context, to store.Target, msgs []store.Claimed) error {
	if _, err := s.ForwardsTo("", to); err != nil {
		return err
	}
	if to.Kind == store.TargetQueue {
		return store.Invalid("destination %q is a queue: send the messages to it", to)
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.retry(ctx, func(ctx context.Context) (any, error) {
		cmds, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, args := range s.deliverArgs(to, msgs) {
				p.Process(ctx, scriptCmd{redis.NewCmd(ctx, args...)})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		return cmds, nil
	})
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return fmt.Errorf("%w: key %q is not a %s: delete it or choose another key", store.ErrUnavailable,
			to.Name, to.Kind)
	}
	if err != nil {
		return fmt.Errorf("deliver to %q: %w", to, err)
	}
	return nil
}

// deliverArgs returns the commands that write messages to a list, stream or channel.
func (s *Store) deliverArgs(to store.Target, msgs []store.Claimed) (commands [][]any) {
	switch to.Kind {
	case store.TargetList:
		push := []any{"rpush", to.Name}
		if to.Front {
			push[0] = "lpush"
		}
		for i := range msgs {
			push = append(push, msgs[i].Payload)
		}
		return [][]any{push}
	case store.TargetChannel:
		publish := "publish"
		if s.isCluster() {
			publish = "spublish"
		}
		for i := range msgs {
			commands = append(commands, []any{publish, to.Name, msgs[i].Payload})
		}
		return commands
	}
	for i := range msgs {
		m := &msgs[i]
		add := []any{"xadd", to.Name}
		if to.MaxLen > 0 {
			add = append(add, "maxlen", "~", to.MaxLen)
		}
		add = append(add, "*", store.StreamID, m.ID, store.StreamPayload, m.Payload, store.StreamDue, m.Due.UnixMilli())
		for _, name := range envelope.HeaderNames(&m.Message) {
			add = append(add, store.HeaderField+name, m.Headers[name])
		}
		commands = append(commands, add)
	}
	return commands
}
