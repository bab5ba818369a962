package shard

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// claimCalls are the claims from single shards that belong to one Claim. If a shard lets a claim wait, others are
// asked, so that their messages do not wait for a server that is down. Messages that arrive after the end are released.
//
// A Claim that may be repeated under its request waits for each shard: the repetition has the messages that would be
// released.
type claimCalls struct {
	s       *Store
	r       *route
	req     store.ClaimRequest
	caller  context.Context
	ctx     context.Context // of the claims
	results chan claimResult
	patient bool
	began   time.Time // of the last claim
	open    []int     // shards with claims that have not taken long
	late    int       // number of other claims without a result

	cancel context.CancelCauseFunc
	detach func() bool
}

type claimResult struct {
	shard  int
	claim  store.Claim
	err    error
	buffer *[]store.Claimed
}

func (s *Store) newClaimCalls(ctx context.Context, r *route, req store.ClaimRequest) *claimCalls {
	_, repeats := store.RequestOf(ctx)
	if r.Until != 0 {
		req.Until = time.UnixMilli(r.Until)
	}
	cs := &claimCalls{s: s, r: r, req: req, caller: ctx, patient: repeats, results: make(chan claimResult, len(r.names))}
	var all context.Context
	all, cs.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	cs.ctx, cs.detach = all, context.AfterFunc(ctx, func() { cs.cancel(context.Cause(ctx)) })
	return cs
}

// releaseTime limits one attempt to release the messages of a late claim.
const releaseTime = 10 * time.Second

// claimBuffers has memory for results. A claim may still write to it after the Claim has returned.
var claimBuffers = sync.Pool{New: func() any { return new([]store.Claimed) }}

// claim begins a claim from a shard.
func (cs *claimCalls) claim(shard int) {
	cs.open = append(cs.open, shard)
	cs.began = time.Now()
	req := cs.req
	go func() {
		buffer := claimBuffers.Get().(*[]store.Claimed)
		req.Buffer = *buffer
		claim, err := cs.s.engine.Claim(in(cs.ctx, shard), cs.r.names[shard], req)
		if claim.Messages != nil {
			*buffer = claim.Messages
		}
		cs.results <- claimResult{shard, claim, err, buffer}
	}()
}

// wait reports whether a Claim without another shard to ask waits for a result: for a result that may still be soon,
// or, if no shard has answered, for any.
func (cs *claimCalls) wait(asked bool) bool { return len(cs.open) > 0 || cs.late > 0 && !asked }

// result returns the result of a claim, or false if none arrives soon and other shards are to be asked. If the caller
// has gone, the shard of the result is -1.
func (cs *claimCalls) result() (got claimResult, ok bool) {
	var soon <-chan time.Time
	if len(cs.open) > 0 {
		timer := time.NewTimer(time.Until(cs.began.Add(cs.s.patience)))
		defer timer.Stop()
		soon = timer.C
	}
	for {
		select {
		case got = <-cs.results:
			cs.over(got.shard)
			got.claim.Messages = append(cs.req.Buffer[:0], got.claim.Messages...)
			claimBuffers.Put(got.buffer)
			return got, true
		case <-soon:
			for _, shard := range cs.open {
				cs.s.doubt(cs.r, shard)
			}
			if cs.patient {
				continue
			}
			cs.late += len(cs.open)
			cs.open = cs.open[:0]
			return got, false
		case <-cs.caller.Done(): // an engine may notice it later
			return claimResult{err: context.Cause(cs.caller), shard: -1}, true
		}
	}
}

// over records that a claim has a result.
func (cs *claimCalls) over(shard int) {
	if i := slices.Index(cs.open, shard); i >= 0 {
		cs.open = slices.Delete(cs.open, i, i+1)
	} else {
		cs.late--
	}
}

// end ends the Claim. Claims without a result go on, and give back their messages.
func (cs *claimCalls) end() {
	attached := cs.detach()
	n := len(cs.open) + cs.late
	if n == 0 {
		cs.cancel(nil)
		return
	}
	cs.req.Buffer = nil // it is the caller's
	stop := func() bool { return true }
	if attached {
		stop = context.AfterFunc(cs.s.ending, func() { cs.cancel(store.ErrClosed) })
	}
	cs.s.loop(func() {
		for range n {
			cs.giveBack(<-cs.results)
		}
		stop()
		cs.cancel(nil)
	})
}

// giveBack releases the messages of a late claim. It tries to until their lease has ended.
func (cs *claimCalls) giveBack(got claimResult) {
	c := cs.s.consumer(cs.r.queue)
	if got.err != nil {
		c.warm(cs.r.names[got.shard])
		cs.s.loseIfDown(cs.ctx, cs.r, got.shard, got.err)
		return
	}
	c.keep(&got.claim)
	c.heat(cs.r.names[got.shard])
	list := make([]store.Settlement, len(got.claim.Messages))
	for i, m := range got.claim.Messages {
		m.Receipt.Lease = leaseIn(got.shard, m.Receipt.Lease)
		list[i] = store.Settlement{Receipt: m.Receipt, Action: store.Release}
	}
	claimBuffers.Put(got.buffer)
	for over := time.Now().Add(cs.req.Lease); len(list) > 0 && time.Now().Before(over); {
		ctx, cancel := context.WithTimeout(cs.s.ending, releaseTime)
		_, err := cs.s.Settle(ctx, cs.r.queue, list)
		cancel()
		if err == nil || pause(cs.s.ending, askAgain) != nil {
			return
		}
	}
}
