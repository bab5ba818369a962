package shard

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/laterq/later/store"
)

// Send implements store.Store.
//
// While the number of shards changes, a message with an id that leaves its shard is sent to the new one, once the old
// one certainly does not have the id: it is moved first, unless it is leased. Then the old shard takes the send, but
// only while it still has the id.
func (s *Store) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return s.sendBy(ctx, queue, msgs, s.engine.Send)
}

// SendPromptly implements store.PromptSender.
func (s prompt) SendPromptly(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	send := s.engine.(store.PromptSender).SendPromptly
	if r := s.known(queue); r == nil {
		return s.sendBy(ctx, queue, msgs, send)
	}
	if ctx.Done() == nil {
		return s.sendBy(ctx, queue, msgs, send)
	}
	msgs = slices.Clone(msgs)
	for i := range msgs { // the caller may change them when ctx has ended
		msgs[i].Payload, msgs[i].Headers = bytes.Clone(msgs[i].Payload), maps.Clone(msgs[i].Headers)
	}
	type sent struct {
		results []store.SendResult
		err     error
	}
	done := make(chan sent, 1)
	go func() {
		results, err := s.sendBy(ctx, queue, msgs, send)
		done <- sent{results, err}
	}()
	select {
	case d := <-done:
		return d.results, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type sender = func(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error)

func (s *Store) sendBy(
	ctx context.Context, queue string, msgs []store.Outgoing, send sender,
) ([]store.SendResult, error) {
	if s.known(queue) == nil { // the common case, without another list
		if results, err := send(ctx, queue, msgs); !isMoved(err) {
			return results, err
		}
	}
	results := make([]store.SendResult, len(msgs))
	to := func(ctx context.Context, send sender, name string, items []int) error {
		got, err := send(ctx, name, pick(msgs, items))
		scatter(results, items, got)
		return err
	}
	err := s.items(ctx, queue, len(msgs), func(i int) string { return msgs[i].ID },
		func(i int, err error) { results[i] = store.SendResult{Err: err} },
		func(items []int) error { return to(ctx, send, queue, items) },
		func(ctx context.Context, r *route, p place, items []int) ([]int, error) {
			if err := s.checkSend(r, msgs); err != nil {
				return items, s.unlessChanged(ctx, r, err)
			}
			// A repetition of the call would not know that the first one went elsewhere.
			if _, repeats := store.RequestOf(ctx); !repeats && (s.mayBeDown(r, p.at) || s.mayBeDown(r, p.to)) {
				var err error
				if items, err = s.sendElsewhere(ctx, r, items, msgs, results, send); err != nil {
					return items, err
				}
			}
			if len(items) == 0 {
				return nil, nil
			}
			if p.leaves() {
				return s.sendLeaving(ctx, r, p, items, msgs, results, send)
			}
			defer s.doubtSoon(r, p.at)()
			err := to(ctx, send, r.names[p.at], items)
			s.loseIfDown(ctx, r, p.at, err)
			return items, err
		})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// sendElsewhere sends the messages that may have another id to shards that answer, because their own may not.
// It returns the messages that are left: others, and all that no shard can take.
func (s *Store) sendElsewhere(
	ctx context.Context, r *route, items []int, msgs []store.Outgoing, results []store.SendResult, send sender,
) (left []int, err error) {
	by := map[int][]int{}
	moved := make([]store.Outgoing, len(msgs))
	for _, i := range items {
		moved[i] = msgs[i]
		shard := -1
		if msgs[i].AnyID {
			moved[i].ID, shard = s.idElsewhere(r)
		}
		if shard >= 0 {
			by[shard] = append(by[shard], i)
		} else {
			left = append(left, i)
		}
	}
	for shard, some := range by {
		got, failed := send(in(ctx, "elsewhere", shard), r.names[shard], pick(moved, some))
		if isMoved(failed) {
			left, err = append(left, some...), failed
			continue
		}
		s.loseIfDown(ctx, r, shard, failed)
		for k, i := range some {
			if failed != nil { // perhaps after it was executed
				results[i] = store.SendResult{Err: failed}
				continue
			}
			if results[i] = got[k]; got[k].Added() {
				results[i].First = &store.FirstSend{ID: moved[i].ID}
			}
		}
	}
	return left, err
}

// idElsewhere returns a new id, and its shard, which answers, or -1 if none does. With two shards, of which one
// answers, it fails once in 2^64 sends.
func (s *Store) idElsewhere(r *route) (id string, shard int) {
	for range 32 * len(r.names) {
		id := new(store.IDs).New(strconv.FormatUint(rand.Uint64(), 36)) // of a random slot
		if at, to := r.home(id); at == to && !s.mayBeDown(r, to) {
			return id, to
		}
	}
	return "", -1
}

// unlessChanged returns the error of a check, or a *store.Moved if the queue has other limits now.
func (s *Store) unlessChanged(ctx context.Context, r *route, err error) error {
	now, failed := s.read(ctx, r.queue)
	switch {
	case failed != nil:
		return failed
	case now == nil || now.limits() != r.limits():
		return &store.Moved{Name: r.queue}
	}
	return err
}

// checkSend returns an error, before anything is written, if messages are sent under a condition, which only the first
// shard could check, with an urgency that the queue does not have, or with an id that does not fit the key.
func (s *Store) checkSend(r *route, msgs []store.Outgoing) error {
	queue, flow := r.queue, r.limits()
	for i := range msgs {
		m := &msgs[i]
		if err := store.CheckUrgency(queue, &flow, m); err != nil {
			return err
		}
		if err := s.checkID(queue, m); err != nil {
			return err
		}
	}
	if len(msgs) > 0 && msgs[0].If != nil {
		return store.Errorf(store.ErrUnsupported,
			"a message is sent to queue %q under a condition, and the queue has several shards: leave it out", queue)
	}
	return nil
}

// checkID returns an ErrInvalid if a message would not be in the shard of its key. One that another queue has taken is
// in the shard of its id.
func (s *Store) checkID(queue string, m *store.Outgoing) error {
	if s.anyID || m.Relayed || store.FitsKey(m.ID, m.Key) {
		return nil
	}
	return store.Field("id", store.Invalid("id is %q and key is %q: in queue %q, which has several shards, the id of a "+
		"message with a key must begin with %q, or be left out", m.ID, m.Key, queue, m.Key+"/"))
}

// sendLeaving sends messages with ids that leave a shard.
func (s *Store) sendLeaving(
	ctx context.Context, r *route, p place, items []int, msgs []store.Outgoing, results []store.SendResult,
	send sender,
) ([]int, error) {
	for try := 0; len(items) > 0; try++ {
		var ids, once []string
		for _, i := range items {
			ids = append(ids, msgs[i].ID)
			if msgs[i].Once != nil {
				once = append(once, msgs[i].Once.Key)
			}
		}
		stays, err := s.depart(ctx, r, p.at, p.to, parts{ids: ids, once: once})
		if err != nil {
			return items, err
		}
		leased, kept := stays.leased, stays.kept
		var stay, move []int
		for _, i := range items {
			if leased[msgs[i].ID] || msgs[i].Once != nil && kept[msgs[i].Once.Key] {
				stay = append(stay, i)
			} else {
				move = append(move, i)
			}
		}
		if len(once) > 0 && len(stay) > 0 && len(move) > 0 { // equal keys take effect in order
			for k, i := range items {
				if _, err := s.sendLeaving(in(ctx, "item", k), r, p, []int{i}, msgs, results, send); err != nil {
					return items[k:], err
				}
			}
			return nil, nil
		}
		if len(move) > 0 {
			got, err := send(in(ctx, try, digest(stay)), r.names[p.to], pick(msgs, move))
			scatter(results, move, got)
			if err != nil {
				return items, err
			}
		}
		if items, err = s.sendStaying(ctx, r, p, stay, kept, msgs, results, try); err != nil {
			return stay, err
		}
	}
	return nil, nil
}

// sendStaying sends messages that the old shard knows: their ids are leased there, or it remembers the send. It returns
// the messages that the old shard does not know any more. The new shard may remember the send of an id that is leased
// in the old one.
func (s *Store) sendStaying(
	ctx context.Context, r *route, p place, stay []int, kept map[string]bool, msgs []store.Outgoing,
	results []store.SendResult, try int,
) (changed []int, err error) {
	known := func(shard int, items []int) (unknown []int, err error) {
		if len(items) == 0 {
			return nil, nil
		}
		got, err := s.engine.SendKnown(in(ctx, "known", shard, try, digest(items)), r.names[shard], pick(msgs, items))
		for k := range got {
			if results[items[k]] = got[k]; errors.Is(got[k].Err, store.ErrNotFound) {
				unknown = append(unknown, items[k])
			}
		}
		return unknown, err
	}
	var atOld, atNew []int
	for _, i := range stay {
		if o := msgs[i].Once; o != nil && !kept[o.Key] {
			atNew = append(atNew, i)
		} else {
			atOld = append(atOld, i)
		}
	}
	unknown, err := known(p.to, atNew)
	if err != nil {
		return nil, err
	}
	atOld = append(atOld, unknown...)
	slices.Sort(atOld)
	var keys []string
	for _, i := range atOld {
		if msgs[i].OnDuplicate.Mode == store.DuplicateFollow {
			keys = append(keys, msgs[i].Key)
		}
	}
	if err := s.expectSuccessors(ctx, r, p.at, keys); err != nil {
		return nil, err
	}
	return known(p.at, atOld)
}

// expectSuccessors prepares a former shard for successors of leased messages, given their keys: a key that has moved
// must not start there. The successors move when the leased messages have been settled.
func (s *Store) expectSuccessors(ctx context.Context, r *route, shard int, keys []string) error {
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == "" })
	if len(keys) == 0 || !r.limits().Fair {
		return nil
	}
	_, err := s.engine.Expect(ctx, r.names[shard], store.Expected{Keys: keys})
	return err
}

// Restore implements store.Store. A message that leaves its shard is a duplicate while it is leased there.
func (s *Store) Restore(ctx context.Context, queue string, msgs []store.Info) ([]store.SendResult, error) {
	return byMovedID(ctx, s, queue, len(msgs), func(i int) string { return msgs[i].ID },
		func(ctx context.Context, name string, items []int) ([]store.SendResult, error) {
			return s.engine.Restore(ctx, name, pick(msgs, items))
		},
		nil, func(err error) store.SendResult { return store.SendResult{Err: err} },
		func(*route) bool { return true }, store.SendResult{Duplicate: true})
}
