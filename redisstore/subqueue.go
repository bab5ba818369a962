package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

var _ store.SubQueues = (*Store)(nil)

// A sign of a sub-queue ends, because there is a new one after each change of the shards of a queue, and nobody uses an
// old generation for so long. Then its calls find that there is no such sub-queue. A sign of a queue stays.
const signFor = 24 * time.Hour

// signMillis is signFor for the scripts, 0 for a sign that stays.
func signMillis(name string) int64 {
	if isSubQueue(name) {
		return signFor.Milliseconds()
	}
	return 0
}

// wholeKeyNames are the names of all keys of a queue, for the scripts that work on all of them: first the ones that
// these look at.
var wholeKeyNames = func() []string {
	first := []string{"meta", "wake", outboxKey, propertiesKey}
	others := slices.DeleteFunc(slices.Clone(allKeyNames), func(name string) bool { return slices.Contains(first, name) })
	return append(first, others...)
}()

// newWholeCall returns a call of a script with all keys of some names.
func (s *Store) newWholeCall(script string, names ...string) *call {
	sc := s.scripts[script]
	c := &call{script: sc, plain: sc, args: []any{"evalsha", sc.id, 0}}
	for _, name := range names {
		for _, key := range wholeKeyNames {
			c.addKey(s.keys.key(name, key))
		}
	}
	return c
}

// Sign implements store.SubQueues.
func (s *Store) Sign(ctx context.Context, name string) (string, error) {
	if err := s.ready(ctx); err != nil {
		return "", err
	}
	sign, err := s.retry(ctx, func(ctx context.Context) (any, error) {
		format, sign, err := s.readFormat(ctx, name)
		if format != signFormat {
			sign = ""
		}
		return sign, err
	})
	if err != nil {
		return "", fmt.Errorf("sign of queue %q: %w", name, err)
	}
	return sign.(string), nil
}

// SetSign implements store.SubQueues.
func (s *Store) SetSign(ctx context.Context, name, sign, former string) error {
	c := s.signCall(name, sign, former)
	c.repeated = len(c.args) - 1
	reply, err := s.runSafely(ctx, name, c)
	switch {
	case err != nil:
		return err
	case isConflict(reply) && c.args[c.repeated] == "1": // its first attempt may have set a sign that is gone by now
		return fmt.Errorf("sign of queue %q has changed, perhaps twice: %w", name, store.ErrUnavailable)
	case isConflict(reply):
		return fmt.Errorf("sign of queue %q: %w", name, store.ErrConflict)
	case sign == "":
		return s.unregister(ctx, name)
	}
	return nil
}

func (s *Store) signCall(name, sign, former string) *call {
	c := s.newServerCall("set_sign", s.keys.key(name, "meta"))
	c.addKey(s.keys.key(name, propertiesKey))
	c.add(sign, former, signMillis(name), "0")
	return c
}

// Create implements store.SubQueues.
func (s *Store) Create(ctx context.Context, name string, to store.Settings) error {
	if err := errors.Join(to.DeadRetention.Check(), store.CheckFlow(name, to.Flow)); err != nil {
		return err
	}
	if err := s.listName(ctx, name); err != nil {
		return err
	}
	c := s.newServerCall("create", s.keys.key(name, "meta"), to.Paused, store.Millis(to.DeadRetention.MaxAge),
		to.DeadRetention.MaxCount)
	c.addFlow(to.Flow)
	_, err := s.runSafely(ctx, name, c)
	return err
}

// listName registers the name of a queue, so that listings have it. A full server refuses that, but usually has the
// name.
func (s *Store) listName(ctx context.Context, name string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	err := s.register(ctx, name)
	if errors.Is(err, store.ErrFull) && s.rdb.SIsMember(ctx, s.keys.registry(), name).Val() {
		return nil
	}
	return err
}

// Rename implements store.SubQueues.
func (s *Store) Rename(ctx context.Context, from, to, sign, former string) error {
	for _, name := range []string{from, to} {
		if err := s.listName(ctx, name); err != nil {
			return err
		}
	}
	reply, err := s.runSafely(ctx, from, s.renameCall(from, to, sign, former))
	if err == nil && isConflict(reply) {
		err = fmt.Errorf("rename queue %q to %q: %w", from, to, store.ErrConflict)
	}
	return err
}

func (s *Store) renameCall(from, to, sign, former string) *call {
	c := s.newWholeCall("rename", from, to)
	c.add(sign, former, signMillis(from))
	return c
}

// Retire implements store.SubQueues.
func (s *Store) Retire(ctx context.Context, name, sign string) error {
	if err := s.listName(ctx, name); err != nil {
		return err
	}
	c := s.newWholeCall("retire", name)
	c.add(sign, signMillis(name))
	_, err := s.runSafely(ctx, name, c)
	return err
}
