package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/laterq/later/store"
)

// confirm returns when a failover keeps the directory of a queue as it is in a route, which this process may have read
// before that was certain. It returns ErrConflict if the queue has another one.
func (s *Store) confirm(ctx context.Context, r *route) error {
	return s.engine.SetSign(ctx, r.queue, r.text, r.text)
}

// setDirectory changes the directory of a queue from the one in a route, and returns its new route. It returns the old
// one and ErrConflict if the queue has another directory.
func (s *Store) setDirectory(ctx context.Context, r *route, d *directory) (*route, error) {
	text := d.text()
	if err := s.engine.SetSign(ctx, r.queue, text, r.text); err != nil {
		return r, err
	}
	return s.remember(r.queue, text)
}

// SetShards implements store.Sharder.
func (s *Store) SetShards(ctx context.Context, queue string, n int) error {
	if err := store.CheckShards(queue, n); err != nil {
		return err
	}
	for {
		r, err := s.read(ctx, queue)
		if err == nil {
			r, err = s.usable(ctx, queue, r)
		}
		switch {
		case err != nil:
			return err
		case r == nil && n == 1:
			return nil
		case r == nil:
			err = s.begin(ctx, queue, n)
		case r.To == n: // a goroutine moves messages, here or in another process
			return nil
		case r.Phase == moving:
			return s.beingChanged(r)
		default:
			if err := checkShards(queue, r.limits(), n); err != nil {
				return err
			}
			err = s.beginAgain(ctx, r, n)
		}
		if err != nil && !errors.Is(err, store.ErrConflict) && !isMoved(err) {
			return err
		}
	}
}

// beginAgain begins a change of a queue that has a directory.
func (s *Store) beginAgain(ctx context.Context, r *route, n int) (err error) {
	d := r.directory
	d.Phase, d.Former, d.Generation = preparing, r.Generation, newGeneration()
	d.From, d.To, d.Begun, d.Emptied, d.Mover, d.MovesUntil = r.To, n, time.Now().UnixMilli(), 0, "", 0
	d.HasFlow = true
	if d.Salts, err = s.salts(ctx, r.queue, max(d.From, n), r.Salts); err == nil {
		err = s.answer(ctx, r.queue, &d)
	}
	if err == nil {
		_, err = s.setDirectory(ctx, r, &d)
	}
	return err
}

// answer returns an error unless the servers of all shards of a change answer that is to begin: until all shards are
// renamed or created, no call of the queue is executed.
func (s *Store) answer(ctx context.Context, queue string, d *directory) error {
	errs := make([]error, len(d.Salts))
	inParallel(len(errs), func(i int) {
		_, errs[i] = s.engine.Sign(ctx, store.SubQueue(queue, d.Generation, d.Salts[i]))
	})
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("queue %q cannot change its number of shards now: %w", queue, err)
		}
	}
	return nil
}

// beingChanged is the error of a change during another one.
func (s *Store) beingChanged(r *route) error {
	if r.Emptied != 0 {
		ends := time.UnixMilli(r.Emptied).Add(max(s.late, r.gathers())).UTC().Format(time.DateTime)
		return store.Errorf(store.ErrConflict, "queue %q has changed from %d to %d shards, and the change ends at %s "+
			"UTC, when no call from before it can arrive any more: change it then", r.queue, r.From, r.To, ends)
	}
	return store.Errorf(store.ErrConflict, "queue %q changes from %d to %d shards: wait until that is over", r.queue,
		r.From, r.To)
}

// newGeneration returns the name of a new generation. No two of a queue are the same, also if it had none or was
// deleted in between: otherwise its sub-queues would meet the signs and the parcels of earlier ones.
func newGeneration() string {
	return strconv.FormatInt(time.Now().UnixMilli(), 36) + strconv.FormatUint(uint64(rand.Uint32()), 36)
}

// salts returns the salts of n shards. The first ones are former.
func (s *Store) salts(ctx context.Context, queue string, n int, former []string) ([]string, error) {
	if salter, ok := store.As[store.Salter](s.engine); ok {
		return salter.Salts(ctx, queue, n, former)
	}
	salts := append([]string{}, former[:min(n, len(former))]...)
	for i := len(salts); i < n; i++ {
		if i == 0 {
			salts = append(salts, "")
		} else {
			salts = append(salts, strconv.Itoa(i))
		}
	}
	return salts, nil
}

// begin begins the first change of a queue: its name gets a directory, and the queue that of a sub-queue, in one step.
func (s *Store) begin(ctx context.Context, queue string, n int) error {
	stats, err := s.engine.Stats(ctx, queue)
	if err != nil {
		return err
	}
	if !stats.Exists {
		if err := s.engine.Create(ctx, queue, store.Settings{}); err != nil { // unless it appears meanwhile
			return err
		}
	}
	if err := checkShards(queue, stats.Flow.Flow, n); err != nil {
		return err
	}
	if err := s.checkIDs(ctx, queue, n); err != nil {
		return err
	}
	d := &directory{Phase: preparing, Generation: newGeneration(), From: 1, To: n, Begun: time.Now().UnixMilli()}
	if d.Salts, err = s.salts(ctx, queue, n, nil); err != nil {
		return err
	}
	if err := s.answer(ctx, queue, d); err != nil {
		return err
	}
	return s.engine.Rename(ctx, queue, store.SubQueue(queue, d.Generation, d.Salts[0]), d.text(), "")
}

