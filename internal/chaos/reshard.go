//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// Under the reshard faults a process changes the numbers of shards of the queues again and again, and all processes
// move the messages.
//
// In production a change ends minutes after its messages have moved, when no call from before can be repeated or arrive
// any more. Here an attempt takes at most shardReadTimeout, a call is repeated for shardRetry after the first attempt
// has failed, the pause before the last attempt is at most 0.75 s, and the proxy delivers it at most maxLate after it
// has ended: 4.95 s. A process or a server may be frozen for maxFreeze in that time.
const (
	shardRetry       = 2 * time.Second
	shardReadTimeout = time.Second
	shardLate        = 5*time.Second + maxFreeze
	shardTurn        = 3 * time.Second // for which a process is the mover; another one follows one that was killed
	// The messages of a queue with keys move in several windows, and most of them are due soon.
	shardWindow = 20
	shardAhead  = 300 * time.Millisecond
)

// maxShards is the largest number of shards.
const maxShards = 5

// resharderKind is the role of a process that changes the numbers of shards.
const resharderKind = "resharder"

// shardedLimits has the sets of limits of each queue, as limitSets. All limits of a queue are at least maxShards,
// because the shards share them. While they change, one shard after the other gets its share. So of two rates of a
// queue, both the rate and the burst of one are the larger ones, and all shards can share a rate evenly: then a mixture
// of both allows no more than the larger one. The urgency of a queue stays as it is.
var shardedLimits = [][]later.Flow{
	{
		{},
		{Concurrency: 5, Rate: later.Rate{N: 120, Per: time.Second, Burst: 10}},
		{Concurrency: 10},
		{Fair: true},
		{Rate: later.Rate{N: 240, Per: time.Second, Burst: 20}},
	},
	{
		{Concurrency: 5, Rate: later.Rate{N: 180, Per: time.Second, Burst: 10}},
		{Concurrency: 9, Rate: later.Rate{N: 120, Per: time.Second, Burst: 5}},
		{Concurrency: 6},
		{Rate: later.Rate{N: 240, Per: time.Second, Burst: 15}},
		{},
	},
	{
		{Concurrency: 6, Rate: later.Rate{N: 120, Per: time.Second, Burst: 10}, Key: later.KeyFlow{
			Concurrency: 2, Rate: later.Rate{N: 60, Per: time.Second, Burst: 4},
		}},
		{Concurrency: 10, Rate: later.Rate{N: 180, Per: time.Second, Burst: 12}, Key: later.KeyFlow{Concurrency: 3}},
		{Concurrency: 5, Key: later.KeyFlow{Concurrency: 1}},
		{Rate: later.Rate{N: 120, Per: time.Second, Burst: 6}, Key: later.KeyFlow{
			Rate: later.Rate{N: 40, Per: time.Second, Burst: 2},
		}},
		{Concurrency: 6},
	},
	{
		{Concurrency: 5, Key: later.KeyFlow{Order: store.OrderContinue}, Urgency: true},
		{Concurrency: 10, Key: later.KeyFlow{
			Rate: later.Rate{N: 60, Per: time.Second, Burst: 4}, Order: store.OrderContinue,
		}, Urgency: true},
		{Key: later.KeyFlow{Order: store.OrderHalt}, Urgency: true},
		{Concurrency: 7, Key: later.KeyFlow{Concurrency: 2}, Urgency: true},
	},
	{
		{Key: later.KeyFlow{Order: store.OrderContinue}},
		{Rate: later.Rate{N: 120, Per: time.Second, Burst: 8}, Key: later.KeyFlow{
			Rate: later.Rate{N: 50, Per: time.Second, Burst: 3}, Order: store.OrderHalt,
		}},
		{Concurrency: 6, Rate: later.Rate{N: 180, Per: time.Second, Burst: 8}, Key: later.KeyFlow{
			Rate: later.Rate{N: 30, Per: time.Second, Burst: 2}, Order: store.OrderContinue,
		}},
		{Concurrency: 5, Key: later.KeyFlow{Order: store.OrderHalt}},
		{Concurrency: 8},
	},
}

