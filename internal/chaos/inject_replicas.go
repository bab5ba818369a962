//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
)

// maxReplicationLag is how long before the death of a primary its writes may be missing on a replica. Replication is
// asynchronous; on one machine it takes less than a millisecond.
const maxReplicationLag = time.Second

// promotionLimit is a generous limit for a promotion. The time taken is measured elsewhere.
const promotionLimit = time.Minute

// failover kills the primary, waits until another node is promoted and has replicas, and restarts the old primary,
// which becomes a replica.
func failover(ctx context.Context, r *run) error {
	old, _, err := r.killPrimary(ctx)
	if err != nil {
		return err
	}
	if err := r.awaitReplicas(ctx, old); err != nil {
		return err
	}
	sleep(ctx, r.upTo(time.Second))
	if err := r.servers.nodes[old].Relaunch(); err != nil {
		return err
	}
	return r.awaitReplicas(ctx, -1)
}

// failoverInHaste restarts the old primary while the failover is in progress. Until the Sentinels demote it, it accepts
// writes, and a replica that has not been told of the promotion may follow it.
func failoverInHaste(ctx context.Context, r *run) error {
	old, at, err := r.killPrimary(ctx)
	if err != nil {
		return err
	}
	sleep(ctx, r.upTo(time.Second))
	if err := r.servers.nodes[old].Relaunch(); err != nil {
		return err
	}
	err = r.awaitReplicas(ctx, -1)
	r.windows = append(r.windows, window{from: at, to: now()})
	return err
}

// killPrimary kills the primary and waits until another node is promoted.
func (r *run) killPrimary(ctx context.Context) (old int, at int64, err error) {
	if old, err = r.servers.primary(ctx, -1); err != nil {
		return 0, 0, err
	}
	at = r.log("primary-kill", old)
	r.servers.nodes[old].Kill()
	r.windows = append(r.windows, window{from: at - maxReplicationLag.Microseconds(), to: now()})
	return old, at, r.awaitPromotion(ctx, old)
}

func (r *run) awaitPromotion(ctx context.Context, old int) error {
	return within(ctx, promotionLimit, "a promotion", func(ctx context.Context) error {
		p, err := r.servers.primary(ctx, old)
		if err == nil {
			r.log("promoted", p, allQueues)
		}
		return err
	})
}

// awaitReplicas waits until there is one primary and all other nodes, except without (-1 excludes none), are its
// replicas in sync.
func (r *run) awaitReplicas(ctx context.Context, without int) error {
	return within(ctx, promotionLimit, "replicas in sync", func(ctx context.Context) error {
		p, err := r.servers.primary(ctx, without)
		if err != nil {
			return err
		}
		port := int64(r.servers.proxies[p].port())
		for i, rdb := range r.servers.admin {
			if i == p || i == without {
				continue
			}
			role, err := rdb.Do(ctx, "ROLE").Slice()
			if err != nil {
				return err
			}
			if role[0] != "slave" || role[2] != port || role[3] != "connected" {
				return fmt.Errorf("node %d is %v; want a replica of %d", i, role, port)
			}
		}
		return nil
	})
}

// stale is the name prefix of processes that know only a server that is cut off.
const stale = "stale"

// partition cuts the primary off from replicas, Sentinels and most clients, but not from one producer and one consumer
// that know no other server. It heals the partition after another node was promoted and has replicas.
func partition(ctx context.Context, r *run) error {
	old, err := r.servers.primary(ctx, -1)
	if err != nil {
		return err
	}
	direct := "redis://" + r.servers.nodes[old].Addr() + "/0"
	for _, role := range []role{r.producer(stale+"producer", direct, 100),
		r.consumer("worker", stale+"worker", direct)} {
		role.Actor = fmt.Sprint(role.Actor, r.injected)
		c := &child{role: role}
		if err := c.start(); err != nil {
			return err
		}
		r.stale = append(r.stale, c)
	}
	sleep(ctx, 500*time.Millisecond+r.upTo(500*time.Millisecond))

	at := r.log("cut-off", old)
	r.servers.proxies[old].set(conditions{silent: true})
	r.windows = append(r.windows, window{from: at - maxReplicationLag.Microseconds(), to: now()})
	err = r.awaitPromotion(ctx, old)
	if err == nil {
		// A replica not yet told of the promotion would follow the old primary again: see failoverInHaste.
		err = r.awaitReplicas(ctx, old)
		sleep(ctx, r.upTo(2*time.Second))
	}
	for _, c := range r.stale {
		if c.alive() {
			r.kill(c)
		}
	}
	r.windows = append(r.windows, window{from: at - maxReplicationLag.Microseconds(), to: now(), actors: stale})
	r.log("network-good")
	r.servers.proxies[old].set(conditions{})
	return errors.Join(err, r.awaitReplicas(ctx, -1))
}

// disruptCluster kills nodes and migrates slots in turn.
func disruptCluster(ctx context.Context, r *run) error {
	if r.injected%2 == 0 {
		return migrate(ctx, r)
	}
	return killNode(ctx, r)
}

// killNode kills the primary of a queue's slot, waits until its replica is promoted, and restarts it.
func killNode(ctx context.Context, r *run) error {
	return r.killNodeOf(ctx, r.queues[r.random.IntN(len(r.queues))])
}

