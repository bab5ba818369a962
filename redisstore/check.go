package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

var _ store.Checker = (*Store)(nil)

// Check implements store.Checker. Other calls proceed during the check: an issue of a queue existed at the moment of
// one script, which repairs it in the same step. One call to the server reads one page, so no call is held up for long.
// Names of queues are found by a SCAN over all keys of the server, which takes about a second per million keys.
func (s *Store) Check(ctx context.Context, opts store.CheckOptions, report func(store.CheckResult)) error {
	x := &checkRun{s: s, repair: opts.Repair, report: report}
	if err := x.run(ctx); err != nil {
		kind, _ := classify(err)
		if ctx.Err() != nil {
			return fmt.Errorf("check: %w", context.Cause(ctx))
		}
		return wrap(kind, fmt.Errorf("check: %w", err))
	}
	return nil
}

// checkRun is one run of Check.
type checkRun struct {
	s      *Store
	repair bool
	report func(store.CheckResult)
}

func (x *checkRun) run(ctx context.Context) error {
	if err := x.s.tryPreflight(ctx); err != nil {
		// An unusable server is an issue; a failure to reach it is not.
		if !errors.Is(err, store.ErrUnsupported) {
			return err
		}
		x.report(store.CheckResult{Severity: store.SeverityError, Check: "server", Text: err.Error()})
	}
	nodes, err := x.s.nodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := x.server(ctx, n); err != nil {
			return err
		}
	}
	queues, err := x.registry(ctx, nodes)
	if err != nil {
		return err
	}
	for _, q := range queues {
		err := x.queue(ctx, q)
		if _, moved := errors.AsType[*store.Moved](err); err != nil && !moved { // it has another name by now
			return err
		}
	}
	return nil
}

// nodes returns the servers that hold queues: the single server, or a Cluster's primaries.
func (s *Store) nodes(ctx context.Context) ([]*redis.Client, error) {
	switch rdb := s.rdb.(type) {
	case *redis.Client:
		return []*redis.Client{rdb}, nil
	case *redis.ClusterClient:
		var mu sync.Mutex
		var nodes []*redis.Client
		err := rdb.ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes = append(nodes, n)
			return nil
		})
		slices.SortFunc(nodes,
			func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
		return nodes, err
	}
	return nil, fmt.Errorf("a check needs a *redis.Client or *redis.ClusterClient, and this store has a %T: %w",
		s.rdb, store.ErrUnsupported)
}

// registry returns all queues that have keys, and reports differences between these and the registered names.
func (x *checkRun) registry(ctx context.Context, nodes []*redis.Client) ([]string, error) {
	registered := map[string]bool{}
	kind, err := x.s.rdb.Type(ctx, x.s.keys.registry()).Result()
	if err != nil {
		return nil, err
	}
	if kind != "set" && kind != "none" {
		x.report(store.CheckResult{Severity: store.SeverityError, Check: "types", Count: 1,
			Text:   fmt.Sprintf("the set of queue names, %s, is a %s", x.s.keys.registry(), kind),
			Advice: "find out who wrote it, then delete that key and check with repair"})
	}
	for cursor := ""; kind == "set"; {
		names, next, err := x.s.Queues(ctx, cursor)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			registered[name] = true
		}
		if cursor = next; cursor == "" {
			break
		}
	}
	kept := map[string]bool{}
	for _, n := range nodes {
		if err := x.scanQueues(ctx, n, kept); err != nil {
			return nil, err
		}
	}
	var all []string
	for name := range kept {
		all = append(all, name)
		if !registered[name] && !isSubQueue(name) {
			if err := x.checkUnregistered(ctx, name, kind != "set" && kind != "none"); err != nil {
				return nil, err
			}
		}
	}
	for name := range registered {
		if !kept[name] {
			if err := x.checkNameOnly(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(all)
	x.report(store.CheckResult{Severity: store.SeverityOK, Check: "registry", Count: int64(len(all)),
		Text: fmt.Sprintf("%d queues have keys, %d names are registered", len(all), len(registered))})
	return all, nil
}

// scanQueues finds the queues that have keys on a node.
func (x *checkRun) scanQueues(ctx context.Context, n *redis.Client, found map[string]bool) error {
	pattern := escapePattern.Replace(x.s.keys.prefix+"{") + "*}:*"
	for cursor := uint64(0); ; {
		keys, next, err := n.Scan(ctx, cursor, pattern, 1000).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			name, part, ok := x.s.keys.queueOf(key)
			queue, _, _, _ := store.CutSubQueue(name)
			if ok && slices.Contains(allKeyNames, part) && store.CheckQueue(queue) == nil {
				found[name] = true
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// checkUnregistered reports a queue that has keys but is not registered. Keys that hold only waiting processes or ids
// in their dedup window do not count as a queue.
func (x *checkRun) checkUnregistered(ctx context.Context, name string, broken bool) error {
	if !broken {
		if here, err := x.s.rdb.SIsMember(ctx, x.s.keys.registry(), name).Result(); err != nil || here {
			return err // created since the names were read
		}
	}
	st, err := x.s.Stats(ctx, name)
	_, signed := errors.AsType[*store.Moved](err)
	if kind, _ := classify(err); err != nil && !signed && kind != store.ErrCorrupt && kind != store.ErrUnsupported {
		return err
	}
	if err == nil && !st.Exists && st.Ready+st.Scheduled+st.Dead+st.Leased == 0 {
		return nil
	}
	f := store.CheckResult{Severity: store.SeverityWarning, Check: "registry", Queue: name, Count: 1,
		Text:   "the queue has keys but is missing from the set of queue names, so listings omit it",
		Advice: "check with repair to add its name"}
	if x.repair && !broken {
		if err := x.s.register(ctx, name); err != nil {
			return err
		}
		f.Repaired = true
	}
	x.report(f)
	return nil
}

// checkNameOnly reports a registered name without a queue.
func (x *checkRun) checkNameOnly(ctx context.Context, name string) error {
	st, err := x.s.Stats(ctx, name)
	_, signed := errors.AsType[*store.Moved](err)
	if err != nil && !signed {
		return err
	}
	if st.Exists || signed {
		return nil // created since the keys were scanned
	}
	f := store.CheckResult{Severity: store.SeverityNote, Check: "registry", Queue: name, Count: 1,
		Text:   "the set of queue names contains it, but there is no such queue",
		Advice: "harmless; check with repair to remove its name"}
	if x.repair {
		if err := x.s.unregister(ctx, name); err != nil {
			return err
		}
		f.Repaired = true
	}
	x.report(f)
	return nil
}
