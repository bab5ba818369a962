package shard

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/laterq/later/store"
)

// deliver completes the way of a parcel. Any process can, and each step has an effect once.
func (s *Store) deliver(ctx context.Context, p *store.Parcel) error {
	if err := s.engine.Arrive(ctx, p); err != nil {
		return err
	}
	return s.engine.Empty(ctx, p.From, p.Number)
}

// deliverFrom completes the way of the parcel in the outbox of a sub-queue. When it returns, everything that the
// sub-queue has answered before is confirmed, so that another sub-queue may be asked.
func (s *Store) deliverFrom(ctx context.Context, name string) error {
	p, err := s.engine.Outbox(ctx, name)
	if err != nil || p == nil {
		return err
	}
	return s.deliver(ctx, p)
}

// deliverAll is deliverFrom for several shards.
func (s *Store) deliverAll(ctx context.Context, r *route, shards []int) error {
	for _, i := range shards {
		if err := s.deliverFrom(ctx, r.names[i]); err != nil {
			return err
		}
	}
	return nil
}

// stay has ids and keys of sends that stay in a shard, because they are leased, and keys of messages that do.
type stay struct{ leased, kept, busy map[string]bool }

func newStay() stay { return stay{map[string]bool{}, map[string]bool{}, map[string]bool{}} }

// add adds a list to one of the sets.
func add(set map[string]bool, list []string) {
	for _, one := range list {
		set[one] = true
	}
}

// depart moves ids, keys of sends and keys of messages from one shard to another. It returns the ones that stay. While
// no message is claimed from any shard, both expect the keys that stay: the first starts no message of them any more,
// and the other one none before they have moved.
func (s *Store) depart(ctx context.Context, r *route, at, to int, p parts) (stay, error) {
	stays := newStay()
	ids, once, keys := p.ids, p.once, p.keys
	for len(ids)+len(once)+len(keys) > 0 {
		n := min(len(ids), store.MaxDeparture)
		m := min(len(once), store.MaxDeparture-n)
		k := min(len(keys), store.MaxDeparture-n-m)
		d, err := s.engine.Depart(ctx, r.names[at],
			store.Departure{To: r.names[to], IDs: ids[:n], Once: once[:m], Keys: keys[:k]})
		if err != nil {
			return stays, err
		}
		if d.Parcel != nil {
			if err := s.deliver(ctx, d.Parcel); err != nil {
				return stays, err
			}
		}
		if d.Before {
			continue
		}
		if len(d.Busy) > 0 && r.Claims == fromNone {
			e := store.Expected{From: r.names[at], Number: d.Number, Keys: d.Busy}
			_, err := s.engine.Expect(ctx, r.names[at], e)
			if err == nil {
				_, err = s.engine.Expect(ctx, r.names[to], e)
			}
			if errors.Is(err, store.ErrConflict) { // a later parcel has arrived, perhaps with one of the keys
				continue
			}
			if err != nil {
				return stays, err
			}
		}
		add(stays.leased, d.Leased)
		add(stays.kept, d.Kept)
		add(stays.busy, d.Busy)
		if !d.More {
			ids, once, keys = ids[n:], once[m:], keys[k:]
		}
	}
	return stays, nil
}

// shardSuffix is in the names of leases in shards, before two digits.
const shardSuffix = "-shard-"

// leaseIn returns the name that a caller knows for a lease in a shard.
func leaseIn(shard int, lease string) string {
	return fmt.Sprintf("%s%s%02d", lease, shardSuffix, shard)
}

// cutLease returns the shard of a lease and its name there. A lease from before the queue had shards is in the first.
func cutLease(lease string) (shard int, name string) {
	if !isInShard(lease) {
		return 0, lease
	}
	at := len(lease) - 2
	return int(lease[at]-'0')*10 + int(lease[at+1]-'0'), lease[:at-len(shardSuffix)]
}

// isInShard reports whether leaseIn returned the name of a lease.
func isInShard(lease string) bool {
	at := len(lease) - 2
	return at >= len(shardSuffix) && lease[at-len(shardSuffix):at] == shardSuffix && lease[at]-'0' <= 9 &&
		lease[at+1]-'0' <= 9
}

// in returns the context of one of the calls into which a call of this store is divided: its request has a session of
// its own, which the parts tell from the others. An engine has the same result for two calls of one session, so calls
// with different items need different parts. The parts have few values, because an engine remembers each session.
func in(ctx context.Context, parts ...any) context.Context {
	r, ok := store.RequestOf(ctx)
	if !ok {
		return ctx
	}
	for _, part := range parts {
		r.Session += fmt.Sprint("/", part)
	}
	return store.WithRequest(ctx, r)
}

// digest returns a short part for a name, or for items that depend on the state of the queue, so that a repeated call
// may have others.
func digest(of any) string {
	h := fnv.New64a()
	fmt.Fprint(h, of)
	return strconv.FormatUint(h.Sum64(), 36)
}