// checkIDs returns an ErrInvalid if a message with a key has an id that does not fit the key.
func (s *Store) checkIDs(ctx context.Context, queue string, n int) error {
	if s.anyID {
		return nil
	}
	stats, err := s.engine.Stats(ctx, queue)
	if err != nil {
		return err
	}
	for cursor := ""; ; {
		page, err := s.engine.Scan(ctx, queue, cursor)
		if err != nil {
			return err
		}
		chosen := slices.DeleteFunc(page.IDs, func(id string) bool {
			_, made := store.IDTime(id)
			return made && !stats.Flow.Fair // somebody may have chosen it for another key
		})
		for some := range slices.Chunk(chosen, store.MaxDeparture) {
			infos, err := s.engine.Get(ctx, queue, some)
			if err != nil {
				return err
			}
			for _, info := range infos {
				if info != nil && !store.FitsKey(info.ID, info.Key) {
					return store.Field("shards", store.Invalid("queue %q has message %q of key %q, and cannot have %d shards: all "+
						"messages of a key are in one, so a chosen id must begin with %q; wait until the message is done",
						queue, info.ID, info.Key, n, info.Key+"/"))
				}
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

// prepare renames the sub-queues of a queue to the names of the new generation and creates those that are new. A call
// that was made for an old name is refused from then on. Then messages may move.
func (s *Store) prepare(ctx context.Context, r *route) error {
	if err := s.confirm(ctx, r); err != nil {
		return unlessConflict(err)
	}
	for i := range min(r.From, len(r.names)) {
		if r.Former == "" {
			break // the queue was renamed when the directory was written
		}
		old := store.SubQueue(r.queue, r.Former, r.Salts[i])
		if err := s.engine.Rename(ctx, old, r.names[i], gone, ""); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	first, err := s.engine.Stats(ctx, r.first())
	if err != nil && !isMoved(err) {
		return err
	}
	if !r.HasFlow {
		return unlessConflict(s.readFlow(ctx, r, first.Flow.Flow))
	}
	err = s.prepareShards(ctx, r, first)
	if errors.Is(err, store.ErrConflict) { // others have prepared it, and this process may have set an old share since
		if r, err = s.fresh(ctx, r); err == nil {
			err = s.shareOut(ctx, r)
		}
		return err
	}
	if err != nil {
		return err
	}
	d := r.directory
	d.Phase = moving
	if d.Claims, err = s.firstClaims(ctx, r); err != nil {
		return err
	}
	_, err = s.setDirectory(ctx, r, &d)
	return unlessConflict(err)
}

// unlessConflict returns an error of a step of a change, but nil if another process has made it.
func unlessConflict(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// readFlow writes the limits of a queue to the directory of its first change. They may have been set as the change
// began. If a queue with so many shards cannot have them, or has an id that does not fit its key, it gets its name
// back, and SetShards finds the error.
func (s *Store) readFlow(ctx context.Context, r *route, flow store.Flow) error {
	err := checkShards(r.queue, flow, len(r.names))
	if err == nil && flow.Fair {
		err = s.checkIDs(ctx, r.first(), len(r.names))
	}
	if errors.Is(err, store.ErrInvalid) {
		return s.engine.Rename(ctx, r.first(), r.queue, gone, r.text)
	}
	if err != nil {
		return err
	}
	d := r.directory
	if d.HasFlow = true; flow.Limited() {
		d.Flow = &flow
	}
	_, err = s.setDirectory(ctx, r, &d)
	return err
}

// prepareShards creates the shards that are new, and gives each one its share of the limits. All have the settings of
// the first, and give places and fences behind the ones that any shard has given.
func (s *Store) prepareShards(ctx context.Context, r *route, first store.Stats) error {
	for i := range r.names {
		settings := store.Settings{Paused: first.Paused, DeadRetention: first.DeadRetention,
			Flow: share(r.limits(), i, len(r.names))}
		if err := s.engine.Create(ctx, r.names[i], settings); err != nil {
			return err
		}
	}
	if !r.limits().Limited() {
		return nil
	}
	if err := s.applyShares(ctx, r); err != nil {
		return err
	}
	var last int64
	for _, name := range r.names {
		if err := s.given(ctx, r, name, &last); err != nil {
			return err
		}
	}
	for _, name := range r.names {
		if err := s.goOnBehind(ctx, r, name, last); err != nil {
			return err
		}
	}
	return nil
}

// firstClaims returns the shards that messages are claimed from when they begin to move.
func (s *Store) firstClaims(ctx context.Context, r *route) (claims, error) {
	if r.limits().Fair {
		return fromNone, nil
	}
	fits, err := s.fits(ctx, r)
	if fits || err != nil || r.From >= r.To {
		return fromAll, err
	}
	return fromOld, nil
}

// finish ends a change once no call from before it can arrive any more: a call goes to the new shards at once. The
// sub-queues of shards that go are deleted first, because no directory names them afterwards. A call on one of them
// ends the change itself: the process that has begun to may have died. Then the shards that stay get larger shares of
// the limits, and a queue with one shard gets its own name back; any process goes on with that.
func (s *Store) finish(ctx context.Context, r *route) error {
	if err := s.confirm(ctx, r); err != nil {
		return err
	}
	sources, _ := r.sources()
	if err := s.deliverAll(ctx, r, sources); err != nil && !isMoved(err) { // of late calls
		return err
	}
	for _, name := range r.names[r.To:] {
		if err := s.engine.Retire(ctx, name, gone); err != nil {
			return fmt.Errorf("shard %q is empty and could not be deleted: %w", name, err)
		}
	}
	if err := s.expectNone(ctx, r); err != nil {
		return err
	}
	d := r.directory
	d.Phase, d.From, d.Salts = settled, r.To, r.Salts[:r.To]
	d.Mover, d.MovesUntil = "", 0
	d.SetsFlow = r.From > r.To && r.limits().Limited()
	r, err := s.setDirectory(ctx, r, &d)
	if err == nil && (r.SetsFlow || r.single()) {
		_, err = s.usable(ctx, r.queue, r)
	}
	return err
}

// single reports whether a change to one shard is over, so that the queue gets its own name back.
func (d *directory) single() bool { return d.Phase == settled && d.To == 1 }

// takeNameBack gives a queue with one shard its own name back. If the shard was lost, it is created again first:
// without it no rename would end the directory.
func (s *Store) takeNameBack(ctx context.Context, r *route) error {
	err := s.setShare(ctx, r, 0, 1)
	if err == nil {
		err = s.engine.Rename(ctx, r.first(), r.queue, gone, r.text)
	}
	return unlessConflict(err)
}

// ends reports whether the error of a call says that a process has begun to end the change.
func (r *route) ends(moved *store.Moved) bool {
	return r.Phase == moving && r.Emptied != 0 && moved.Sign == gone && slices.Contains(r.names[r.To:], moved.Name)
}

// finishDelete deletes the sub-queues of a queue, and then its directory.
func (s *Store) finishDelete(ctx context.Context, r *route) error {
	if err := s.confirm(ctx, r); err != nil {
		return unlessConflict(err)
	}
	for _, name := range r.names {
		if err := s.engine.Retire(ctx, name, gone); err != nil {
			return err
		}
	}
	err := s.engine.SetSign(ctx, r.queue, "", r.text)
	if errors.Is(err, store.ErrConflict) {
		err = nil // another process has
	}
	if err == nil {
		_, err = s.read(ctx, r.queue)
	}
	return err
}

// Shards implements store.Sharder.
func (s *Store) Shards(ctx context.Context, queue string) (shards store.Shards, err error) {
	if s.known(queue) != nil { // a change that has just begun refuses no call yet
		if _, err := s.read(ctx, queue); err != nil {
			return store.Shards{}, err
		}
	}
	err = s.with(ctx, queue, func(r *route) error {
		if r == nil {
			shards = store.Shards{Number: 1, From: 1}
			stats, err := s.engine.Stats(ctx, queue)
			shards.Each = []store.Shard{{Stats: stats, Err: err, Server: s.server(ctx, queue)}}
			return err
		}
		shards = store.Shards{Number: r.To, From: r.From, Moving: r.Phase == moving && r.Emptied == 0,
			Each: make([]store.Shard, len(r.names))}
		if r.Phase == moving {
			shards.Since = time.UnixMilli(r.Begun)
		}
		inParallel(len(r.names), func(i int) {
			one := &shards.Each[i]
			one.Server = s.server(ctx, r.names[i])
			one.Stats, one.Err = s.engine.Stats(ctx, r.names[i])
			one.Leaving = leavingFrom(r, i, &one.Stats)
		})
		for i := range shards.Each {
			one := &shards.Each[i]
			if isMoved(one.Err) {
				return one.Err
			}
			if over := time.UnixMilli(r.Until); r.Claims == fromNone ||
				r.Until != 0 && one.Err == nil && !one.Stats.Now.Before(over) {
				shards.Stopped = true
			}
		}
		return nil
	})
	return shards, err
}

// leavingFrom returns about how many messages of a shard still have to move, -1 for a shard that stays while others are
// added.
func leavingFrom(r *route, shard int, stats *store.Stats) int64 {
	if r.Phase != moving || r.Emptied != 0 {
		return 0
	}
	total := stats.Scheduled + stats.Ready + stats.Leased + stats.Dead
	switch {
	case shard >= r.To:
		return total
	case shard >= r.From || r.From > r.To:
		return 0
	}
	return -1
}

// server returns where a sub-queue is, or "".
func (s *Store) server(ctx context.Context, name string) string {
	if l, ok := store.As[store.Locator](s.engine); ok {
		return l.ServerOf(ctx, name)
	}
	return ""
}
