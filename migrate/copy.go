package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/laterq/later"
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
	// Leased messages were held by workers of the source. They are copied as if they had been released, and are also
	// counted in Copied or Duplicates. With Move they stay in the source, and Leased counts the ones there at the end.
	Leased int64
	// Conflicts, with Move, stay in the source because the target has them differently. It has another message
	// with that id, has an older version of the same one, or has the id within its dedup window.
	Conflicts int64
	// Refused messages were skipped because they are over a limit or damaged. The error names some of them.
	Refused int64
	// Paused reports whether the queue of the source was paused when its turn came. A pause is not copied.
	Paused bool
	// Limits says whether the target has the limits of the queue and its keys.
	Limits Limits
}

// Seen returns how many of the Total messages were processed.
func (c QueueCopy) Seen() int64 { return c.Copied + c.Duplicates + c.Conflicts + c.Refused }

const (
	// copyGrace is how long a page in progress may take to finish after the context ends.
	copyGrace = 5 * time.Second
	// maxPasses is how often a Move looks for messages that arrived, or came back, while it moved others.
	maxPasses = 10
)

// Copy copies live messages from one store to another.
//
// It copies ids, payloads, headers, limits, due times, failed attempts and last errors; the reason and time of death of
// dead messages; and the bytes of unreadable ones. Due times are kept, so the clocks of both stores should agree. Copy
// also copies the properties of queues, except properties that the target's queue has already, and the limits of queues
// and keys, before the messages, unless the target's queue has limits. Dedup windows of acked messages, pauses and
// retentions are not copied. Copy works queue by queue and page by page, reads a page
// while it writes the previous one, and needs memory for a few times store.MaxBatchBytes. When ctx ends, it finishes
// the page in progress within 5 s. Do not close the clients before Copy returns.
//
// A Copy that failed or was stopped can be repeated: messages that the target already has are left alone. However, a
// message that was delivered at the target in the meantime, and is still in the source, is copied and delivered again.
// Start the target's workers after the copy, or use Move. A copy of a queue with busy workers is not a snapshot:
// messages that change state during the copy may be missing. Pause the queue for a complete copy.
//
// With Move, a message leaves the source when the target has it as safely as it keeps any sent message (a target that
// implements store.Syncer is synced first), and only if it has not changed since it was copied. A message that was
// rescheduled, or cancelled and sent again, is copied again. A message can be in both stores, and so be delivered
// twice, only if Copy was stopped within a page, or if the message was cancelled in the source while its page was in
// progress. Leased messages stay, and Copy returns ErrLeased; they can be moved once their workers have settled them or
// their leases have expired. Stop sending to the source first. Messages sent during a Move are moved as far as Copy
// sees them.
//
// Copy returns its result along with any error. ErrNotFound for a named queue that does not exist, and ErrInvalid for
// two clients of one store, are returned before anything is copied. (To detect that, Copy creates a queue with a random
// name in the target and deletes it.) Any other error may be several, joined by errors.Join in this order:
//
//   - the error that ended Copy before it was complete;
//   - ErrCorrupt for each damaged queue of the source; the others are copied;
//   - ErrInvalid or ErrTooLarge for messages over a limit, which are left out;
//   - with Move, ErrDuplicate for messages that the target has differently, ErrLeased for leased ones, and an error
//     for messages that arrived too late; they stay in the source.
func Copy(ctx context.Context, to, from *later.Client, cfg CopyConfig) (CopyResult, error) {
	c := &copier{from: side{from.Store(), "source"}, to: side{to.Store(), "target"}, cfg: cfg}
	if err := checkDistinct(ctx, to, from); err != nil {
		return CopyResult{}, err
	}
	names, err := queuesOf(ctx, from, cfg.Queues, false)
	if err != nil {
		return CopyResult{}, c.from.wrap(err)
	}
	err = c.all(ctx, names)
	return c.result, err
}

// copier is the state of one Copy.
type copier struct {
	from, to side
	cfg      CopyConfig
	result   CopyResult
	refused  refusals
	late     int64 // messages that a Move left behind because they arrived during it
}

