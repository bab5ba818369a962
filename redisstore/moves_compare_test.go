package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// twin is a pair of sub-queues in one of two engines that make the same calls.
type twin struct {
	s interface {
		store.Store
		store.SubQueues
	}
	queues [2]string
	held   []heldMessage
}

type heldMessage struct {
	queue int
	store.Claimed
}

func (w *twin) claim(ctx context.Context, queue int) (ids []string, err error) {
	c, err := w.s.Claim(ctx, w.queues[queue], store.ClaimRequest{Max: 50, Lease: time.Hour})
	for _, m := range c.Messages {
		ids, w.held = append(ids, m.ID), append(w.held, heldMessage{queue, m})
	}
	slices.Sort(ids)
	slices.SortFunc(w.held, func(a, b heldMessage) int {
		return slices.Compare([]string{fmt.Sprint(a.queue), a.ID}, []string{fmt.Sprint(b.queue), b.ID})
	})
	return ids, err
}

func (w *twin) settle(ctx context.Context, i int, s store.Settlement) (string, error) {
	m := w.held[i]
	s.Receipt = m.Receipt
	w.held = slices.Delete(w.held, i, i+1)
	results, err := w.s.Settle(ctx, w.queues[m.queue], []store.Settlement{s})
	if err != nil {
		return "", err
	}
	return fmt.Sprint(m.ID, store.CodeOf(results[0].Err)), nil
}

func (w *twin) move(ctx context.Context, from int, ids, keys []string) (string, error) {
	d, err := w.s.Depart(ctx, w.queues[from], store.Departure{To: w.queues[1-from], IDs: ids, Keys: keys})
	if err == nil && d.Parcel != nil {
		err = errors.Join(w.s.Arrive(ctx, d.Parcel), w.s.Empty(ctx, w.queues[from], d.Parcel.Number))
	}
	slices.Sort(d.Leased)
	slices.Sort(d.Busy)
	return fmt.Sprint(d.Leased, slices.Compact(d.Busy), d.Parcel != nil, d.Number), err
}

// state returns what an engine knows of a sub-queue: its keys, and how many messages are in each state.
func (w *twin) state(ctx context.Context, queue int) (string, error) {
	var known []string
	for cursor := ""; ; {
		part, err := w.s.Scan(ctx, w.queues[queue], cursor)
		if err != nil {
			return "", err
		}
		known = append(known, part.Keys...)
		if cursor = part.Next; cursor == "" {
			break
		}
	}
	slices.Sort(known)
	st, err := w.s.Stats(ctx, w.queues[queue])
	text := fmt.Sprint(slices.Compact(known), st.Ready, st.Scheduled, st.Leased, st.Dead, st.Flow.Keys.Full,
		st.Flow.Keys.Halted)
	for _, key := range []string{"k", "l", "m"} {
		page, keyErr := w.s.Keys(ctx, w.queues[queue], store.KeysRequest{Key: key, Limit: 1})
		if err = errors.Join(err, keyErr); err == nil {
			k := page[0]
			text += fmt.Sprintf(" %s %d %d %q %v %v %v %v", k.Key, k.Leased, k.Waiting, k.Holder, k.Held, k.Halted,
				k.Override != nil, k.Next.UnixMicro())
		}
	}
	return text, err
}

// The two engines make the same random calls about keys of sub-queues, with the same results.
func TestMovesOfKeysAreTheSameInBothEngines(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	flows := []store.Flow{{Fair: true}, continues, {Key: store.KeyFlow{Order: store.OrderHalt}},
		{Urgency: true, Key: store.KeyFlow{Order: store.OrderHalt}}, {Urgency: true},
		{Key: store.KeyFlow{Concurrency: 2}},
		{Key: store.KeyFlow{Rate: store.Rate{N: 3, Per: time.Second, Burst: 2}}}}
	histories := 21
	if long() {
		histories = 700
	}
	for seed := range uint64(histories) {
		movesAreTheSame(t, newFrozenClock(t, rdb), seed, flows[seed%uint64(len(flows))])
		if t.Failed() {
			return
		}
	}
}

