package redisstore

import (
	"context"
	"fmt"

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

// Properties implements store.Store.
func (s *Store) Properties(ctx context.Context, queue string) (map[string]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	all, err := s.retry(ctx, func(ctx context.Context) (any, error) {
		return s.rdb.HGetAll(ctx, s.keys.key(queue, propertiesKey)).Result()
	})
	if err != nil {
		return nil, fmt.Errorf("properties of queue %q: %w", queue, err)
	}
	return all.(map[string]string), nil
}
