package redisstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

var urgencies = []store.Urgency{store.UrgencyNormal, store.UrgencyHigh, store.UrgencyLow}

// urgentHistory is a random history of a queue with urgencies.
type urgentHistory struct {
	*limitedQueue
	rnd  *rand.Rand
	flow store.Flow
	sent int
	held []store.Claimed
}

func (h *urgentHistory) key() string {
	return []string{"", "a", "b", "c!", "c"}[h.rnd.IntN(5)]
}

// id returns the id of some message that was sent.
func (h *urgentHistory) id() string { return fmt.Sprintf("m%05d", h.rnd.IntN(h.sent+1)) }

func (h *urgentHistory) send() {
	h.Helper()
	urgency := urgencies[h.rnd.IntN(3)]
	if !h.flow.Urgency && h.rnd.IntN(5) > 0 {
		urgency = store.UrgencyNormal
	}
	var msgs []store.Outgoing
	for range 1 + h.rnd.IntN(6) {
		h.sent++
		m := store.Outgoing{Message: store.Message{ID: fmt.Sprintf("m%05d", h.sent), Key: h.key(), Urgency: urgency}}
		if h.rnd.IntN(3) == 0 {
			m.Due.Delay = time.Duration(h.rnd.IntN(300)) * time.Millisecond
		}
		if h.rnd.IntN(4) == 0 {
			m.ID = h.id()
			m.OnDuplicate = store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: h.rnd.IntN(2) == 0}
		}
		if h.rnd.IntN(12) == 0 {
			m.ExpireAfter = 100 * time.Millisecond
		}
		msgs = append(msgs, m)
	}
	_, err := h.s.Send(h.Context(), h.queue, msgs)
	if refused := urgency != store.UrgencyNormal && !h.flow.Urgency; refused != errors.Is(err, store.ErrInvalid) {
		h.Fatalf("a send with urgency %q, where the flow is %+v: %v", urgency, h.flow, err)
	} else if !refused {
		h.ok(err)
	}
}

func (h *urgentHistory) claim() {
	h.Helper()
	c, err := h.s.Claim(h.Context(), h.queue, store.ClaimRequest{Max: 1 + h.rnd.IntN(6), Ahead: h.rnd.IntN(2),
		Lease: time.Second})
	h.ok(err)
	h.held = append(h.held, c.Messages...)
}

func (h *urgentHistory) settle() {
	h.Helper()
	var all []store.Settlement
	for range min(len(h.held), 1+h.rnd.IntN(4)) {
		i := h.rnd.IntN(len(h.held))
		s := store.Settlement{Receipt: h.held[i].Receipt, Action: store.Ack + store.Action(h.rnd.IntN(6)), Reason: "no"}
		if s.Action == store.Nack || s.Action == store.Snooze {
			s.Delay = time.Duration(h.rnd.IntN(2)*h.rnd.IntN(300)) * time.Millisecond
		}
		h.held[i] = h.held[len(h.held)-1]
		h.held = h.held[:len(h.held)-1]
		all = append(all, s)
	}
	if len(all) > 0 {
		_, err := h.s.Settle(h.Context(), h.queue, all)
		h.ok(err)
	}
}

// manage changes messages by id or in bulk.
func (h *urgentHistory) manage() {
	h.Helper()
	ctx, list := h.Context(), []string{h.id(), h.id(), h.id()}
	var err error
	switch h.rnd.IntN(10) {
	case 0, 1:
		_, err = h.s.Cancel(ctx, h.queue, store.CancelRequest{IDs: list})
	case 2, 3:
		_, err = h.s.Reschedule(ctx, h.queue, list, store.Due{Delay: time.Duration(h.rnd.IntN(200)) * time.Millisecond})
	case 4:
		_, err = h.s.Replay(ctx, h.queue, store.Selection{State: store.StateDead}, store.Due{})
	case 5:
		if err = h.s.ResumeKey(ctx, h.queue, "a"); errors.Is(err, store.ErrNotFound) {
			err = nil
		}
	case 6:
		state := []store.State{store.StateReady, store.StateDead, store.StateScheduled, ""}[h.rnd.IntN(4)]
		_, err = h.s.Purge(ctx, h.queue, store.Selection{State: state})
	case 7:
		var infos []*store.Info
		infos, err = h.s.Get(ctx, h.queue, list[:1])
		if h.ok(err); infos[0] != nil {
			_, err = h.s.Remove(ctx, h.queue, []store.Info{*infos[0]})
		}
	case 8:
		to := store.Target{Kind: store.TargetQueue, Name: h.queue + " forwarded"}
		_, err = h.s.Forward(ctx, h.queue, store.ForwardRequest{To: to, Max: 1 + h.rnd.IntN(4)})
	case 9:
		weight := 1 + h.rnd.IntN(3)
		o := store.KeyOverride{Weight: &weight, Rate: &store.Rate{N: h.rnd.IntN(3) * 5, Per: time.Second, Burst: 2}}
		if o.Rate.N == 0 {
			o.Rate = nil
		}
		if err = h.s.SetKeyFlow(ctx, h.queue, "b", o); !h.flow.Normal().Fair && errors.Is(err, store.ErrInvalid) {
			err = nil
		}
	}
	h.ok(err)
}

