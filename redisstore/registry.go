package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// The set of the names of all queues has a slot of its own, so it cannot change atomically with a queue. A process adds
// a name before it creates the queue. A name with a sign in place of a queue is in it, and no sub-queue is.

// runRegistered executes a call that may create the queue, and registers the queue's name first. flag is the index in
// args of the permission to create it.
func (s *Store) runRegistered(ctx context.Context, queue string, c *call, flag int) (any, error) {
	return s.runAllRegistered(ctx, queue, c, []string{queue}, []int{flag})
}

// runAllRegistered executes a call that may create the queues of some names, and registers these first. It does so on
// their first use in this process, and whenever the script reports that a queue does not exist; then it repeats the
// call with permission to create all. flags are the indexes in args of these permissions. Sub-queues are neither
// created nor registered.
func (s *Store) runAllRegistered(
	ctx context.Context, queue string, c *call, names []string, flags []int,
) (reply any, err error) {
	for i, name := range names {
		if _, known := s.registered.Load(name); known || isSubQueue(name) {
			continue
		}
		// Register on the first use even if the queue exists, so that a lost registry is rebuilt.
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
		if err := s.register(ctx, name); err != nil {
			return nil, err
		}
		c.args[flags[i]] = "1"
		c.common = nil // the queue may not exist
	}
	if reply, err = s.runNaming(ctx, queue, c, names); err != nil || reply != any(int64(replyUnregistered)) {
		return reply, err
	}
	for i, name := range names {
		if isSubQueue(name) {
			continue
		}
		if err := s.register(ctx, name); err != nil {
			return nil, err
		}
		c.args[flags[i]] = "1"
	}
	if reply, err = s.runNaming(ctx, queue, c, names); err != nil {
		return nil, err
	}
	if reply == any(int64(replyUnregistered)) {
		return nil, s.missingError(ctx, names)
	}
	for _, name := range names { // again, in case a Delete removed one in between
		if err := s.register(ctx, name); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// missingError returns the error of a call for several names, one of which is a sub-queue that does not exist.
func (s *Store) missingError(ctx context.Context, names []string) error {
	moved := &store.Moved{}
	for _, name := range slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !isSubQueue(name) }) {
		if moved.Name == "" {
			moved.Name = name
		}
		format, sign, err := s.readFormat(ctx, name)
		if err == nil && (format == "" || format == signFormat) {
			return &store.Moved{Name: name, Sign: sign}
		}
	}
	return moved // it exists by now
}

// runNaming executes a call like run. A script that reads more queues replies which one of names has another format.
func (s *Store) runNaming(ctx context.Context, queue string, c *call, names []string) (any, error) {
	reply, err := s.run(ctx, queue, c)
	if number, ok := newerQueue(reply); ok {
		return nil, s.formatError(ctx, names[number-1])
	}
	return reply, err
}

// runCreating executes a call that creates the queue if it does not exist, and only then registers the queue's name.
func (s *Store) runCreating(ctx context.Context, queue string, c *call, flag int) (any, error) {
	reply, err := s.run(ctx, queue, c)
	if err != nil || reply != any(int64(replyUnregistered)) {
		return reply, err
	}
	s.registered.Delete(queue)
	return s.runRegistered(ctx, queue, c, flag)
}

// register adds a queue's name to the registry, unless it is a sub-queue.
func (s *Store) register(ctx context.Context, queue string) error {
	if isSubQueue(queue) {
		return nil
	}
	_, err := s.retry(ctx, func(ctx context.Context) (any, error) {
		return nil, s.process(ctx, redis.NewIntCmd(ctx, "sadd", s.keys.registry(), queue))
	})
	if err != nil {
		return fmt.Errorf("register queue %q: %w", queue, err)
	}
	if _, known := s.registered.Swap(queue, true); !known && s.registeredCount.Add(1) > maxNames {
		s.registered.Clear()
		s.registeredCount.Store(0)
	}
	return nil
}

// Queues implements store.Store.
func (s *Store) Queues(ctx context.Context, cursor string) ([]string, string, error) {
	at := uint64(0)
	if cursor != "" {
		var err error
		if at, err = strconv.ParseUint(cursor, 10, 64); err != nil {
			return nil, "", badCursor(cursor)
		}
	}
	if err := s.ready(ctx); err != nil {
		return nil, "", err
	}
	var next uint64
	names, err := s.retry(ctx, func(ctx context.Context) (any, error) {
		var names []string
		var err error
		names, next, err = s.rdb.SScan(ctx, s.keys.registry(), at, "", 100).Result()
		return names, err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list queues: %w", err)
	}
	if next == 0 {
		return names.([]string), "", nil
	}
	return names.([]string), strconv.FormatUint(next, 10), nil
}

// Delete implements store.Store. It removes the queue before its name.
func (s *Store) Delete(ctx context.Context, queue string) error {
	c := s.newCall("delete", queue, 2)
	c.addKey(s.keys.key(queue, propertiesKey))
	c.addKey(s.keys.key(queue, activityKey))
	s.addOnceKeys(c, queue)
	c.addKey(s.keys.key(queue, outboxKey))
	if _, err := s.run(ctx, queue, c); err != nil {
		return err
	}
	if err := s.unregister(ctx, queue); err != nil {
		return fmt.Errorf("delete queue %q: %w", queue, err)
	}
	s.forget(queue)
	return nil
}

// forget frees the state of a queue that this process may not use again. A process that is held back by a limit leaves
// and comes back often, so it keeps that of a queue with a flow.
func (s *Store) forget(queue string) {
	if _, used := s.registered.Load(queue); !used && !s.keys.of(queue).flow.Load() {
		s.keys.forget(queue)
	}
}

// unregister removes the name of a queue that does not exist. It registers the name again if the queue was created in
// between.
func (s *Store) unregister(ctx context.Context, queue string) error {
	if isSubQueue(queue) {
		return nil
	}
	s.registered.Delete(queue)
	_, err := s.retry(ctx, func(ctx context.Context) (any, error) {
		return s.rdb.SRem(ctx, s.keys.registry(), queue).Result()
	})
	if err != nil {
		return err
	}
	st, err := s.Stats(ctx, queue)
	if _, signed := errors.AsType[*store.Moved](err); signed {
		return s.register(ctx, queue)
	}
	if err != nil || !st.Exists {
		return err
	}
	return s.register(ctx, queue)
}