var shardedLoad = defaultLoad.with(func(l *load) {
	l.rate, l.queues, l.sharded = 300, len(shardedLimits), true
	l.limited, l.limits, l.ordered = true, shardedLimits, orderedQueues
})

// shardedOptions are the options of the store's URL in all processes.
var shardedOptions = fmt.Sprintf("?retry=%v&read_timeout=%v", shardRetry, shardReadTimeout)

// idOf returns the id of a message: in a queue with several shards, one with a key is in the shard of its key.
func (p *producer) idOf(name, key string) string {
	if p.Sharded && key != "" {
		return key + "/" + name
	}
	return name
}

// sharded returns a store with changes of the numbers of shards that end soon. Consumers record its failed claims.
func (r role) sharded(s store.Store, j *journal, log *slog.Logger) store.Store {
	if engine, ok := s.(shard.Engine); ok && r.Kind != "producer" {
		engine = claimWatch{engine, j}
		if r.Deadly {
			engine = deadly{engine}
		}
		s = engine
	}
	s = shard.New(s, log)
	hurry(s, r.Actor)
	return s
}

// hurry has the changes of a store end soon.
func hurry(s store.Store, name string) {
	shard.Hurry(s, name, shardLate, shardTurn)
	shard.Windows(s, shardWindow, shardAhead)
}

// claimWatch records the claims that fail in one shard, since the call then asks the others.
type claimWatch struct {
	shard.Engine
	journal *journal
}

// Unwrap lets store.As find what the engine can do.
func (c claimWatch) Unwrap() store.Store { return c.Engine }

// Claim implements store.Store.
func (c claimWatch) Claim(ctx context.Context, name string, req store.ClaimRequest) (store.Claim, error) {
	call := now()
	claim, err := c.Engine.Claim(ctx, name, req)
	if _, moved := errors.AsType[*store.Moved](err); err != nil && !moved {
		queue, _, _, _ := store.CutSubQueue(name)
		c.journal.one(claimFailed, now(), "-", call, queue, outcomeOf(err))
	}
	return claim, err
}

// deadly kills its process after some of the steps of a change, so that another process has to go on from there.
type deadly struct{ shard.Engine }

// stepsAlive is after how many steps the process is killed, in the mean.
const stepsAlive = 25

// Unwrap lets store.As find what the engine can do.
func (d deadly) Unwrap() store.Store { return d.Engine }

