package later

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// CopyConfig configures Copy. The zero value copies the live messages of all queues.
type CopyConfig struct {
	// Queues are the queues to copy. Default: all queues of the source.
	Queues []string
	// Move removes messages from the source once the target has them. It pauses each queue of the source when
	// its turn comes and leaves it paused, since its workers would otherwise continue. Default: the source is
	// only read.
	Move bool
	// Progress is called after each page of messages and at the end of each queue. Copying waits for it to
	// return.
	Progress func(QueueCopy)
}

// CopyResult is the result of a Copy.
type CopyResult struct {
	Queues []QueueCopy // the queues that were started, in order
}

// QueueCopy is the progress of copying one queue. Every message seen is counted once, unless it changes its
// state in the meantime.
type QueueCopy struct {
	Queue string
	// Total is the number of messages in the source when the queue's turn came, including leased ones.
	Total int64
	// Copied is the number of messages added to the target.
	Copied int64
	// Duplicates were already in the target, or their ids are live or within their dedup window there. Nothing
	// was changed. With Move it only counts messages known to be the same.
	Duplicates int64
	// Leased messages were held by workers of the source. They are copied as if they had been released, and
	// are also counted in Copied or Duplicates. With Move they stay in the source, and Leased counts those
	// there at the end.
	Leased int64
	// Conflicts, with Move, stay in the source because the target has them differently. It has another message
	// with that id, has an older version of the same one, or has the id within its dedup window.
	Conflicts int64
	// Refused messages were skipped because they are over a limit or damaged. The error names some of them.
	Refused int64
	// Paused reports whether the queue of the source was paused when its turn came. A pause is not copied.
	Paused bool
}

// Seen returns how many of the Total messages were processed.
func (c QueueCopy) Seen() int64 { return c.Copied + c.Duplicates + c.Conflicts + c.Refused }

const (
	// copyGrace is how long a page in progress may take to finish after the context ends.
	copyGrace = 5 * time.Second
	// leasedPage is the number of leased messages read at once. It is small because engines bound their bytes
	// less tightly.
	leasedPage = 50
	// maxPasses is how often a Move looks for messages that arrived, or came back, while it moved others.
	maxPasses = 10
	// maxRefusals is how many refused messages of a queue the error names.
	maxRefusals = 5
)

// Copy copies live messages from one store to another.
//
// It copies ids, payloads, headers, limits, due times, failed attempts and last errors; the reason and time
// of death of dead messages; and the bytes of unreadable ones. Due times are kept, so the clocks of both
// stores should agree. Dedup windows of acked messages and pauses are not copied. Copy works queue by queue
// and page by page, reads a page while it writes the previous one, and needs memory for a few times
// store.MaxBatchBytes. When ctx ends, it finishes the page in progress within 5 s.
//
// A Copy that failed or was stopped can be repeated: messages that the target already has are left alone.
// However, a message that was delivered at the target in the meantime, and is still in the source, is
// copied and delivered again. Start the target's workers after the copy, or use Move. A copy of a queue
// with busy workers is not a snapshot: messages that change state meanwhile may be missing. Pause the queue
// for a complete copy.
//
// With Move, a message leaves the source when the target has it as safely as it keeps any sent message (a
// target that implements store.Syncer is synced first), and only if it has not changed since it was copied.
// A message that was rescheduled, or cancelled and sent again, is copied anew. A message can be in both
// stores, and so be delivered twice, only if Copy was stopped within a page, or if the message was
// cancelled in the source while its page was in progress. Leased messages stay, and Copy returns ErrLeased;
// they can be moved once their workers have settled them or their leases have expired. Stop sending to the
// source first. Messages sent during a Move are moved as far as Copy sees them.
//
// Copy returns its result along with any error. ErrNotFound for a named queue that does not exist, and
// ErrInvalid for two clients of one store, are returned before anything is copied. (To detect that, Copy
// creates a queue with a random name in the target and deletes it.) ErrLeased and ErrDuplicate report
// messages that a Move left in the source, and ErrInvalid and ErrTooLarge messages over a limit; all other
// messages were copied. A damaged queue of the source is reported as ErrCorrupt and does not stop the
// copying of other queues. Any other error ends Copy.
func Copy(ctx context.Context, to, from *Client, cfg CopyConfig) (CopyResult, error) {
	c := &copier{from: side{from, "source"}, to: side{to, "target"}, cfg: cfg}
	if err := c.checkSides(ctx); err != nil {
		return CopyResult{}, err
	}
	names, err := c.names(ctx)
	if err != nil {
		return CopyResult{}, err
	}
	err = c.all(ctx, names)
	return c.result, err
}

// copier is the state of one Copy.
type copier struct {
	from, to side
	cfg      CopyConfig
	result   CopyResult
	refusals []error // for the first refused messages of each queue
	late     int64   // messages that a Move left behind because they arrived during it
}

// side is one of the two stores.
type side struct {
	client *Client
	name   string
}

// on makes a call to one of the stores and adds to its error which one it is.
func on[T any](s side, call func(store.Store) (T, error)) (T, error) {
	var none T
	if err := s.client.begin(); err != nil {
		return none, fmt.Errorf("%s: %w", s.name, err)
	}
	defer s.client.calls.Done()
	result, err := call(s.client.store)
	if err != nil {
		return none, fmt.Errorf("%s: %w", s.name, err)
	}
	return result, nil
}

