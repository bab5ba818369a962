package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// Stepwise has a store of New change the shards of its queues only in Step, for tests of engines. A change can then end
// without delay, because no call of the test is late.
func Stepwise(s store.Store) {
	of := storeOf(s)
	of.stepwise, of.late = true, 0
}

// Hurry has a store of New end changes sooner, for tests with calls that are late by at most late, and replace a
// mover that has died after turn. All processes that use the queues must do so. The name is that of this process among
// movers.
func Hurry(s store.Store, name string, late, turn time.Duration) {
	of := storeOf(s)
	of.name, of.late, of.turn = name, late, turn
}

// AnyID has a store of New take ids that do not fit the keys of their messages, for tests that have all ids in one
// shard.
func AnyID(s store.Store) { storeOf(s).anyID = true }

// Windows has a store of New move the messages of a Fair queue in windows of n messages, or more that are due ahead of
// the time of the engine.
func Windows(s store.Store, n int, ahead time.Duration) {
	of := storeOf(s)
	of.window, of.ahead = n, ahead
}

// Patience has a store of New wait for a claim from a shard for so long before it asks others.
func Patience(s store.Store, d time.Duration) { storeOf(s).patience = d }

// Mover returns the name of the process that moves messages of a queue now, or "".
func Mover(ctx context.Context, over store.Store, queue string) (name string, err error) {
	r, err := storeOf(over).read(ctx, queue)
	if err != nil || r == nil || r.Phase != moving || r.Emptied != 0 {
		return "", err
	}
	return r.Mover, nil
}

// Directory returns the directory of a queue as it is stored.
func Directory(ctx context.Context, over store.Store, queue string) (string, error) {
	return storeOf(over).engine.Sign(ctx, queue)
}

// Names returns the names of the sub-queues of a queue.
func Names(ctx context.Context, over store.Store, queue string) ([]string, error) {
	r, err := storeOf(over).read(ctx, queue)
	if err != nil || r == nil {
		return []string{queue}, err
	}
	return r.names, nil
}

// storeOf returns the Store in a result of New.
func storeOf(s store.Store) *Store {
	of, _ := s.(interface{ base() *Store })
	return of.base()
}

func (s *Store) base() *Store { return s }

// Step makes a part of a change of the shards of a queue, which may be interrupted at any call of the engine. If no
// change is under way, it begins one to n shards, unless the queue does not exist. It reports whether it has ended a
// change.
func Step(ctx context.Context, over store.Store, queue string, n int) (ended bool, err error) {
	s := storeOf(over)
	r, err := s.read(ctx, queue)
	if err != nil {
		return false, err
	}
	switch {
	case r == nil && n == 1, r != nil && r.Phase == settled && r.To == n:
		return false, nil
	case r == nil:
		if stats, err := s.engine.Stats(ctx, queue); err != nil || !stats.Exists {
			return false, err
		}
		err = s.begin(ctx, queue, n)
	case r.Phase == preparing:
		err = s.prepare(ctx, r)
	case r.Phase == deleting:
		err = s.finishDelete(ctx, r)
	case r.Phase == settled:
		err = s.beginAgain(ctx, r, n)
	case r.Emptied != 0 && r.Claims != fromAll:
		_, err = s.openIfFits(ctx, r)
	case r.Emptied != 0:
		var left time.Duration
		if left, err = s.untilEnd(ctx, r); err == nil && left <= 0 {
			err = s.finish(ctx, r)
			ended = err == nil
		}
	default:
		_, _, err = s.pass(ctx, r)
	}
	if errors.Is(err, store.ErrConflict) || isMoved(err) { // an interrupted step has changed more than it knew
		err = nil
	}
	return ended, err
}

// Gather moves all messages of a queue to where they belong, but leased ones, and returns the names of its sub-queues.
func Gather(ctx context.Context, over store.Store, queue string) (names []string, err error) {
	s := storeOf(over)
	r, err := s.read(ctx, queue)
	if err == nil {
		r, err = s.usable(ctx, queue, r)
	}
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return []string{queue}, nil
	case r.Phase == moving && r.Emptied == 0:
		if _, _, err := s.pass(ctx, r); err != nil && !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
	case r.Phase == moving: // perhaps a step that ends the change was interrupted
		for _, name := range r.names[r.To:] {
			if sign, err := s.engine.Sign(ctx, name); err != nil {
				return nil, err
			} else if sign != gone {
				continue
			}
			if err := s.finish(ctx, r); err != nil && !errors.Is(err, store.ErrConflict) {
				return nil, err
			}
			return Names(ctx, over, queue)
		}
	}
	return r.names, nil
}

// CheckShares returns an error unless each shard of a queue has its share of the limits.
func CheckShares(ctx context.Context, over store.Store, queue string) error {
	s := storeOf(over)
	r, err := s.read(ctx, queue)
	if err != nil || r == nil {
		return err
	}
	for i, name := range r.names {
		stats, err := s.engine.Stats(ctx, name)
		if err != nil {
			return fmt.Errorf("shard %d of queue %q: %w", i, queue, err)
		}
		if want := share(r.limits(), i, len(r.names)); stats.Flow.Flow != want {
			return fmt.Errorf("shard %d of queue %q has the limits %+v; its share is %+v, in %s", i, queue, stats.Flow.Flow,
				want, r.text)
		}
	}
	return nil
}
