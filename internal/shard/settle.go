package shard

import (
	"context"
	"errors"
	"slices"

	"github.com/laterq/later/store"
)

// Settle implements store.Store. A lease is in the shard that it was claimed from, whatever became of the ids.
func (s *Store) Settle(
	ctx context.Context, queue string, settlements []store.Settlement,
) ([]store.SettleResult, error) {
	if s.known(queue) == nil { // the common case
		if results, err := s.engine.Settle(ctx, queue, plainLeases(settlements, leaseOfSettlement)); !isMoved(err) {
			return results, err
		}
	}
	results := make([]store.SettleResult, len(settlements))
	left := upTo(len(settlements))
	some := func(ctx context.Context, name string, some []store.Settlement, items []int) error {
		got, err := s.engine.Settle(ctx, name, some)
		scatter(results, items, got)
		return err
	}
	part := &partly{n: len(settlements), fail: func(i int, err error) { results[i] = store.SettleResult{Err: err} }}
	err := part.end(s.with(ctx, queue, func(r *route) (err error) {
		if r == nil {
			list := plainLeases(pick(settlements, left), leaseOfSettlement)
			err := some(ctx, queue, list, left)
			if moved, ok := errors.AsType[*store.Moved](err); ok && moved.Name != queue {
				// A queue of a follow-up has shards now.
				list, err = s.sendFirst(ctx, list, func(_ *store.Receipt, f *store.FollowUp) bool {
					return f.Queue == queue || s.Linked(queue, f.Queue)
				})
				if err == nil {
					err = some(ctx, queue, list, left)
				}
			}
			return err
		}
		by := shardsOf(left, func(i int) string { return settlements[i].Receipt.Lease })
		left, err = eachPart(by, part, func(shard int, items []int) ([]int, error) {
			var list []store.Settlement
			var listed []int
			for _, i := range items {
				one := settlements[i]
				if one.If != nil {
					return items, store.Errorf(store.ErrUnsupported, "a message of queue %q is settled under a "+
						"condition, and the queue has several shards: leave it out", queue)
				}
				if results[i].Err = one.CheckThen(anyQueue{}, queue); results[i].Err == nil && shard >= len(r.names) {
					results[i].Err = store.ErrLeaseLost
				}
				if results[i].Err != nil {
					continue
				}
				_, one.Receipt.Lease = cutLease(one.Receipt.Lease)
				list, listed = append(list, one), append(listed, i)
			}
			if len(list) == 0 {
				return nil, nil
			}
			var leave []string // keys of follow-ups
			list, err := s.sendFirst(in(ctx, shard), list, func(acked *store.Receipt, f *store.FollowUp) bool {
				at, to := r.home(f.Message.ID)
				leaves := at != shard || to != shard
				if f.Queue != queue || leaves && f.Message.ID != acked.ID {
					return false
				}
				if shard != to {
					leave = append(leave, f.Message.Key)
				}
				f.Queue = r.names[shard]
				return true
			})
			if err == nil {
				err = s.expectSuccessors(ctx, r, shard, leave)
			}
			if err != nil {
				return items, err
			}
			return items, some(in(ctx, shard), r.names[shard], list, listed)
		})
		return err
	}))
	if err != nil {
		return nil, err
	}
	return results, nil
}

// anyQueue is a store.Linker for which it does not matter where a follow-up goes.
type anyQueue struct{}

func (anyQueue) Linked(string, string) bool { return true }

// sendFirst sends the follow-ups that an ack cannot write, and returns settlements with the other follow-ups, for which
// written returns true. A follow-up that is sent before its ack is sent at least once, under its id.
func (s *Store) sendFirst(
	ctx context.Context, list []store.Settlement, written func(acked *store.Receipt, f *store.FollowUp) bool,
) ([]store.Settlement, error) {
	by := map[string][]store.Outgoing{}
	list = slices.Clone(list)
	for k := range list {
		var then []store.FollowUp
		for _, f := range list[k].Then {
			if written(&list[k].Receipt, &f) {
				then = append(then, f)
				continue
			}
			f.Message.Relayed = true
			by[f.Queue] = append(by[f.Queue], f.Message)
		}
		list[k].Then = then
	}
	for to, msgs := range by {
		results, err := s.Send(in(ctx, "then", digest(to)), to, msgs)
		if err == nil {
			err = store.SendError(results)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// shardsOf sorts items by the shards of their leases.
func shardsOf(items []int, lease func(i int) string) map[int][]int {
	by := map[int][]int{}
	for _, i := range items {
		shard, _ := cutLease(lease(i))
		by[shard] = append(by[shard], i)
	}
	return by
}

// plainLeases returns a list for a queue with its own name, with leases at places in its items. A lease from when the
// queue had several shards is known by its name in the first.
func plainLeases[T any](list []T, lease func(*T) *string) []T {
	cloned := false
	for i := range list {
		shard, name := cutLease(*lease(&list[i]))
		if shard != 0 || name == *lease(&list[i]) {
			continue
		}
		if !cloned {
			list, cloned = slices.Clone(list), true
		}
		*lease(&list[i]) = name
	}
	return list
}

func leaseOfSettlement(s *store.Settlement) *string { return &s.Receipt.Lease }

// extendPlain extends leases of a queue with its own name.
func (s *Store) extendPlain(ctx context.Context, queue string, e []store.Extension) ([]store.ExtendResult, error) {
	list := plainLeases(e, func(one *store.Extension) *string { return &one.Lease })
	results, err := s.engine.Extend(ctx, queue, list)
	for i := range results {
		for k := range results[i].Lost {
			results[i].Lost[k].Lease = e[i].Lease
		}
	}
	return results, err
}

// Extend implements store.Store.
func (s *Store) Extend(ctx context.Context, queue string, e []store.Extension) ([]store.ExtendResult, error) {
	if s.known(queue) == nil { // the common case
		if results, err := s.extendPlain(ctx, queue, e); !isMoved(err) {
			return results, err
		}
	}
	results := make([]store.ExtendResult, len(e))
	left := upTo(len(e))
	part := &partly{n: len(e), fail: func(i int, err error) { results[i] = store.ExtendResult{Err: err} }}
	err := part.end(s.with(ctx, queue, func(r *route) (err error) {
		if r == nil {
			got, err := s.extendPlain(ctx, queue, pick(e, left))
			scatter(results, left, got)
			return err
		}
		by := shardsOf(left, func(i int) string { return e[i].Lease })
		left, err = eachPart(by, part, func(shard int, items []int) ([]int, error) {
			list := make([]store.Extension, len(items))
			for k, i := range items {
				list[k] = e[i]
				_, list[k].Lease = cutLease(e[i].Lease)
			}
			if shard >= len(r.names) {
				for _, i := range items {
					results[i] = store.ExtendResult{Err: store.ErrLeaseLost}
				}
				return nil, nil
			}
			got, err := s.engine.Extend(in(ctx, shard), r.names[shard], list)
			for k := range got {
				for j := range got[k].Lost {
					got[k].Lost[j].Lease = e[items[k]].Lease
				}
			}
			scatter(results, items, got)
			return items, err
		})
		return err
	}))
	if err != nil {
		return nil, err
	}
	return results, nil
}

// Linked implements store.Linker: an ack can have follow-ups to another queue while neither has shards. A caller that
// has asked before may be wrong; Settle then sends the follow-ups before the ack.
func (s *Store) Linked(queue, to string) bool {
	return s.known(queue) == nil && s.known(to) == nil && s.engine.Linked(queue, to)
}