// change changes the flow.
func (h *urgentHistory) change(fair bool) {
	h.Helper()
	f := store.Flow{Urgency: h.rnd.IntN(4) > 0, Fair: true}
	f.Key.Order = []store.Order{store.OrderNone, store.OrderContinue, store.OrderHalt}[h.rnd.IntN(3)]
	if h.rnd.IntN(2) == 0 {
		f.Key.Rate = store.Rate{N: 1 + h.rnd.IntN(9), Per: time.Second, Burst: 1 + h.rnd.IntN(3)}
	}
	if f.Key.Order == store.OrderNone {
		f.Key.Concurrency = h.rnd.IntN(3)
	}
	if !fair && h.rnd.IntN(4) == 0 {
		f = store.Flow{Concurrency: 5}
	}
	h.set(f)
	h.flow = f
}

// compare compares the views of the keys that wait.
func (h *urgentHistory) compare() {
	h.Helper()
	if !h.flow.Normal().Fair {
		return
	}
	for after, waiting := "", int64(0); ; {
		page, err := h.s.Keys(h.Context(), h.queue, store.KeysRequest{Limit: 1 + h.rnd.IntN(3), After: after})
		h.ok(err)
		for i, k := range page {
			if i > 0 && k.Key <= page[i-1].Key || k.Key != "" && k.Key <= after {
				h.Fatalf("key %q is listed twice: %+v", k.Key, page)
			}
			if waiting += k.Waiting; k.Waiting > 0 && (k.Since.IsZero() || k.Since.After(k.Now)) {
				h.Fatalf("%d messages wait since %v: %+v", k.Waiting, k.Since, k)
			}
		}
		if len(page) == 0 || page[len(page)-1].Key == "" {
			if sorted := h.sorted(); waiting < sorted {
				h.Fatalf("%d messages wait by key, %d are sorted", waiting, sorted)
			}
			return
		}
		after = page[len(page)-1].Key
	}
}

// drain starts and acks every message.
func (h *urgentHistory) drain() {
	h.Helper()
	h.set(store.Flow{Urgency: h.flow.Urgency, Key: store.KeyFlow{Order: store.OrderContinue}})
	for range 400 {
		h.advance(time.Second)
		h.ack(claim(h, h.s, h.queue, 50, time.Second).Messages)
		st, err := h.s.Stats(h.Context(), h.queue)
		if h.ok(err); st.Ready+st.Scheduled+st.Leased == 0 {
			return
		}
	}
	h.Error("not every message starts")
}

// The state of keys is sound after every step, whatever messages and flows do.
func TestStateOfKeysWithUrgenciesIsSoundInRandomHistories(t *testing.T) {
	histories := 5
	if long() {
		histories = 100
	}
	for seed := range uint64(histories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			q := newLimitedQueue(t, fmt.Sprint("urgent history ", seed), store.Flow{Urgency: true})
			h := &urgentHistory{limitedQueue: q, rnd: rand.New(rand.NewPCG(seed, 32)), flow: store.Flow{Urgency: true}}
			for step := range 150 {
				switch n := h.rnd.IntN(20); {
				case n < 6:
					h.send()
				case n < 10:
					h.claim()
				case n < 14:
					h.settle()
				case n < 16:
					h.manage()
				case n < 19:
					h.advance(time.Duration(h.rnd.IntN(400)) * time.Millisecond)
				default:
					h.change(seed%2 == 0)
				}
				if found := h.issues(false); len(found) > 0 {
					t.Fatalf("after step %d: %q", step, found)
				}
				h.compare()
			}
			h.drain()
			h.noIssues()
			h.empty()
		})
	}
}