func (d deadly) perhapsDie() {
	if rand.IntN(stepsAlive) == 0 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// SetSign implements store.SubQueues.
func (d deadly) SetSign(ctx context.Context, name, sign, former string) error {
	defer d.perhapsDie()
	return d.Engine.SetSign(ctx, name, sign, former)
}

// Create implements store.SubQueues.
func (d deadly) Create(ctx context.Context, name string, s store.Settings) error {
	defer d.perhapsDie()
	return d.Engine.Create(ctx, name, s)
}

// Rename implements store.SubQueues.
func (d deadly) Rename(ctx context.Context, from, to, sign, former string) error {
	defer d.perhapsDie()
	return d.Engine.Rename(ctx, from, to, sign, former)
}

// Retire implements store.SubQueues.
func (d deadly) Retire(ctx context.Context, name, sign string) error {
	defer d.perhapsDie()
	return d.Engine.Retire(ctx, name, sign)
}

// Depart implements store.SubQueues.
func (d deadly) Depart(ctx context.Context, name string, of store.Departure) (store.Departed, error) {
	defer d.perhapsDie()
	return d.Engine.Depart(ctx, name, of)
}

// Arrive implements store.SubQueues.
func (d deadly) Arrive(ctx context.Context, p *store.Parcel) error {
	defer d.perhapsDie()
	return d.Engine.Arrive(ctx, p)
}

// resharder changes the numbers of shards of queues.
type resharder struct {
	role
	store   store.Store
	journal *journal
}

func (r resharder) run(ctx context.Context) error {
	random := rand.New(rand.NewPCG(r.Seed, uint64(now())))
	last := map[string]int{}
	for sleep(ctx, time.Duration(random.Int64N(int64(100*time.Millisecond)))) {
		queue, n := r.Queues[random.IntN(len(r.Queues))], 1+random.IntN(maxShards)
		if n == last[queue] {
			continue
		}
		call, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := store.SetShards(call, r.store, queue, n)
		cancel()
		if r.journal.one(reshardedTo, now(), "-", queue, n, outcomeOf(err)); err == nil {
			last[queue] = n
		}
	}
	return nil
}

// addReshards adds two processes that change the numbers of shards. One dies between two steps of a change, again and
// again. All processes repeat their calls for shardRetry.
func (r *run) addReshards() {
	for i, deadly := range []bool{true, false} {
		role := r.consumer(resharderKind, fmt.Sprint(resharderKind, i), r.servers.url)
		role.Deadly, role.Seed = deadly, role.Seed+uint64(i)
		r.add(role)
	}
	for _, c := range r.children {
		c.role.URL += shardedOptions
	}
}

// endResharding ends the changes, and sets the first limits.
func endResharding(ctx context.Context, r *run) error {
	r.operator.endChanges()
	for _, c := range r.children {
		if c.role.Deadly && c.alive() {
			r.kill(c)
		}
	}
	if err := r.drainChildren(ctx, resharderKind, resendLimit); err != nil {
		return err
	}
	return r.limit(ctx, halts)
}

// awaitShards waits until no change is under way.
func awaitShards(ctx context.Context, r *run) error {
	for _, queue := range r.queues {
		err := within(ctx, drainPatience, "the end of a change of shards", func(ctx context.Context) error {
			// A process may have died after it wrote the directory, and no other one has read that.
			if _, err := shard.Names(ctx, r.client.Store(), queue); err != nil {
				return err
			}
			s, err := store.ShardsOf(ctx, r.client.Store(), queue)
			if err == nil && (s.From != s.Number || !s.Since.IsZero()) {
				err = fmt.Errorf("%s changes from %d to %d shards since %v, moving %v: %s", queue, s.From, s.Number, s.Since,
					s.Moving, describeShards(&s))
			}
			return err
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			r.result.violate("stuck", "-", "%v", err)
		}
	}
	return nil
}

func describeShards(s *store.Shards) string {
	var each []string
	for _, one := range s.Each {
		each = append(each, fmt.Sprintf("%d scheduled, %d ready, %d leased, %d dead, %v", one.Stats.Scheduled,
			one.Stats.Ready, one.Stats.Leased, one.Stats.Dead, one.Err))
	}
	return strings.Join(each, "; ")
}

// sendOnce sends a message with a store.Once, and half of the times again when it may have been handled.
func (p *producer) sendOnce(trying context.Context, q *later.Queue, random *rand.Rand, key string) {
	o, due, flags := p.outgoing(q, random, key)
	o.Once = store.NewOnce([]byte(key), []byte(key))
	if flags == flagNone {
		flags = ""
	}
	if flags += string(flagOnce); !strings.ContainsRune(flags, flagDedup) {
		flags += string(flagDedup)
	}
	send := func() {
		p.untilSent(trying, q, []later.Outgoing{o}, []string{key}, []string{due}, []string{flags})
	}
	send()
	if random.IntN(2) == 0 {
		wait := time.Duration(random.Int64N(int64(2 * p.Spread)))
		p.followUps.Go(func() {
			sleep(trying, wait)
			send()
		})
	}
}

// lookFor looks for a message that is due long after the run, some times.
func (p *producer) lookFor(trying context.Context, q *later.Queue, id string, wait time.Duration) {
	for range 5 {
		if !sleep(trying, wait) {
			return
		}
		call, cancel := context.WithTimeout(trying, 15*time.Second)
		at := now()
		_, err := q.Get(call, id)
		cancel()
		if errors.Is(err, later.ErrNotFound) {
			p.journal.one(missed, now(), id, at)
		}
	}
}
