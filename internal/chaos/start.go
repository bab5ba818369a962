//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// manyQueues is a number of queues above which a receiver does not receive from all, and most queues are idle.
const manyQueues = 20

// queuesPerNode is the number of queues on each node if load.perNode is set.
const queuesPerNode = 2

// firstWorker is the index of the first worker in run.children.
const firstWorker = 2

// start starts servers and processes and returns when messages flow.
func (r *run) start(ctx context.Context) (err error) {
	if r.journal, err = openJournal(r.dir, "run"); err != nil {
		return err
	}
	set := r.fault.setting
	if r.servers, err = startServers(ctx, set, r.dir, r.cfg.Seed); err != nil {
		return err
	}
	if set.form != shared { // while faults are injected, only the children share a directory
		url := r.servers.url
		if r.fault.load.sharded {
			url += shardedOptions
		}
		if r.client, err = openClient(ctx, url); err != nil {
			return err
		}
	}
	if r.fault.load.sharded {
		hurry(r.client.Store(), "run")
	}
	queues := 2
	if set.form == cluster {
		queues = 4 // so that not all are on one node
	}
	l := r.fault.load
	if queues = cmp.Or(l.queues, queues); l.perNode {
		if r.queues, err = r.nameQueues(ctx, queuesPerNode); err != nil {
			return err
		}
	} else {
		for i := range queues {
			name := fmt.Sprintf("q%d-%d", i, r.cfg.Seed)
			if l.topics {
				name = topicQueue + name
			}
			r.queues = append(r.queues, name)
		}
	}
	if l.limited {
		if err := r.limit(ctx, halts); err != nil {
			return err
		}
		r.operate(ctx)
	}
	r.lease = l.lease
	workers := 2
	switch {
	case l.locked:
		workers = len(lockPolicies)
	case l.controlled:
		workers = fleetSize
	}
	rate := r.cfg.Rate
	if rate == 0 {
		rate = l.rate
	}
	producers := 2
	if l.perNode {
		producers = len(r.queues) / queuesPerNode
	}
	for i := range producers {
		p := r.producer(fmt.Sprint("producer", i), r.servers.url, rate/producers)
		if l.perNode {
			p.Queues = r.queues[i*queuesPerNode:][:queuesPerNode]
		}
		r.add(p)
	}
	for i := range workers {
		r.add(r.consumer("worker", fmt.Sprint("worker", i), r.servers.url))
	}
	receiver := r.consumer("receiver", "receiver", r.servers.url)
	receiver.Queues = receiver.Queues[:min(len(receiver.Queues), manyQueues)]
	r.add(receiver)
	laggard := r.consumer("laggard", "laggard", r.servers.url)
	r.lagQueue = fmt.Sprint("late-", r.cfg.Seed)
	laggard.Queues = []string{r.lagQueue}
	r.add(laggard)
	if l.forwards {
		r.addForwarder()
	}
	if l.topics {
		if err := r.addTopics(ctx); err != nil {
			return err
		}
	}
	if l.subscribes {
		if err := r.keepHistory(ctx); err != nil {
			return err
		}
	}
	if l.follows {
		r.addFollowers()
	}
	if l.watched {
		r.addWatchers()
	}
	if l.locked {
		r.addLocks()
	}
	if l.sharded {
		r.addReshards()
	}
	for _, c := range r.children {
		if err := c.start(); err != nil {
			return err
		}
	}
	sampling, stop := context.WithCancel(ctx)
	r.sample = stop
	r.sampling.Go(func() { r.sampleMemory(sampling) })
	return within(ctx, 30*time.Second, "the first delivery", func(context.Context) error {
		for _, c := range r.children {
			if c.role.Deadly {
				continue // it dies again and again
			}
			if info, err := os.Stat(filepath.Join(r.dir, c.actor()+journalSuffix)); err != nil || info.Size() < 200 {
				return fmt.Errorf("%s has not started: %s", c.actor(), lastLine(r.dir, c.actor()))
			}
		}
		return nil
	})
}

// sampleMemory records the servers' memory use every second.
func (r *run) sampleMemory(ctx context.Context) {
	for sleep(ctx, time.Second) {
		sum := int64(0)
		for _, rdb := range r.servers.admin {
			var used int64
			if info, err := rdb.InfoMap(ctx, "memory").Result(); err == nil {
				fmt.Sscan(info["Memory"]["used_memory"], &used)
			}
			sum += used
		}
		r.journal.one(usage, now(), "-", sum>>10)
	}
}

func (r *run) add(role role) { r.children = append(r.children, &child{role: role}) }

func (r *run) producer(actor, url string, rate int) role {
	l, far := r.fault.load, farAway
	if r.fault.setting.clock {
		far = clockStep
	}
	return role{
		Kind: "producer", Actor: actor, Dir: r.dir, URL: url, Queues: r.queues,
		Seed: r.cfg.Seed*10 + uint64(len(r.children)), Rate: max(1, rate),
		Keyed: l.limited, Ordered: l.ordered, PayloadMin: l.payloadMin, PayloadMax: l.payloadMax, Spread: l.spread,
		DrainsFully: l.drainsFully, Durable: l.durable, Far: far, Dies: l.dies, Grouped: l.grouped,
		Profile: r.cfg.Profile, Clients: l.clients, Sharded: l.sharded,
	}
}

func (r *run) consumer(kind, actor, url string) role {
	concurrency, clients := 64, 0
	if l := r.fault.load; kind == "worker" && l.clients > 0 {
		concurrency, clients = 4, l.clients
	}
	return role{
		Kind: kind, Actor: actor, Dir: r.dir, URL: url, Queues: r.queues, Seed: r.cfg.Seed,
		Lease: r.lease, Concurrency: concurrency, Clients: clients, DrainsFully: r.fault.load.drainsFully,
		Profile: r.cfg.Profile, Controlled: r.fault.load.controlled, Sharded: r.fault.load.sharded,
	}
}
