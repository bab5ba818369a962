package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

const (
	// leasedPage is the number of leased messages that are read at once. It is small because engines bound their bytes
	// less tightly.
	leasedPage = 50
	// maxRefusals is how many refused messages an error names.
	maxRefusals = 5
)

// stateOrder is the order of the states when a queue is read. A message becomes ready by itself after being scheduled,
// and leased or dead through workers, so each state comes after the states that lead to it. A lease can end in any
// state, so leased messages also come first.
var stateOrder = []store.State{
	store.StateLeased, store.StateScheduled, store.StateReady, store.StateLeased, store.StateDead,
}

// checkQueue returns an ErrInvalid for a name that no queue can have, or for one of Later's own queues whose messages
// mean something in their store only, such as the list of changes.
func checkQueue(name string) error {
	if why := reserved.Check(name, reserved.Open); why != "" {
		return store.Invalid("%s", why)
	}
	return store.CheckQueue(name)
}

// queuesOf returns the queues that were asked for, each once, or all queues if none were. It returns ErrNotFound if one
// does not exist, unless mayBeGone is set.
func queuesOf(ctx context.Context, client *later.Client, asked []string, mayBeGone bool) ([]string, error) {
	if len(asked) == 0 {
		return client.Queues(ctx)
	}
	var names []string
	for _, name := range asked {
		if err := checkQueue(name); err != nil {
			return nil, err
		}
		if slices.Contains(names, name) {
			continue
		}
		stats, err := client.Store().Stats(ctx, name)
		if err != nil && !errors.Is(err, store.ErrCorrupt) { // a damaged queue does not stop the others
			return nil, err
		}
		if err == nil && !stats.Exists && !mayBeGone {
			return nil, fmt.Errorf("queue %q: %w", name, store.ErrNotFound)
		}
		names = append(names, name)
	}
	return names, nil
}

// total returns the number of live messages of a queue.
func total(s store.Stats) int64 { return s.Scheduled + s.Ready + s.Leased + s.Dead }

// eachPage lists messages and calls f for each page, until f returns an error.
func eachPage(
	ctx context.Context, s store.Store, queue string, req store.ListRequest, f func([]store.Info) error,
) error {
	req.Limit = store.MaxBatch
	if req.State == store.StateLeased {
		req.Limit = leasedPage
	}
	for {
		page, err := s.List(ctx, queue, req)
		if err != nil {
			return err
		}
		if err := f(page.Messages); err != nil {
			return err
		}
		if req.Cursor = page.Next; req.Cursor == "" {
			return nil
		}
	}
}

// fits reports whether a call that has n messages of so many bytes has room for one more.
func fits(n, bytes, more int) bool {
	return n == 0 || n < store.MaxBatch && bytes+more <= store.MaxBatchBytes
}

// fitting returns how many of the first messages fit into one call.
func fitting[T any](all []T, size func(*T) int) int {
	bytes := 0
	for n := range all {
		more := size(&all[n])
		if !fits(n, bytes, more) {
			return n
		}
		bytes += more
	}
	return len(all)
}

// divide divides messages by the results of a restore: messages that were added, and messages whose ids the store has
// or remembers.
func divide[T any](all []T, results []store.SendResult) (added, duplicates []T) {
	for i, r := range results {
		if r.Duplicate {
			duplicates = append(duplicates, all[i])
		} else {
			added = append(added, all[i])
		}
	}
	return added, duplicates
}

// refusals are messages that no store accepts, so they are left out.
type refusals struct {
	n     int64
	first []error
}

func (r *refusals) add(queue, id string, err error) {
	r.merge(refusals{1, []error{fmt.Errorf("message %q of queue %q was left out: %w", id, queue, err)}})
}

func (r *refusals) merge(more refusals) {
	r.n += more.n
	room := maxRefusals - len(r.first)
	r.first = append(r.first, more.first[:min(room, len(more.first))]...)
}

// errors returns an error for each of the first refused messages, and one for the others.
func (r *refusals) errors() []error {
	errs := slices.Clone(r.first)
	if more := r.n - int64(len(errs)); more > 0 {
		errs = append(errs, store.Invalid("and %d more messages were left out", more))
	}
	return errs
}
