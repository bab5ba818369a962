package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/store"
)

// FromConfig configures FromZSet, FromDelayQueue and FromAsynq. The zero value copies and leaves the source as it is.
type FromConfig struct {
	// DryRun only reads the source: it counts the messages and returns the first ones in FromResult.First, and the
	// error for a source that is in use with them.
	DryRun bool
	// DeleteSource removes messages from the source, page by page, once the target has them as safely as it keeps any
	// sent message. Default: the source is only read.
	DeleteSource bool
	// Force migrates from a source that is in use or that changes. Messages that its programs send or handle during the
	// migration may be missed, or delivered by both queues.
	Force bool
	// Watch is how long the source is watched for changes before anything is written. Default: a second. Below zero
	// means not at all.
	Watch time.Duration
	// Progress is called after each page of messages. The migration waits for it to return.
	Progress func(FromQueue)
}

// FromResult is the result of FromZSet, FromDelayQueue and FromAsynq.
type FromResult struct {
	Queues []FromQueue // the queues that were started, in order
	// First, after a dry run, has up to ten messages, the earliest due times first.
	First []FromEntry
}

// FromQueue is the progress of one queue.
type FromQueue struct {
	Source string      // its name in the source
	Queue  string      // its name in the target
	States []FromState // the counts of the source, by its own names of states, when the queue's turn came
	// Copied is the number of messages added to the target; in a dry run, of messages that would be added, apart from
	// duplicates and conflicts.
	Copied int64
	// Duplicates were already in the target, as of an earlier run.
	Duplicates int64
	// Conflicts are messages with ids that the target has for others, or within their dedup window.
	Conflicts int64
	// Refused messages are over a limit or cannot be read. The error names some of them.
	Refused int64
	// Lost are entries of the source without a message, because the source has deleted it.
	Lost int64
	// Deleted is the number of entries that DeleteSource has removed.
	Deleted int64
}

// Seen returns how many entries of the source were processed.
func (q FromQueue) Seen() int64 { return q.Copied + q.Duplicates + q.Conflicts + q.Refused + q.Lost }

// Total returns how many entries of the source are to be processed.
func (q FromQueue) Total() (n int64) {
	for _, s := range q.States {
		if !s.Left {
			n += s.Count
		}
	}
	return n
}

// FromState is how many messages of a queue a source has in one of its states.
type FromState struct {
	State string
	Count int64
	Left  bool // these are not migrated
}

// FromEntry is a message that would be migrated.
type FromEntry struct {
	Source string
	State  string // in the source
	Queue  string
	Info   store.Info
}

const (
	// fromPage is how many entries of a source are read at once. Sources bound the size of theirs less than a store.
	fromPage = 200
	// maxFirst is the number of messages that a dry run returns.
	maxFirst = 10
	// defaultWatch is FromConfig.Watch by default.
	defaultWatch = time.Second
)

// fromSource is one queue of a source.
type fromSource struct {
	name   string // in the source
	queue  string // in the target
	parts  []fromPart
	left   []fromLeft
	inUse  func(ctx context.Context) error // an error if programs use the queue; nil if that cannot be told
	remove func(ctx context.Context, part *fromPart, items []fromItem) (int64, error)
}

// fromPart is the part of a queue that is in one state.
type fromPart struct {
	state string
	index fromIndex
	// load returns the messages of entries. It may set the result's info to nil for one that the source has lost.
	load func(ctx context.Context, entries []redis.Z) ([]fromItem, error)
}

// fromLeft is a state of messages that are not migrated.
type fromLeft struct {
	state string
	count func(ctx context.Context) (int64, error)
}

// fromItem is an entry of a source and the message that it stands for.
type fromItem struct {
	member string
	info   *store.Info
	err    error // why the message cannot be read
	// aliases are other ids under which an earlier run may have copied the message.
	aliases []string
}

// fromRun is the state of one migration.
type fromRun struct {
	to     side
	cfg    FromConfig
	result FromResult
	errs   []error
}

// migrateFrom migrates queues one after the other. All of them are checked before the first message is written.
func migrateFrom(ctx context.Context, to *later.Client, sources []fromSource, cfg FromConfig) (FromResult, error) {
	r := &fromRun{to: side{to.Store(), "target"}, cfg: cfg}
	for i := range sources {
		if err := checkQueue(sources[i].queue); err != nil {
			return r.result, fmt.Errorf("source %q needs another name: %w", sources[i].name, err)
		}
	}
	if !cfg.Force {
		err := r.checkUnused(ctx, sources)
		if err != nil && !cfg.DryRun {
			return r.result, err
		}
		r.errs = append(r.errs, err) // the error that a run would return
	}
	for i := range sources {
		if err := r.migrate(ctx, &sources[i]); err != nil {
			return r.result, errors.Join(append([]error{fmt.Errorf("queue %q: %w", sources[i].name, err)},
				r.errs...)...)
		}
	}
	return r.result, errors.Join(r.errs...)
}