// side is one of the two stores.
type side struct {
	store store.Store
	name  string
}

// wrap adds to an error which store it is from.
func (s side) wrap(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", s.name, err)
	}
	return err
}

func (s side) stats(ctx context.Context, queue string) (store.Stats, error) {
	stats, err := s.store.Stats(ctx, queue)
	return stats, s.wrap(err)
}

func (s side) properties(ctx context.Context, queue string) (map[string]string, error) {
	all, err := s.store.Properties(ctx, queue)
	return all, s.wrap(err)
}

func (s side) get(ctx context.Context, queue string, infos []store.Info) ([]*store.Info, error) {
	ids := make([]string, len(infos))
	for i := range infos {
		ids[i] = infos[i].ID
	}
	found, err := s.store.Get(ctx, queue, ids)
	return found, s.wrap(err)
}

func (s side) restore(ctx context.Context, queue string, infos []store.Info) ([]store.SendResult, error) {
	results, err := s.store.Restore(ctx, queue, infos)
	return results, s.wrap(err)
}

func (s side) remove(ctx context.Context, queue string, infos []store.Info) ([]bool, error) {
	removed, err := s.store.Remove(ctx, queue, infos)
	return removed, s.wrap(err)
}

// sync makes acknowledged messages durable if the store does not always do so before it answers.
func (s side) sync(ctx context.Context) error {
	if syncer, ok := store.As[store.Syncer](s.store); ok {
		return s.wrap(syncer.Sync(ctx))
	}
	return nil
}

// checkDistinct returns an error if both clients use one store, even under different URLs: a queue created in the
// target must not appear in the source. Otherwise a Move would remove every message, because the target has it. It also
// returns an error if a client is closed.
func checkDistinct(ctx context.Context, to, from *later.Client) error {
	same := store.Invalid("source and target are the same store: give two")
	if from == to || from.Store() == to.Store() {
		return same
	}
	probe := "later-copy-" + rand.Text()
	long, release := outlive(ctx, copyGrace)
	defer release()
	if err := to.Queue(probe).Pause(ctx); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	stats, err := from.Queue(probe).Stats(ctx)
	if err != nil {
		err = fmt.Errorf("source: %w", err)
	}
	if deleted := to.Queue(probe).Delete(long); deleted != nil {
		err = errors.Join(err, fmt.Errorf("target: %w", deleted))
	}
	if err == nil && stats.Exists {
		return same
	}
	return err
}

// all copies the queues and collects the errors.
func (c *copier) all(ctx context.Context, names []string) error {
	var ended error
	var damaged []error
	for _, name := range names {
		q := &queueCopy{copier: c, QueueCopy: QueueCopy{Queue: name}}
		begun, err := q.run(ctx)
		if begun {
			c.result.Queues = append(c.result.Queues, q.QueueCopy)
			c.refused.merge(q.refusals)
		}
		if err == nil {
			continue
		}
		err = fmt.Errorf("queue %q: %w", name, err)
		if ctx.Err() != nil || !errors.Is(err, store.ErrCorrupt) {
			ended = err
			break
		}
		damaged = append(damaged, err)
	}
	errs := append([]error{ended}, damaged...)
	if ended == nil {
		errs = append(errs, c.left()...)
	}
	return errors.Join(errs...)
}

// left returns the errors for the messages that were not copied or moved.
func (c *copier) left() []error {
	var leased, conflicts int64
	for _, q := range c.result.Queues {
		leased, conflicts = leased+q.Leased, conflicts+q.Conflicts
	}
	errs := c.refused.errors()
	if conflicts > 0 {
		errs = append(errs, fmt.Errorf("%d left in the source, because the target has other messages of their "+
			"ids, or the same in an older version, or has the ids within their dedup window: %w", conflicts,
			store.ErrDuplicate))
	}
	if c.cfg.Move && leased > 0 {
		errs = append(errs, fmt.Errorf("%d left in the source, because workers hold them: move again when the "+
			"workers have finished or the leases have expired: %w", leased, store.ErrLeased))
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
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() { cancel(context.Cause(ctx)) })
	})
	return long, func() {
		stop()
		cancel(nil)
	}
}