func movesAreTheSame(t *testing.T, r *Store, seed uint64, flow store.Flow) {
	rnd, ctx := rand.New(rand.NewPCG(seed, 7)), t.Context()
	name := fmt.Sprint("same moves ", seed, store.NewID()) // a repeated test finds nothing from before
	advance(r.rdb)(t, name, 0)
	now, err := r.rdb.Get(ctx, DefaultPrefix+"{"+name+"}:clock").Int64()
	if err != nil {
		t.Fatal(err)
	}
	clock := memstore.NewManualClock(time.UnixMicro(now))
	queues := [2]string{name + "{g1}", name + "{g2}"}
	twins := []*twin{{s: memstore.New(memstore.WithClock(clock)), queues: queues}, {s: r, queues: queues}}
	defer twins[0].s.Close()
	var log []string
	do := func(what string, step func(w *twin) (string, error)) {
		t.Helper()
		var results []string
		for _, w := range twins {
			result, err := step(w)
			if err != nil && !errors.Is(err, store.ErrConflict) {
				result = err.Error()
			}
			results = append(results, fmt.Sprint(result, errors.Is(err, store.ErrConflict)))
		}
		log = append(log, what+" "+results[0])
		if results[0] != results[1] {
			for _, line := range log {
				t.Log(line)
			}
			t.Fatalf("seed %d, %+v, %s: memstore %s, redisstore %s", seed, flow, what, results[0], results[1])
		}
	}
	for i := range queues {
		do("create", func(w *twin) (string, error) {
			return "", w.s.Create(ctx, w.queues[i], store.Settings{Flow: flow})
		})
	}
	all, keys := []string{}, []string{"k", "l", "m"}
	for n := range 60 {
		queue := rnd.IntN(2)
		key, id := keys[rnd.IntN(3)], fmt.Sprintf("m%02d", n)
		switch what := rnd.IntN(12); what {
		case 0, 1, 2:
			m := store.Outgoing{Message: store.Message{ID: id, Key: key}}
			if flow.Urgency {
				m.Urgency = urgencies[rnd.IntN(3)]
			}
			if rnd.IntN(4) == 0 {
				m.Due.Delay = time.Second
			}
			all = append(all, id)
			do(fmt.Sprint("send ", queue, id, key, m.Due.Delay), func(w *twin) (string, error) {
				_, err := w.s.Send(ctx, w.queues[queue], []store.Outgoing{m})
				return "", err
			})
		case 3, 4:
			if n := len(twins[0].held); n > 0 {
				i := rnd.IntN(n)
				actions := []store.Action{store.Ack, store.Nack, store.Bury, store.Release}
				s := store.Settlement{Action: actions[rnd.IntN(4)], Reason: "no",
					Delay: time.Duration(rnd.IntN(2)) * time.Second}
				do(fmt.Sprint("settle ", s.Action, s.Delay), func(w *twin) (string, error) {
					return w.settle(ctx, i, s)
				})
			}
		case 5, 6, 7:
			var ids []string
			for _, id := range all {
				if rnd.IntN(2) == 0 {
					ids = append(ids, id)
				}
			}
			departs := keys[rnd.IntN(3):]
			do(fmt.Sprint("move ", queue, ids, departs), func(w *twin) (string, error) {
				return w.move(ctx, queue, ids, departs)
			})
		case 8:
			e := store.Expected{From: queues[1-queue], Number: int64(rnd.IntN(20)), Keys: keys[rnd.IntN(3):],
				None: rnd.IntN(2) == 0}
			do(fmt.Sprintf("expect %d %+v", queue, e), func(w *twin) (string, error) {
				last, err := w.s.Expect(ctx, w.queues[queue], e)
				return fmt.Sprint(last), err
			})
		case 9:
			var o store.KeyOverride
			if rnd.IntN(2) == 0 {
				o.Rate = &store.Rate{N: 1 + rnd.IntN(3), Per: time.Second, Burst: 1 + rnd.IntN(2)}
			}
			do(fmt.Sprintf("override %d %s %+v", queue, key, o.Rate), func(w *twin) (string, error) {
				return "", w.s.SetKeyFlow(ctx, w.queues[queue], key, o)
			})
		default:
			d := time.Duration(rnd.IntN(700)) * time.Millisecond
			log = append(log, fmt.Sprint("advance ", d))
			clock.Advance(d)
			advance(r.rdb)(t, name, d)
		}
		for i := range queues {
			do(fmt.Sprint("claim ", i), func(w *twin) (string, error) {
				ids, err := w.claim(ctx, i)
				return fmt.Sprint(ids), err
			})
			do(fmt.Sprint("state ", i), func(w *twin) (string, error) { return w.state(ctx, i) })
		}
	}
	for _, name := range queues {
		(&limitedQueue{t, r, r.rdb, name}).sound()
	}
}
