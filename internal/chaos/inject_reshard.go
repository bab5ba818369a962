//go:build unix

package chaos

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// disruptReshard kills the process that moves messages, the one that changes the numbers of shards, consumers,
// producers or the server, freezes the first or the last of these, or disturbs connections, in turn.
func disruptReshard(ctx context.Context, r *run) error {
	return r.whileResharding(ctx, killMover, delayRequests, killServer, freezeServer, loseReplies, awaitDeath,
		killResharder, cutConnections, freezeMover, awaitDeath, killConsumer, freezeServer, delayRequests, killProducer)
}

// disruptReshardCluster kills and freezes nodes of a Cluster and processes, and migrates slots, in turn.
func disruptReshardCluster(ctx context.Context, r *run) error {
	return r.whileResharding(ctx, killShardNode, freezeShardNode, killMover, migrateShard, replaceFrozenNode, awaitDeath,
		migrateShard, freezeMover, killConsumer)
}

// disruptReshardPrimary has Sentinel promote a replica, because the primary was killed or frozen, and kills and freezes
// processes, in turn.
func disruptReshardPrimary(ctx context.Context, r *run) error {
	return r.whileResharding(ctx, failoverOfMove, killMover, freezePrimary, awaitDeath, freezeServer)
}

// whileResharding injects one of several faults in turn, and restarts the process that dies by itself before and after
// it.
func (r *run) whileResharding(ctx context.Context, faults ...func(context.Context, *run) error) error {
	err := r.revive()
	if err == nil {
		err = r.inTurn(faults...)(ctx, r)
	}
	return errors.Join(err, r.revive())
}

// revive restarts the process that dies by itself if it has.
func (r *run) revive() error {
	for _, c := range r.children {
		if c.role.Deadly && !c.alive() {
			r.logAt(c.died, "kill", c.actor())
			return c.start()
		}
	}
	return nil
}

// awaitDeath waits for up to two seconds until the process that dies by itself has.
func awaitDeath(ctx context.Context, r *run) error {
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		if !sleep(ctx, 10*time.Millisecond) {
			return context.Cause(ctx)
		}
		for _, c := range r.children {
			if c.role.Deadly && !c.alive() {
				return nil
			}
		}
	}
	return nil
}

// failoverOfMove kills the primary while messages move.
func failoverOfMove(ctx context.Context, r *run) error {
	if _, _, err := r.awaitMover(ctx); err != nil {
		return err
	}
	return failover(ctx, r)
}

// killMover waits for a process that moves messages, kills it after up to 50 ms and restarts it.
func killMover(ctx context.Context, r *run) error {
	_, mover, err := r.awaitMover(ctx)
	if err != nil || mover == nil {
		return err
	}
	sleep(ctx, r.upTo(50*time.Millisecond))
	return r.killAndRestart(ctx, mover)
}

// awaitMover waits until a process moves messages, and returns it and the queue. If there is none for five seconds, it
// returns nil and a random queue.
func (r *run) awaitMover(ctx context.Context) (queue string, mover *child, err error) {
	first := r.random.IntN(len(r.queues))
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
		for i := range r.queues {
			queue = r.queues[(first+i)%len(r.queues)]
			name, err := shard.Mover(ctx, r.client.Store(), queue)
			if err != nil {
				return "", nil, err
			}
			for _, c := range r.children {
				if c.actor() == name && c.alive() {
					return queue, c, nil
				}
			}
		}
		if !sleep(ctx, 2*time.Millisecond) {
			return "", nil, context.Cause(ctx)
		}
	}
	return queue, nil, nil
}

// killResharder kills a process that changes the numbers of shards, and restarts it.
func killResharder(ctx context.Context, r *run) error {
	i := slices.IndexFunc(r.children, func(c *child) bool { return c.role.Deadly })
	return r.killAndRestart(ctx, r.children[i])
}

// killAndRestart kills a child, which may have died by itself, and restarts it.
func (r *run) killAndRestart(ctx context.Context, c *child) error {
	r.kill(c)
	sleep(ctx, r.upTo(300*time.Millisecond))
	return c.start()
}

// cutConnections cuts connections for a second.
func cutConnections(ctx context.Context, r *run) error {
	r.log("cuts")
	for range 20 {
		for _, p := range r.servers.proxies {
			p.cut(0.1)
		}
		sleep(ctx, 50*time.Millisecond)
	}
	r.log("network-good")
	return ctx.Err()
}

// killShardNode kills the node of a shard of a queue whose messages move.
func killShardNode(ctx context.Context, r *run) error {
	tag, err := r.shardTag(ctx)
	if err != nil {
		return err
	}
	return r.killNodeOf(ctx, tag)
}

// migrateShard migrates the slot of such a shard.
func migrateShard(ctx context.Context, r *run) error {
	tag, err := r.shardTag(ctx)
	if err != nil {
		return err
	}
	return r.migrateSlotOf(ctx, tag)
}

// shardTag returns the hash tag of a random shard of a queue whose messages move.
func (r *run) shardTag(ctx context.Context) (string, error) {
	queue, _, err := r.awaitMover(ctx)
	if err != nil {
		return "", err
	}
	names, err := shard.Names(ctx, r.client.Store(), queue)
	if err != nil {
		return "", err
	}
	_, _, salt, ok := store.CutSubQueue(names[r.random.IntN(len(names))])
	if ok && salt != "" {
		queue += "{" + salt
	}
	return queue, nil
}
