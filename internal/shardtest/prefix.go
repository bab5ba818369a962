package shardtest

import (
	"context"
	"strings"

	"github.com/laterq/later/store"
)

// prefixed puts a name and a slash before each id, so that all messages of a queue are in one shard, and every rule
// about their order holds.
type prefixed struct {
	store.Store
	prefix string
	shard  func(call, queue string) // is called before a call
}

func mapped[T any](list []T, f func(v *T)) []T {
	if list == nil {
		return nil
	}
	list = append([]T{}, list...)
	for i := range list {
		f(&list[i])
	}
	return list
}

func (p prefixed) add(id string) string {
	if _, generated := store.IDTime(id); generated {
		return id
	}
	return p.prefix + "/" + id
}

func (p prefixed) cut(id string) string { return strings.TrimPrefix(id, p.prefix+"/") }

func (p prefixed) inIDs(ids []string) []string {
	return mapped(ids, func(id *string) { *id = p.add(*id) })
}

func (p prefixed) outIDs(ids []string) []string {
	return mapped(ids, func(id *string) { *id = p.cut(*id) })
}

func (p prefixed) inInfo(info *store.Info) { info.ID = p.add(info.ID) }

func (p prefixed) outgoing(msgs []store.Outgoing) []store.Outgoing {
	return mapped(msgs, func(m *store.Outgoing) {
		m.ID = p.add(m.ID)
		if u := m.OnDuplicate.Unchanged; u != nil {
			was := *u
			p.inInfo(&was)
			m.OnDuplicate.Unchanged = &was
		}
	})
}

func (p prefixed) sent(results []store.SendResult) {
	for i := range results {
		if f := results[i].First; f != nil {
			results[i].First = &store.FirstSend{ID: p.cut(f.ID), Due: f.Due}
		}
	}
}

func (p prefixed) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	p.shard("Send", queue)
	results, err := p.Store.Send(ctx, queue, p.outgoing(msgs))
	p.sent(results)
	return results, err
}

func (p prefixed) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	p.shard("Claim", queue)
	c, err := p.Store.Claim(ctx, queue, req)
	for i := range c.Messages {
		m := &c.Messages[i]
		m.ID = p.cut(m.ID)
		m.Receipt.ID = m.ID
	}
	c.Died, c.Expired, c.Dropped = p.outIDs(c.Died), p.outIDs(c.Expired), p.outIDs(c.Dropped)
	return c, err
}

func (p prefixed) Settle(
	ctx context.Context, queue string, settlements []store.Settlement,
) ([]store.SettleResult, error) {
	p.shard("Settle", queue)
	return p.Store.Settle(ctx, queue, mapped(settlements, func(s *store.Settlement) {
		s.Receipt.ID = p.add(s.Receipt.ID)
		s.Then = mapped(s.Then, func(f *store.FollowUp) { f.Message.ID = p.add(f.Message.ID) })
	}))
}

func (p prefixed) Extend(ctx context.Context, queue string, e []store.Extension) ([]store.ExtendResult, error) {
	p.shard("Extend", queue)
	results, err := p.Store.Extend(ctx, queue, e)
	for i := range results {
		for k := range results[i].Lost {
			results[i].Lost[k].ID = p.cut(results[i].Lost[k].ID)
		}
	}
	return results, err
}

func (p prefixed) Cancel(ctx context.Context, queue string, req store.CancelRequest) ([]store.CancelResult, error) {
	p.shard("Cancel", queue)
	req.IDs = p.inIDs(req.IDs)
	return p.Store.Cancel(ctx, queue, req)
}

func (p prefixed) Reschedule(ctx context.Context, queue string, ids []string, due store.Due) ([]error, error) {
	p.shard("Reschedule", queue)
	return p.Store.Reschedule(ctx, queue, p.inIDs(ids), due)
}

func (p prefixed) Get(ctx context.Context, queue string, ids []string) ([]*store.Info, error) {
	p.shard("Get", queue)
	infos, err := p.Store.Get(ctx, queue, p.inIDs(ids))
	for _, info := range infos {
		if info != nil {
			info.ID = p.cut(info.ID)
		}
	}
	return infos, err
}

func (p prefixed) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	p.shard("List", queue)
	page, err := p.Store.List(ctx, queue, req)
	for i := range page.Messages {
		page.Messages[i].ID = p.cut(page.Messages[i].ID)
	}
	return page, err
}

func (p prefixed) Restore(ctx context.Context, queue string, msgs []store.Info) ([]store.SendResult, error) {
	p.shard("Restore", queue)
	return p.Store.Restore(ctx, queue, mapped(msgs, func(m *store.Info) { p.inInfo(m) }))
}

func (p prefixed) Remove(ctx context.Context, queue string, msgs []store.Info) ([]bool, error) {
	p.shard("Remove", queue)
	return p.Store.Remove(ctx, queue, mapped(msgs, func(m *store.Info) { p.inInfo(m) }))
}

func (p prefixed) Replay(
	ctx context.Context, queue string, sel store.Selection, due store.Due,
) (store.Bulk, error) {
	p.shard("Replay", queue)
	sel.IDs = p.inIDs(sel.IDs)
	return p.Store.Replay(ctx, queue, sel, due)
}

func (p prefixed) Purge(ctx context.Context, queue string, sel store.Selection) (store.Bulk, error) {
	p.shard("Purge", queue)
	sel.IDs = p.inIDs(sel.IDs)
	return p.Store.Purge(ctx, queue, sel)
}

func (p prefixed) Keys(ctx context.Context, queue string, req store.KeysRequest) ([]store.KeyState, error) {
	keys, err := p.Store.Keys(ctx, queue, req)
	for i := range keys {
		keys[i].Holder = p.cut(keys[i].Holder)
	}
	return keys, err
}

// forwarding is a prefixed store that is a store.Forwarder.
type forwarding struct{ prefixed }

func (p forwarding) Forward(ctx context.Context, queue string, req store.ForwardRequest) (store.Forwarded, error) {
	p.shard("Forward", queue)
	f, err := p.Store.(store.Forwarder).Forward(ctx, queue, req)
	f.IDs, f.Died = p.outIDs(f.IDs), p.outIDs(f.Died)
	f.Expired, f.Dropped = p.outIDs(f.Expired), p.outIDs(f.Dropped)
	return f, err
}

func (p forwarding) ForwardsTo(queue string, to store.Target) (bool, error) {
	return p.Store.(store.Forwarder).ForwardsTo(queue, to)
}

func (p forwarding) Deliver(ctx context.Context, to store.Target, msgs []store.Claimed) error {
	return p.Store.(store.Forwarder).Deliver(ctx, to, msgs)
}

// Linked implements store.Linker.
func (p prefixed) Linked(queue, to string) bool { return store.Linked(p.Store, queue, to) }