// checkUnused returns an error if programs use the source, as far as that can be told: by the traces that they leave in
// it, and by changes while it is watched.
func (r *fromRun) checkUnused(ctx context.Context, sources []fromSource) error {
	for _, s := range sources {
		if s.inUse == nil {
			continue
		}
		if err := s.inUse(ctx); err != nil {
			return err
		}
	}
	watch := cmp.Or(r.cfg.Watch, defaultWatch)
	if watch < 0 || r.cfg.DryRun {
		return nil
	}
	before, err := fingerprints(ctx, sources)
	if err != nil {
		return err
	}
	if err := calls.Sleep(ctx, watch); err != nil {
		return err
	}
	after, err := fingerprints(ctx, sources)
	if err != nil {
		return err
	}
	for i, s := range sources {
		if before[i] != after[i] {
			return inUse("queue %q changed while it was watched for %v: stop the programs that send to it and "+
				"consume it, and migrate again", s.name, watch)
		}
	}
	return nil
}

// inUse returns an error of a source that programs still use.
func inUse(format string, args ...any) error {
	return fmt.Errorf("the source is in use: %s; or force it: %w", fmt.Sprintf(format, args...), store.ErrLeased)
}

// fingerprints describes the content of each queue, so that most changes show.
func fingerprints(ctx context.Context, sources []fromSource) ([]string, error) {
	all := make([]string, len(sources))
	for i, s := range sources {
		for _, p := range s.parts {
			n, err := p.index.count(ctx)
			if err != nil {
				return nil, err
			}
			all[i] += fmt.Sprintf("%s %d", p.state, n)
			for _, at := range []int64{0, n - 1} {
				entries, err := p.index.page(ctx, max(at, 0), 1)
				if err != nil {
					return nil, err
				}
				all[i] += fmt.Sprintf(" %v", entries)
			}
		}
	}
	return all, nil
}

// counts returns the counts of a queue of the source.
func (s *fromSource) counts(ctx context.Context) (states []FromState, err error) {
	for _, p := range s.parts {
		n, err := p.index.count(ctx)
		if err != nil {
			return nil, err
		}
		states = append(states, FromState{State: p.state, Count: n})
	}
	for _, l := range s.left {
		n, err := l.count(ctx)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			states = append(states, FromState{State: l.state, Count: n, Left: true})
		}
	}
	return states, nil
}

// migrate migrates one queue.
func (r *fromRun) migrate(ctx context.Context, s *fromSource) error {
	states, err := s.counts(ctx)
	if err != nil {
		return err
	}
	r.result.Queues = append(r.result.Queues, FromQueue{Source: s.name, Queue: s.queue, States: states})
	q := &fromQueue{fromRun: r, source: s, FromQueue: &r.result.Queues[len(r.result.Queues)-1]}
	for i := range s.parts {
		if err := q.part(ctx, &s.parts[i]); err != nil {
			return err
		}
	}
	r.errs = append(r.errs, q.refusals.errors()...)
	if q.Conflicts > 0 {
		r.errs = append(r.errs, fmt.Errorf("queue %q: %d were not copied, because the target has their ids for other "+
			"messages or within their dedup window: %w", s.name, q.Conflicts, store.ErrDuplicate))
	}
	if r.cfg.Force || r.cfg.DryRun {
		return nil
	}
	after, err := s.counts(ctx)
	if err != nil {
		return err
	}
	had, has := q.Total(), FromQueue{States: after}.Total()
	if has != had-q.Deleted {
		r.errs = append(r.errs, inUse("queue %q had %d messages, %d were removed, and now has %d: stop the "+
			"programs that send to it and consume it, and migrate again", s.name, had, q.Deleted, has))
	}
	return nil
}

// fromQueue is the state of migrating one queue.
type fromQueue struct {
	*fromRun
	*FromQueue
	source   *fromSource
	refusals refusals
}

// part migrates one state of the queue, page by page.
func (q *fromQueue) part(ctx context.Context, p *fromPart) error {
	for skip := int64(0); ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		entries, err := p.index.page(ctx, skip, fromPage)
		if err != nil || len(entries) == 0 {
			return err
		}
		items, err := p.load(ctx, entries)
		if err != nil {
			return err
		}
		skip += int64(len(entries))
		deleted, err := q.page(ctx, p, items)
		if err != nil {
			return err
		}
		skip -= deleted
		if q.cfg.Progress != nil {
			q.cfg.Progress(*q.FromQueue)
		}
	}
}

