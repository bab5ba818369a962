package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/laterq/later/store"
)

// SetProperties implements store.Store. Like SetPaused, it works on a full server if the queue exists.
func (s *Store) SetProperties(
	ctx context.Context, queue string, set map[string]string, condition *store.Condition,
) error {
	if err := store.CheckProperties(set); err != nil {
		return err
	}
	c := s.newCall("set_properties", queue, 6+2*len(set))
	c.addKey(s.keys.key(queue, propertiesKey))
	defer s.sessions.release(s.stampRequest(ctx, c))
	create := len(c.args)
	c.add("0", condition != nil)
	c.addCondition(condition)
	for name, value := range set {
		c.add(name, value)
	}
	reply, err := s.runCreating(ctx, queue, c, create)
	if err != nil {
		return err
	}
	if isConflict(reply) {
		return fmt.Errorf("queue %q: %w", queue, store.ErrConflict)
	}
	if err := store.CheckPropertyCount(int(reply.(int64))); err != nil {
		return fmt.Errorf("queue %q: %w", queue, err)
	}
	return nil
}

// signProperty is a property of a name that has a sign in place of a queue, and of no queue. So one command reads the
// properties and finds a sign, as a script would. Sub-queues, whose properties are hardly ever read, have none.
const signProperty = ""

// Properties implements store.Store.
func (s *Store) Properties(ctx context.Context, queue string) (map[string]string, error) {
	if isSubQueue(queue) {
		return s.subProperties(ctx, queue)
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := s.retry(ctx, func(ctx context.Context) (any, error) {
		return s.rdb.HGetAll(ctx, s.keys.key(queue, propertiesKey)).Result()
	})
	if err != nil {
		return nil, fmt.Errorf("properties of queue %q: %w", queue, err)
	}
	properties := all.(map[string]string)
	if _, signed := properties[signProperty]; signed {
		return nil, s.formatError(ctx, queue)
	}
	return properties, nil
}

// subProperties is Properties for a sub-queue.
func (s *Store) subProperties(ctx context.Context, queue string) (map[string]string, error) {
	c := s.newCall("properties", queue, 1)
	c.addKey(s.keys.key(queue, propertiesKey))
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for pair := range slices.Chunk(texts(reply), 2) {
		all[pair[0]] = pair[1]
	}
	return all, nil
}