// killNodeOf does so for the slot of a hash tag.
func (r *run) killNodeOf(ctx context.Context, tag string) error {
	old, _, err := r.servers.owner(ctx, r.slot(ctx, tag))
	if err != nil {
		return err
	}
	var queues []string // of the node
	for _, queue := range r.queues {
		if owner, _, err := r.servers.owner(ctx, r.slot(ctx, queue)); err == nil && owner == old {
			queues = append(queues, queue)
		}
	}
	at := r.log("node-kill", old)
	r.servers.nodes[old].Kill()
	r.windows = append(r.windows, window{from: at - maxReplicationLag.Microseconds(), to: now()})
	if err := r.awaitPrimaries(ctx, old); err != nil {
		return err
	}
	r.log("promoted", "-", strings.Join(queues, ","))
	// Long enough for clients to find the new primary without help from the old one.
	sleep(ctx, r.upTo(5*time.Second))
	if err := r.servers.nodes[old].Relaunch(); err != nil {
		return err
	}
	return r.awaitCluster(ctx)
}

// awaitPrimaries waits until a Cluster has all its primaries without a node.
func (r *run) awaitPrimaries(ctx context.Context, without int) error {
	return within(ctx, promotionLimit, "the promotion of a node's replica", func(ctx context.Context) error {
		primaries := 0
		for i, rdb := range r.servers.admin {
			if i == without {
				continue
			}
			role, err := rdb.Do(ctx, "ROLE").Slice()
			if err != nil {
				return err
			}
			if role[0] == "master" {
				primaries++
			}
		}
		if primaries < 3 {
			return fmt.Errorf("%d primaries", primaries)
		}
		return nil
	})
}

// awaitCluster waits until all nodes are healthy and each primary has a replica in sync.
func (r *run) awaitCluster(ctx context.Context) error {
	return within(ctx, promotionLimit, "recovery of the Cluster", func(ctx context.Context) error {
		inSync := 0
		for i, rdb := range r.servers.admin {
			info, err := rdb.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			nodes, err := rdb.ClusterNodes(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") || strings.Contains(nodes, "fail") {
				return fmt.Errorf("node %d sees a failure", i)
			}
			if role, err := rdb.Do(ctx, "ROLE").Slice(); err == nil && role[0] == "slave" && role[3] == "connected" {
				inSync++
			}
		}
		if inSync < len(r.servers.nodes)/2 {
			return fmt.Errorf("%d replicas are in sync", inSync)
		}
		return nil
	})
}

// slot returns the slot of a queue.
func (r *run) slot(ctx context.Context, queue string) int {
	for _, rdb := range r.servers.admin {
		if n, err := rdb.ClusterKeySlot(ctx, queue).Result(); err == nil {
			return int(n)
		}
	}
	return 0
}

// owner returns the node that serves a slot, and another primary.
func (v *servers) owner(ctx context.Context, slot int) (owner, other int, err error) {
	err = within(ctx, promotionLimit, "an owner of the slot", func(ctx context.Context) error {
		var shards []redis.ClusterShard
		for _, rdb := range v.admin {
			if shards, err = rdb.ClusterShards(ctx).Result(); err == nil {
				break
			}
		}
		owner, other = -1, -1
		for _, s := range shards {
			primary := v.primaryOf(s)
			if primary < 0 {
				continue
			}
			serves := func(r redis.SlotRange) bool { return r.Start <= int64(slot) && int64(slot) <= r.End }
			if slices.ContainsFunc(s.Slots, serves) {
				owner = primary
			} else {
				other = primary
			}
		}
		if owner < 0 || other < 0 {
			return fmt.Errorf("slot %d has no owner", slot)
		}
		return nil
	})
	return owner, other, err
}

// primaryOf returns the healthy primary of a shard, or -1 if there is none.
func (v *servers) primaryOf(s redis.ClusterShard) int {
	for _, n := range s.Nodes {
		if n.Role == "master" && n.Health == "online" && len(s.Slots) > 0 {
			return slices.IndexFunc(v.nodes, func(of *redistest.Server) bool { return int64(of.Port()) == n.Port })
		}
	}
	return -1
}

// migrate moves a queue's slot to another node, key by key, as redis-cli does.
func migrate(ctx context.Context, r *run) error {
	return r.migrateSlotOf(ctx, r.queues[r.random.IntN(len(r.queues))])
}

// migrateSlotOf does so with the slot of a hash tag.
func (r *run) migrateSlotOf(ctx context.Context, queue string) error {
	slot := r.slot(ctx, queue)
	from, to, err := r.servers.owner(ctx, slot)
	if err != nil {
		return err
	}
	source, target := r.servers.admin[from], r.servers.admin[to]
	fromID, err := source.ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	toID, err := target.ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	r.log("migrate", slot, from, to)
	if err := target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err(); err != nil {
		return err
	}
	if err := source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err(); err != nil {
		return err
	}
	server := r.servers.nodes[to]
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, 1).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if err := source.Migrate(ctx, "127.0.0.1", fmt.Sprint(server.Port()), keys[0], 0,
			10*time.Second).Err(); err != nil {
			return err
		}
		sleep(ctx, r.upTo(50*time.Millisecond))
	}
	for _, rdb := range []*redis.Client{target, source} {
		if err := rdb.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", toID).Err(); err != nil {
			return err
		}
	}
	queue, _, _ = strings.Cut(queue, "{") // of a sub-queue
	r.log("serves", to, queue)
	// The other nodes learn it through the cluster bus.
	return within(ctx, promotionLimit, "the slot's new owner", func(ctx context.Context) error {
		owner, _, err := r.servers.owner(ctx, slot)
		if err == nil && owner != to {
			err = fmt.Errorf("slot %d belongs to node %d; want %d", slot, owner, to)
		}
		return err
	})
}