// page migrates a page and returns how many entries left the source. It finishes the page even if ctx ends.
func (q *fromQueue) page(ctx context.Context, p *fromPart, items []fromItem) (deleted int64, err error) {
	ctx, release := outlive(ctx, copyGrace)
	defer release()
	var valid, done []fromItem
	for _, item := range items {
		switch {
		case item.err == nil && item.info == nil:
			q.Lost++
			done = append(done, item)
			continue
		case item.err == nil:
			item.err = item.info.CheckNew()
		}
		if item.err != nil {
			q.Refused++
			q.refusals.add(q.Source, item.member, item.err)
			continue
		}
		valid = append(valid, item)
	}
	if q.cfg.DryRun {
		q.Copied += int64(len(valid))
		q.keepFirst(p, valid)
		return 0, nil
	}
	for len(valid) > 0 {
		n := fitting(valid, func(item *fromItem) int { return item.info.Size() })
		added, err := q.write(ctx, valid[:n])
		if err != nil {
			return 0, err
		}
		done, valid = append(done, added...), valid[n:]
	}
	if !q.cfg.DeleteSource || len(done) == 0 {
		return 0, nil
	}
	if err := q.to.sync(ctx); err != nil {
		return 0, err
	}
	deleted, err = q.source.remove(ctx, p, done)
	q.Deleted += deleted
	return deleted, err
}

// keepFirst keeps the messages that are due first.
func (q *fromQueue) keepFirst(p *fromPart, items []fromItem) {
	first := q.result.First
	for _, item := range items {
		first = append(first, FromEntry{Source: q.Source, State: p.state, Queue: q.Queue, Info: *item.info})
	}
	slices.SortStableFunc(first, func(a, b FromEntry) int { return a.Info.Due.Compare(b.Info.Due) })
	q.result.First = slices.Clip(first[:min(len(first), maxFirst)])
}

// write adds messages to the target and returns the messages that it has now.
func (q *fromQueue) write(ctx context.Context, items []fromItem) (added []fromItem, err error) {
	items, added, err = q.knownAlready(ctx, items)
	if err != nil || len(items) == 0 {
		return added, err
	}
	results, err := q.to.restore(ctx, q.Queue, infosOf(items))
	if err != nil {
		return nil, err
	}
	restored, doubtful := divide(items, results)
	q.Copied += int64(len(restored))
	added = append(added, restored...)
	if len(doubtful) == 0 {
		return added, nil
	}
	found, err := q.to.get(ctx, q.Queue, infosOf(doubtful))
	if err != nil {
		return nil, err
	}
	for i, item := range doubtful {
		if sameContent(found[i], item.info) {
			q.Duplicates++
			added = append(added, item)
		} else {
			q.Conflicts++
		}
	}
	return added, nil
}

func infosOf(items []fromItem) []store.Info {
	infos := make([]store.Info, len(items))
	for i := range items {
		infos[i] = *items[i].info
	}
	return infos
}

// knownAlready returns the items that the target does not have under one of their aliases, and the items that it has.
func (q *fromQueue) knownAlready(ctx context.Context, items []fromItem) (unknown, known []fromItem, err error) {
	var asked []store.Info
	for _, item := range items {
		for _, id := range item.aliases {
			asked = append(asked, store.Info{Message: store.Message{ID: id}})
		}
	}
	if len(asked) == 0 {
		return items, nil, nil
	}
	var found []*store.Info
	for chunk := range slices.Chunk(asked, store.MaxBatch) {
		part, err := q.to.get(ctx, q.Queue, chunk)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, part...)
	}
	for _, item := range items {
		has := slices.ContainsFunc(found[:len(item.aliases)],
			func(f *store.Info) bool { return sameContent(f, item.info) })
		found = found[len(item.aliases):]
		if has {
			q.Duplicates++
			known = append(known, item)
		} else {
			unknown = append(unknown, item)
		}
	}
	return unknown, known, nil
}

// sameContent reports whether a message of the target, which may be nil, came from the same entry of the source.
func sameContent(there, here *store.Info) bool {
	if there == nil {
		return false
	}
	same := *here
	same.ID = there.ID
	// A source has only the rest of some limits, so they are not exact.
	same.MaxAttempts, same.ExpireAt, same.ExpireAfter = there.MaxAttempts, there.ExpireAt, there.ExpireAfter
	return there.SameMessage(&same)
}