func (s side) stats(ctx context.Context, queue string) (Stats, error) {
	return on(s, func(st store.Store) (Stats, error) { return st.Stats(ctx, queue) })
}

func (s side) get(ctx context.Context, queue string, infos []store.Info) ([]*store.Info, error) {
	ids := make([]string, len(infos))
	for i := range infos {
		ids[i] = infos[i].ID
	}
	return on(s, func(st store.Store) ([]*store.Info, error) { return st.Get(ctx, queue, ids) })
}

func (s side) restore(ctx context.Context, queue string, infos []store.Info) ([]store.SendResult, error) {
	return on(s, func(st store.Store) ([]store.SendResult, error) { return st.Restore(ctx, queue, infos) })
}

func (s side) remove(ctx context.Context, queue string, infos []store.Info) ([]bool, error) {
	return on(s, func(st store.Store) ([]bool, error) { return st.Remove(ctx, queue, infos) })
}

// sync makes acknowledged messages durable if the store does not always do so before it answers.
func (s side) sync(ctx context.Context) error {
	_, err := on(s, func(st store.Store) (any, error) {
		if syncer, ok := st.(store.Syncer); ok {
			return nil, syncer.Sync(ctx)
		}
		return nil, nil
	})
	return err
}

// checkSides returns an error if both clients use one store, whatever their URLs: a queue created in the
// target must not appear in the source. Otherwise a Move would remove every message, because the target has
// it.
func (c *copier) checkSides(ctx context.Context) error {
	same := store.Invalid("source and target are the same store: give two")
	if c.from.client == c.to.client || c.from.client.store == c.to.client.store {
		return same
	}
	probe := "later-copy-" + rand.Text()
	long, release := outlive(ctx, copyGrace)
	defer release()
	if _, err := on(c.to, func(s store.Store) (any, error) { return nil, s.SetPaused(ctx, probe, true) }); err != nil {
		return err
	}
	stats, err := c.from.stats(ctx, probe)
	_, deleted := on(c.to, func(s store.Store) (any, error) { return nil, s.Delete(long, probe) })
	if err == nil && stats.Exists {
		return same
	}
	return errors.Join(err, deleted)
}

// names returns the queues to copy.
func (c *copier) names(ctx context.Context) ([]string, error) {
	if len(c.cfg.Queues) == 0 {
		names, err := c.from.client.Queues(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.from.name, err)
		}
		return names, nil
	}
	seen := map[string]bool{}
	var names []string
	for _, name := range c.cfg.Queues {
		if err := store.CheckQueue(name); err != nil {
			return nil, err
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		stats, err := c.from.stats(ctx, name)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		if err == nil && !stats.Exists {
			return nil, fmt.Errorf("queue %q of the source: %w", name, ErrNotFound)
		}
		names = append(names, name)
	}
	return names, nil
}

// all copies the queues and collects the errors.
func (c *copier) all(ctx context.Context, names []string) error {
	var damaged []error
	for _, name := range names {
		q := &queueCopy{copier: c, QueueCopy: QueueCopy{Queue: name}}
		begun, err := q.run(ctx)
		if begun {
			c.result.Queues = append(c.result.Queues, q.QueueCopy)
			c.refusals = append(c.refusals, q.refusals...)
		}
		switch {
		case errors.Is(err, ErrCorrupt) && ctx.Err() == nil:
			damaged = append(damaged, fmt.Errorf("queue %q: %w", name, err))
		case err != nil:
			return errors.Join(append(damaged, fmt.Errorf("queue %q: %w", name, err))...)
		}
	}
	return errors.Join(append(damaged, c.left()...)...)
}

// left returns an error for each kind of message that was not copied or moved.
func (c *copier) left() []error {
	var leased, conflicts, refused int64
	for _, q := range c.result.Queues {
		leased, conflicts, refused = leased+q.Leased, conflicts+q.Conflicts, refused+q.Refused
	}
	errs := slices.Clone(c.refusals)
	if more := refused - int64(len(errs)); more > 0 {
		errs = append(errs, fmt.Errorf("and %d more were left out", more))
	}
	if conflicts > 0 {
		errs = append(errs, fmt.Errorf("%d left in the source, because the target has other messages of their ids, or the "+
			"same in an older version, or has the ids within their dedup window: %w", conflicts, ErrDuplicate))
	}
	if c.cfg.Move && leased > 0 {
		errs = append(errs, fmt.Errorf("%d left in the source, because workers hold them: move again when the workers have "+
			"finished or the leases have expired: %w", leased, ErrLeased))
	}
	if c.late > 0 {
		errs = append(errs, fmt.Errorf("%d arrived in the source while the others were moved: "+
			"stop sending to it and move again", c.late))
	}
	return errs
}

// outlive returns a context that ends grace after ctx does. The caller calls release when done.
func outlive(ctx context.Context, grace time.Duration) (long context.Context, release func()) {
	long, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
		case <-long.Done():
			return
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(ctx))
		case <-long.Done():
		}
	}()
	return long, func() {
		cancel(nil)
		<-ended
	}
}
