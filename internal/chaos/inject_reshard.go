//go:build unix

package chaos

import (
	"context"
	"time"

	"github.com/laterq/later/internal/shard"
	"github.com/laterq/later/store"
)

// disruptReshard kills the process that moves messages, the one that changes the numbers of shards, consumers,
// producers or the server, or disturbs connections, in turn.
func disruptReshard(ctx context.Context, r *run) error {
	return r.inTurn(killMover, delayRequests, killServer, loseReplies, killMover, killResharder, cutConnections,
		killConsumer, delayRequests, killProducer)(ctx, r)
}

// disruptReshardCluster kills nodes of a Cluster, migrates slots and kills processes, in turn.
func disruptReshardCluster(ctx context.Context, r *run) error {
	return r.inTurn(killShardNode, killMover, migrateShard, killResharder, migrateShard, killConsumer)(ctx, r)
}

// disruptReshardPrimary has Sentinel promote a replica, and kills processes, in turn.
func disruptReshardPrimary(ctx context.Context, r *run) error {
	return r.inTurn(failover, killMover, killResharder)(ctx, r)
}

// killMover waits for a process that moves messages, kills it after up to 50 ms and restarts it. If there is none for
// two seconds, it kills the process that changes the numbers of shards.
func killMover(ctx context.Context, r *run) error {
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); {
		for _, queue := range r.queues {
			name, err := shard.Mover(ctx, r.client.Store(), queue)
			if err != nil {
				return err
			}
			for _, c := range r.children {
				if c.actor() == name && c.alive() {
					sleep(ctx, r.upTo(50*time.Millisecond))
					return r.killAndRestart(ctx, c)
				}
			}
		}
		if !sleep(ctx, 2*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return killResharder(ctx, r)
}

// killResharder kills the process that changes the numbers of shards, and restarts it.
func killResharder(ctx context.Context, r *run) error {
	return r.killAndRestart(ctx, r.pick(resharderKind))
}

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

// killShardNode kills the node of a shard.
func killShardNode(ctx context.Context, r *run) error {
	tag, err := r.shardTag(ctx)
	if err != nil {
		return err
	}
	return r.killNodeOf(ctx, tag)
}

// migrateShard migrates the slot of a shard.
func migrateShard(ctx context.Context, r *run) error {
	tag, err := r.shardTag(ctx)
	if err != nil {
		return err
	}
	return r.migrateSlotOf(ctx, tag)
}

// shardTag returns the hash tag of a random shard of a random queue.
func (r *run) shardTag(ctx context.Context) (string, error) {
	queue := r.queues[r.random.IntN(len(r.queues))]
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
