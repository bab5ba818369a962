//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// A primary that was frozen executes the calls that it has received as soon as it goes on. If another node has replaced
// it meanwhile, it acknowledges them, and others, until it learns of that.

// maxFreeze is how long a process or a primary is frozen at most, unless another node replaces the primary.
const maxFreeze = 2 * time.Second

// freezeMover stops the process that moves messages for a while.
func freezeMover(ctx context.Context, r *run) error {
	r.awaitThaw(ctx)
	_, mover, err := r.awaitMover(ctx)
	if err != nil || mover == nil {
		return err
	}
	r.stop(ctx, mover, r.upTo(maxFreeze))
	r.thawed = time.Now()
	return nil
}

// awaitThaw waits until calls have ended that the last freeze has made late, because a second one would make them
// later.
func (r *run) awaitThaw(ctx context.Context) {
	sleep(ctx, time.Until(r.thawed.Add(shardLate-maxFreeze)))
}

// freezeServer stops the server, or the primary, for a while in which messages move. No other node replaces it.
func freezeServer(ctx context.Context, r *run) error {
	r.awaitThaw(ctx)
	if _, _, err := r.awaitMover(ctx); err != nil {
		return err
	}
	victim, err := r.servers.primary(ctx, -1)
	if err != nil {
		return err
	}
	at, err := r.freeze(ctx, victim, func() error {
		sleep(ctx, r.upTo(maxFreeze))
		return nil
	})
	if err != nil || r.fault.setting.form == alone {
		return err
	}
	sleep(ctx, time.Second) // in which a replacement would begin, on a busy machine
	return r.noteReplaced(ctx, victim, at, func(ctx context.Context) error { return r.awaitReplicas(ctx, -1) })
}

// freezePrimary stops the primary while messages move, until Sentinel has promoted a replica.
func freezePrimary(ctx context.Context, r *run) error {
	if _, _, err := r.awaitMover(ctx); err != nil {
		return err
	}
	old, err := r.servers.primary(ctx, -1)
	if err != nil {
		return err
	}
	at, err := r.freeze(ctx, old, func() error {
		err := r.awaitPromotion(ctx, old)
		sleep(ctx, r.upTo(time.Second))
		return err
	})
	if err != nil {
		return err
	}
	return r.noteReplaced(ctx, old, at, func(ctx context.Context) error { return r.awaitReplicas(ctx, -1) })
}

// freezeShardNode stops the node of a shard of a queue whose messages move for a while. No other node replaces it.
func freezeShardNode(ctx context.Context, r *run) error {
	r.awaitThaw(ctx)
	victim, err := r.shardNode(ctx)
	if err != nil {
		return err
	}
	at, err := r.freeze(ctx, victim, func() error {
		sleep(ctx, r.upTo(clusterNodeTimeout*2/3))
		return nil
	})
	if err != nil {
		return err
	}
	return r.noteReplaced(ctx, victim, at, r.awaitCluster)
}

// replaceFrozenNode does so until a replica of the node is promoted.
func replaceFrozenNode(ctx context.Context, r *run) error {
	victim, err := r.shardNode(ctx)
	if err != nil {
		return err
	}
	at, err := r.freeze(ctx, victim, func() error {
		err := r.awaitPrimaries(ctx, victim)
		sleep(ctx, r.upTo(time.Second))
		return err
	})
	if err != nil {
		return err
	}
	return r.noteReplaced(ctx, victim, at, r.awaitCluster)
}

// freeze stops a node until a function has returned. It returns when that began.
func (r *run) freeze(ctx context.Context, victim int, until func() error) (at int64, err error) {
	at = r.log("freeze-server", victim)
	if err := r.servers.nodes[victim].Signal(syscall.SIGSTOP); err != nil {
		return at, err
	}
	err = until()
	err = errors.Join(err, r.servers.nodes[victim].Signal(syscall.SIGCONT))
	r.log("serves", victim, allQueues)
	r.thawed = time.Now()
	return at, errors.Join(err, ctx.Err())
}

// noteReplaced waits until all nodes have the same primaries again. If the node that was frozen at a time is no primary
// then, what it acknowledged before and since may be undone.
func (r *run) noteReplaced(ctx context.Context, victim int, at int64, agree func(context.Context) error) error {
	if err := agree(ctx); err != nil {
		return err
	}
	role, err := r.servers.admin[victim].Do(ctx, "ROLE").Slice()
	if err != nil {
		return fmt.Errorf("role of the node that was frozen: %w", err)
	}
	if role[0] != "master" {
		r.log("replaced", victim)
		r.windows = append(r.windows, window{from: at - maxReplicationLag.Microseconds(), to: now()})
	}
	return nil
}

// shardNode returns the node of a shard of a queue whose messages move.
func (r *run) shardNode(ctx context.Context) (int, error) {
	tag, err := r.shardTag(ctx)
	if err != nil {
		return 0, err
	}
	node, _, err := r.servers.owner(ctx, r.slot(ctx, tag))
	return node, err
}
