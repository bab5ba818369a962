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

var _ store.Examiner = (*Store)(nil)

// Examine implements store.Examiner. Other calls go on meanwhile: what is reported of a queue was so in the moment of
// one script, which mends it in the same moment. A call to the server reads a page, so it holds up nobody. Names of
// queues are looked for among all keys of the server, with SCAN, which takes about a second for a million keys.
func (s *Store) Examine(ctx context.Context, opts store.Examination, report func(store.Finding)) error {
	x := &examination{s: s, mend: opts.Repair, report: report}
	if err := x.run(ctx); err != nil {
		kind, _ := classify(err)
		if ctx.Err() != nil {
			return fmt.Errorf("examine: %w", context.Cause(ctx))
		}
		return wrap(kind, fmt.Errorf("examine: %w", err))
	}
	return nil
}

// examination is one Examine.
type examination struct {
	s      *Store
	mend   bool
	report func(store.Finding)
}

func (x *examination) run(ctx context.Context) error {
	if err := x.s.tryCheck(ctx); err != nil {
		// What makes the server unusable is a finding; what keeps us from it is not.
		if !errors.Is(err, store.ErrUnsupported) {
			return err
		}
		x.report(store.Finding{Severity: store.SeverityError, Check: "server", Text: err.Error()})
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
		if err := x.queue(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// nodes gives the servers that hold queues: the one, or a Cluster's primaries.
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
		slices.SortFunc(nodes, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
		return nodes, err
	}
	return nil, fmt.Errorf("an examination needs a *redis.Client or *redis.ClusterClient, and this store has a %T: %w",
		s.rdb, store.ErrUnsupported)
}

// registry gives all queues, those that are registered and those that have keys, and reports where these differ.
func (x *examination) registry(ctx context.Context, nodes []*redis.Client) ([]string, error) {
	registered := map[string]bool{}
	kind, err := x.s.rdb.Type(ctx, x.s.keys.registry()).Result()
	if err != nil {
		return nil, err
	}
	if kind != "set" && kind != "none" {
		x.report(store.Finding{Severity: store.SeverityError, Check: "types", Count: 1,
			Text:   fmt.Sprintf("the set of queue names, %s, is a %s", x.s.keys.registry(), kind),
			Advice: "find out who wrote it, then delete that key and examine with repair"})
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
		if !registered[name] {
			if err := x.unregistered(ctx, name, kind != "set" && kind != "none"); err != nil {
				return nil, err
			}
		}
	}
	for name := range registered {
		if !kept[name] {
			if err := x.nameOnly(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(all)
	x.report(store.Finding{Severity: store.SeverityOK, Check: "registry", Count: int64(len(all)),
		Text: fmt.Sprintf("%d queues have keys, %d names are registered", len(all), len(registered))})
	return all, nil
}

// scanQueues finds the queues that have keys on a node.
func (x *examination) scanQueues(ctx context.Context, n *redis.Client, found map[string]bool) error {
	prefix := x.s.keys.prefix + "{"
	pattern := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(prefix) + "*}:*"
	for cursor := uint64(0); ; {
		keys, next, err := n.Scan(ctx, cursor, pattern, 1000).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			name, part, ok := strings.Cut(strings.TrimPrefix(key, prefix), "}:")
			if ok && slices.Contains(keyNames[:], part) && store.CheckQueue(name) == nil {
				found[name] = true
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// unregistered reports a queue that has keys and is not listed. A queue of the marker alone, or of remembered ids
// alone, is none.
func (x *examination) unregistered(ctx context.Context, name string, broken bool) error {
	if !broken {
		if here, err := x.s.rdb.SIsMember(ctx, x.s.keys.registry(), name).Result(); err != nil || here {
			return err // made since the names were read
		}
	}
	st, err := x.s.Stats(ctx, name)
	if kind, _ := classify(err); err != nil && kind != store.ErrCorrupt && kind != store.ErrUnsupported {
		return err
	}
	if err == nil && !st.Exists && st.Ready+st.Scheduled+st.Dead+st.Leased == 0 {
		return nil
	}
	f := store.Finding{Severity: store.SeverityWarning, Check: "registry", Queue: name, Count: 1,
		Text:   "the queue has keys and is not in the set of queue names, so listings leave it out",
		Advice: "examine with repair to enter its name"}
	if x.mend && !broken {
		if err := x.s.register(ctx, name); err != nil {
			return err
		}
		f.Repaired = true
	}
	x.report(f)
	return nil
}

// nameOnly reports a name that has no queue.
func (x *examination) nameOnly(ctx context.Context, name string) error {
	st, err := x.s.Stats(ctx, name)
	if err != nil {
		return err
	}
	if st.Exists {
		return nil // made since the keys were looked through
	}
	f := store.Finding{Severity: store.SeverityNote, Check: "registry", Queue: name, Count: 1,
		Text:   "the set of queue names has it, and there is no such queue",
		Advice: "nothing depends on it; examine with repair to take its name out"}
	if x.mend {
		if err := x.s.unregister(ctx, name); err != nil {
			return err
		}
		f.Repaired = true
	}
	x.report(f)
	return nil
}
