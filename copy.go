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

// CopyConfig says what Copy does. The zero value copies the living messages of all queues.
type CopyConfig struct {
	// Queues are the queues to copy. Default: all that the source has.
	Queues []string
	// Move removes from the source what the target has, and pauses each queue of the source when its turn comes, and
	// leaves it paused: without that its workers would go on. Default: the source is only read.
	Move bool
	// Progress is called after each page of messages and at the end of each queue. It holds up the copying.
	Progress func(QueueCopy)
}

// CopyResult tells what Copy did.
type CopyResult struct {
	Queues []QueueCopy // those that were begun, in order
}

// QueueCopy tells how far the copying of a queue got. Every message that was seen is counted once, unless it changed
// its state meanwhile.
type QueueCopy struct {
	Queue string
	// Total is the number of messages that the source had when the queue's turn came, leased ones too.
	Total int64
	// Copied messages were added to the target.
	Copied int64
	// Duplicates were at the target already, or their ids are living or remembered there, and nothing was changed. With
	// Move it counts those only that are known to be the same messages.
	Duplicates int64
	// Leased messages were held by workers of the source. They were copied as if they had been released, and are among
	// Copied and Duplicates; with Move they were left in the source, and Leased counts those that are there at the end.
	Leased int64
	// Conflicts, with Move, were left in the source, because the target has another message of that id, or the same one in
	// an older condition, or remembers the id as done.
	Conflicts int64
	// Refused messages were left out, because they are over a limit or are damaged. The error names some of them.
	Refused int64
	// Paused tells that the queue of the source was paused when its turn came. A pause is not copied.
	Paused bool
}

// Seen is the number of messages that were dealt with, of Total.
func (c QueueCopy) Seen() int64 { return c.Copied + c.Duplicates + c.Conflicts + c.Refused }

const (
	// copyGrace is how long a page that is under way may take to be finished when the context ends.
	copyGrace = 5 * time.Second
	// leasedPage is the number of leased messages that are read at once: engines bound their bytes less well.
	leasedPage = 50
	// maxPasses is how often a Move looks for messages that came, or came back, while it moved the others.
	maxPasses = 10
	// maxRefusals is how many refused messages of a queue the error names.
	maxRefusals = 5
)

// Copy copies living messages from one store to another: their ids, payloads, headers and limits, due times, failed
// attempts, last errors and, of dead ones, reason and time of death; unreadable ones with their bytes. Due times are
// kept, so the clocks of both stores should agree. Ids that are remembered after their ack, and pauses, are not
// copied. It goes queue by queue and page by page, reads a page while it writes the one before, and needs memory for
// a few times store.MaxBatchBytes. When ctx ends it finishes the page that is under way, within 5 s.
//
// A Copy that failed or was stopped is made again: what the target has is left alone. But what was delivered at the
// target in between, and is still in the source, comes again: begin the target's workers when the copy is done, or use
// Move. A copy of a queue in which workers are busy is no snapshot; what changes its state meanwhile may be missing.
// Pause the queue for a complete one.
//
// With Move each message leaves the source when the target has it, as safely as it keeps what is sent to it (one that
// implements store.Syncer is synced first), and only if it is still as it was copied: one that was rescheduled, or
// cancelled and sent again, meanwhile is copied anew. A message can be in both stores, and so come twice, only where
// Copy was stopped within a page, or where it was cancelled in the source while its page was under way. Leased
// messages are left, with ErrLeased at the end: they can be moved when their workers have settled them, or their
// leases have run out. Stop sending to the source first; what is sent meanwhile is moved as far as it is seen.
//
// The result tells what was done, with an error too. A queue that is named and does not exist is ErrNotFound, and two
// clients of one store are ErrInvalid; both are found before anything is copied (to tell whether the stores are one,
// Copy makes a queue of a random name at the target and deletes it). Messages left out of a Move are ErrLeased and
// ErrDuplicate, those that are over a limit ErrInvalid or ErrTooLarge; all others were copied then. A damaged queue of
// the source, ErrCorrupt, does not keep the others from being copied. After any other error Copy ends.
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

// copier is one Copy.
type copier struct {
	from, to side
	cfg      CopyConfig
	result   CopyResult
	refusals []error // of the first refused messages of each queue
	late     int64   // messages that a Move left because they came meanwhile
}

// side is one of the two stores.
type side struct {
	client *Client
	name   string
}

// on makes a call to one of the stores, and says of its error which one that is.
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

// sync makes durable what the store has acknowledged, if it does not always do that before it answers.
func (s side) sync(ctx context.Context) error {
	_, err := on(s, func(st store.Store) (any, error) {
		if syncer, ok := st.(store.Syncer); ok {
			return nil, syncer.Sync(ctx)
		}
		return nil, nil
	})
	return err
}

// checkSides refuses two clients of one store, by whatever URLs they reach it: a queue that is made at the target must
// not be seen in the source. A Move from a store to itself would remove every message as one that the target has.
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

// names gives the queues to copy.
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

// all copies the queues and gathers what was left.
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

// left tells what was not copied or moved, by kind.
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
			"same in an older condition, or remembers the ids as done: %w", conflicts, ErrDuplicate))
	}
	if c.cfg.Move && leased > 0 {
		errs = append(errs, fmt.Errorf("%d left in the source, because workers hold them: move again when the workers have "+
			"finished or the leases have run out: %w", leased, ErrLeased))
	}
	if c.late > 0 {
		errs = append(errs, fmt.Errorf("%d came to the source while the others were moved: stop sending to it, and move again", c.late))
	}
	return errs
}

// outlive gives a context that ends so long after ctx does. Call release when done.
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
