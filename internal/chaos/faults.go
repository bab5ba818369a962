//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
)

// fault is a kind of fault and its permitted effects.
type fault struct {
	name    string
	title   string // for docs/reliability.md
	right   string // permitted outcome, for docs/reliability.md
	setting setting
	load    load
	pause   time.Duration // mean time between injections
	// inject injects the fault once and heals it. It is called repeatedly, by one goroutine.
	inject func(context.Context, *run) error
	// finish is called after the last injection, before the remaining messages are handled.
	finish func(context.Context, *run) error
	// ended is called when all processes have ended, before the rest of the store is read.
	ended func(context.Context, *run) error
	// quick is the duration of the load in the package's tests.
	quick time.Duration
}

// load is the load on the queues during a run.
type load struct {
	rate                   int // messages a second
	payloadMin, payloadMax int
	spread                 time.Duration // of due times
	lease                  time.Duration
	drainsFully            bool
	durable                int
	queues                 int  // 0 means a few
	clients                int  // of each producer and worker, with one sender or few handlers; 0 means one, with more
	perNode                bool // each producer sends to the queues of one node
	dies                   bool // a share of the messages fails all attempts or expires
	topics                 bool // messages are published to topics; see topic.go
	watched                bool // processes watch the queues; see watcher.go
	locked                 bool // handlers hold locks; see locks.go
	controlled             bool // workers get commands; see fleet.go
	grouped                bool // batches are groups; see groups.go
	subscribes             bool // queues are subscribed to the topic for a while; see subscriptions.go
	follows                bool // versions of messages are sent with Follow; see follow.go
	limited                bool // queues have limits, and messages have keys; see flow.go
	ordered                int  // of queues, the number of the last ones, which have an order
	sharded                bool // the numbers of shards of queues change; see reshard.go
	forwards               bool // messages go through a forwarder to a queue, a list or a stream; see forward.go

	limits [][]later.Flow // sets of limits of each queue, if limited
}

var defaultLoad = load{rate: 600, payloadMin: 20, payloadMax: 300, spread: time.Second, lease: 1500 * time.Millisecond}

// durableLoad is the default load, except that one replica must have each send.
var durableLoad = defaultLoad.with(func(l *load) { l.durable = 1 })

// with returns a copy of the load, changed by change.
func (l load) with(change func(*load)) load {
	change(&l)
	return l
}

var (
	always   = []string{"--appendfsync", "always"}
	everysec = []string{"--appendfsync", "everysec"}
	// safeReplicas makes a primary without replicas refuse writes after about 3 seconds.
	safeReplicas = []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"}
)

// faults lists all faults in the order of docs/reliability.md.
var faults = []*fault{
	{
		name: "kill-always", title: "redis-server kill -9 and restart, AOF always", right: "0 lost",
		setting: setting{form: alone, args: always}, load: defaultLoad,
		pause: 1500 * time.Millisecond, quick: 4 * time.Second,
		inject: killServer,
	},
	{
		name: "kill-everysec", title: "redis-server kill -9 and restart, AOF everysec",
		right: "0 lost when the process dies, except writes acknowledged while an fsync was in progress, up to 2 " +
			"s of them (a power failure may lose about the last 2 s)",
		setting: setting{form: alone, args: everysec}, load: defaultLoad,
		pause: 1500 * time.Millisecond, quick: 4 * time.Second,
		inject: killServer,
	},
	{
		name: "failover", title: "primary killed, Sentinel promotes a replica",
		right:   "recovers by itself; at most what was acknowledged in the second before the death is lost or undone",
		setting: setting{form: sentinel, args: safeReplicas}, load: defaultLoad, pause: time.Second,
		quick:  3 * time.Second,
		inject: failover,
	},
	{
		name: "failover-durable", title: "the same, with `Durable(1)` sends", right: "0 lost; undone as above",
		setting: setting{form: sentinel, args: safeReplicas}, load: durableLoad, pause: time.Second,
		quick:  3 * time.Second,
		inject: failover,
	},
	{
		name: "failover-haste", title: "the same, and the old primary restarts before it is told that it is a replica",
		right: "recovers by itself; lost or undone is at most what was acknowledged in the second before the " +
			"death, and by the old primary until the Sentinels demoted it",
		setting: setting{form: sentinel, args: safeReplicas}, load: defaultLoad, pause: time.Second,
		quick:  3 * time.Second,
		inject: failoverInHaste,
	},
	{
		name: "partition", title: "primary cut off but alive, `min-replicas-to-write 1`, `Durable(1)` sends",
		right: "its sends fail as not durable, 0 lost; undone is at most what was acknowledged from a second " +
			"before the cut until it stopped accepting writes; afterwards no message has two live copies",
		setting: setting{form: sentinel, args: safeReplicas}, load: durableLoad, pause: time.Second,
		quick:  3 * time.Second,
		inject: partition,
	},
	{
		name: "cluster", title: "Cluster: slots migrate and a node dies under load, `Durable(1)` sends",
		right: "stalls, 0 lost; undone is at most what the dead node acknowledged in the second before; " +
			"MOVED, ASK, TRYAGAIN, CLUSTERDOWN handled",
		setting: setting{form: cluster}, load: durableLoad, pause: time.Second, quick: 4 * time.Second,
		inject: disruptCluster,
	},
	{
		name: "migrate", title: "Cluster: slots migrate under load", right: "stalls; nothing lost or doubled",
		setting: setting{form: cluster}, load: defaultLoad, pause: time.Second, quick: 3 * time.Second,
		inject: migrate,
	},
	{
		name: "server", title: "SCRIPT FLUSH, restart, LOADING, READONLY",
		right: "retried with the same ids; no duplicate",
		setting: setting{
			form: alone, args: append([]string{"--loading-process-events-interval-bytes", "1024"}, always...),
		},
		load: defaultLoad, pause: time.Second, quick: 5 * time.Second,
		inject: disruptServer,
	},
	{
		name: "lost-replies", title: "reply lost after the server executed the call (send, claim, settle, " +
			"extend, cancel)",
		right: "no duplicate; claimed messages are redelivered when their lease expires; settles take effect once, " +
			"without an error",
		setting: setting{form: alone}, load: defaultLoad, pause: 500 * time.Millisecond, quick: 4 * time.Second,
		inject: loseReplies,
	},
	{
		name: "late-requests", title: "request that arrives after its client retried the call (all kinds)",
		right: "a repeated call takes effect once: no duplicate, no claim of messages leased by another attempt, " +
			"no cancel of a message sent since",
		setting: setting{form: alone}, load: defaultLoad, pause: 500 * time.Millisecond, quick: 4 * time.Second,
		inject: delayRequests,
	},
	{
		name: "consumer-kill", title: "consumer killed with SIGKILL",
		right:   "redelivered when the lease expires, one attempt more",
		setting: setting{form: alone}, load: defaultLoad, pause: 1500 * time.Millisecond, quick: 4 * time.Second,
		inject: killConsumer,
	},
	{
		name: "consumer-stop", title: "consumer stopped beyond its lease (SIGSTOP, SIGCONT)",
		right: "redelivered when the lease expires, one attempt more; the late settle is refused and its " +
			"holder learns of it",
		setting: setting{form: alone}, load: defaultLoad, pause: time.Second, quick: 4 * time.Second,
		inject: stopConsumer,
	},
	{
		name:    "late-claims",
		title:   "claim or extend that arrives after its repetition was answered and its messages were settled",
		right:   "it does nothing: each held message has a holder, and no attempt is lost",
		setting: setting{form: alone}, load: defaultLoad, pause: 500 * time.Millisecond, quick: 3 * time.Second,
		inject: delayClaims,
	},
	{
		name: "dead-letters",
		title: "dead letters throughout: messages that fail all attempts or expire, replays and purges, " +
			"while replies are lost, requests are late and consumers die",
		right:   "each change takes effect once; replayed messages start with no attempts",
		setting: setting{form: alone}, load: defaultLoad.with(func(l *load) { l.dies = true }),
		pause: 500 * time.Millisecond, quick: 3 * time.Second,
		inject: disruptDead,
	},
	{
		name: "many-queues", title: "2,000 queues in each worker: replies are lost, consumers and the server die",
		right:   "as with a few queues: 0 lost",
		setting: setting{form: alone, args: always}, load: defaultLoad.with(func(l *load) { l.queues = 2000 }),
		pause: time.Second, quick: 3 * time.Second,
		inject: disruptManyQueues,
	},
	{
		name: "frozen-node", title: "Cluster: a node frozen for up to 3 s (SIGSTOP, SIGCONT)",
		right:   "its queues wait, the others do not; nothing lost or doubled",
		setting: setting{form: cluster, nodeTimeout: 15 * time.Second},
		load:    defaultLoad.with(func(l *load) { l.perNode = true }), pause: time.Second, quick: 3 * time.Second,
		inject: freezeNode,
	},
	{
		name: "producer-kill", title: "producer killed with SIGKILL at random points",
		right:   "no message is ever partly sent",
		setting: setting{form: alone}, load: defaultLoad, pause: 500 * time.Millisecond, quick: 3 * time.Second,
		inject: killProducer,
	},
	{
		name: "network", title: "latency 200 ms, connections cut, half-open connections, throttling",
		right:   "on time again within seconds; no call hangs",
		setting: setting{form: alone}, load: defaultLoad, pause: 500 * time.Millisecond, quick: 5 * time.Second,
		inject: disruptNetwork,
	},
	{
		name: "small",
		title: "64 producers with one sender each and 64 workers with four handlers each: connections are cut and " +
			"half-open, replies are lost, requests are late",
		right:   "as with a few large ones: 0 lost",
		setting: setting{form: alone}, load: defaultLoad.with(func(l *load) { l.clients = 32 }),
		pause: 500 * time.Millisecond, quick: 3 * time.Second,
		inject: disruptSmall,
	},
	{
		name: "full", title: "maxmemory reached, noeviction",
		right:   "sends refused with ErrFull; claims, settles and cancels still work; recovers when drained",
		setting: setting{form: alone}, load: defaultLoad, pause: time.Second, quick: 3 * time.Second,
		inject: fillMemory,
	},
	{
		name: "clock", title: "server's clock stepped by an hour, forward and back",
		right:   "nothing lost; early or late by the step at most",
		setting: setting{form: alone, clock: true}, load: defaultLoad, pause: time.Second, quick: 3 * time.Second,
		inject: stepClock, finish: stepPastAll,
	},
	{
		name: "poison", title: "message that kills its process", right: "dead after its attempts, others unharmed",
		setting: setting{form: alone}, load: defaultLoad.with(func(l *load) { l.lease = time.Second }),
		pause: 500 * time.Millisecond, quick: 2 * time.Second,
		inject: sendPoison,
	},
	{
		name: "forward",
		title: "forwarder between the producers' queues and a queue, a list and a stream: it is killed, replies " +
			"are lost, requests are late",
		right:   "each message reaches the queue, the list or the stream exactly once",
		setting: setting{form: alone}, load: defaultLoad.with(func(l *load) { l.forwards, l.queues = true, 3 }),
		pause: 300 * time.Millisecond, quick: 4 * time.Second,
		inject: disruptForwarder,
	},
	{
		name: "topic",
		title: "topics with a queue for the consumers and one that is forwarded to a list: workers and the " +
			"forwarder are killed, replies are lost, requests are late",
		right:   "each message reaches both queues exactly once",
		setting: setting{form: alone}, load: defaultLoad.with(func(l *load) { l.topics = true }),
		pause: 300 * time.Millisecond, quick: 4 * time.Second,
		inject: disruptTopics,
	},
	{
		name: "subscriptions",
		title: "queues subscribe to a topic, with its history or without, and unsubscribe, while all calls " +
			"take up to 20 ms longer and workers that distribute are killed",
		right: "a message that is sent after Subscribe has returned reaches the queue once, with From each one " +
			"does; none that is sent after Unsubscribe has returned does",
		setting: setting{form: alone},
		load:    defaultLoad.with(func(l *load) { l.topics, l.subscribes, l.queues, l.rate = true, true, 1, 300 }),
		pause:   200 * time.Millisecond, quick: 4 * time.Second,
		inject: disruptSubscriptions, ended: readSubscribers,
	},
	{
		name:  "groups",
		title: "groups are cancelled and rescheduled, while the server dies, replies are lost and requests are late",
		right: "no message of a cancelled group is delivered or left, those of a rescheduled one are due when " +
			"asked, and the counts are right",
		setting: setting{form: alone, args: always}, load: defaultLoad.with(func(l *load) { l.grouped = true }),
		pause: 300 * time.Millisecond, quick: 3 * time.Second,
		inject: disruptGroups,
	},
	{
		name:  "watch",
		title: "watchers are killed and frozen, connections are cut, replies are lost, the server dies",
		right: "the queue does not notice: nothing lost or doubled, no stall while a watcher is frozen; every " +
			"event that arrives happened, and missing ones are counted; nothing is left of a dead watcher",
		setting: setting{form: alone, args: always},
		load:    defaultLoad.with(func(l *load) { l.watched, l.dies = true, true }), pause: 500 * time.Millisecond,
		quick: 2 * time.Second, inject: disruptWatchers, ended: checkNoWatcherIsLeft,
	},
	{
		name: "locks",
		title: "handlers with `lock.PerKey`, one worker for each policy: holders are killed and frozen, the " +
			"server dies or is frozen, connections are half-open",
		right: "no two handlers of a key while the first one's lock lasts; who loses the lock is told and its " +
			"attempt is not acked; a dead holder's key goes on; nothing lost",
		setting: setting{form: alone, args: always},
		load:    defaultLoad.with(func(l *load) { l.rate, l.locked = 150, true }), pause: 500 * time.Millisecond,
		quick: 2 * time.Second, inject: disruptLocks, ended: checkNoLockIsLeft,
	},
	{
		name: "fleet",
		title: "workers are told to restart, drain, pause and resume, while they are killed, the server dies " +
			"and replies are lost",
		right: "each live worker obeys once, and its next generation does not; a paused one claims nothing; " +
			"the entry of a dead one disappears; nothing lost or doubled",
		setting: setting{form: alone, args: always, clock: true},
		load:    defaultLoad.with(func(l *load) { l.rate, l.controlled = 300, true }), pause: 300 * time.Millisecond,
		quick: 2500 * time.Millisecond, inject: disruptFleet, finish: resumeFleet, ended: checkNoWorkerIsLeft,
	},
	{
		name: "flow",
		title: "limits of queues and their keys, the order of keys, and urgency, which change: workers are " +
			"killed and frozen, the server dies, connections are half-open, replies are lost, requests are late, " +
			"scripts are forgotten",
		right: "never more messages are leased than the concurrency says, and in no span of time more start than the " +
			"rate says, of a queue or of a key; keys take turns; all are handled as soon as the limits allow; " +
			"the messages of an ordered key start one at a time and in order, one that comes back first, and none " +
			"while it is halted; fences grow; urgent messages start first, except for the shares of others, and " +
			"queues without urgency refuse them; nothing lost or doubled",
		setting: setting{form: alone, args: always}, load: limitedLoad, pause: 300 * time.Millisecond,
		quick: 4 * time.Second, inject: disruptLimited, finish: resumeLimits,
	},
	{
		name:  "flow-embedded",
		title: "the same with an embedded store behind a server: the server is killed and frozen too",
		right: "the same", setting: setting{form: remote}, load: limitedLoad, pause: 300 * time.Millisecond,
		quick: 4 * time.Second, inject: disruptLimitedServer, finish: resumeLimits,
	},
	{
		name: "flow-memory", title: "the same with a store in memory behind a server, which is frozen and not killed",
		right: "the same", setting: setting{form: remote, memory: true}, load: limitedLoad,
		pause: 300 * time.Millisecond,
		quick: 4 * time.Second, inject: disruptLimitedMemory, finish: resumeLimits,
	},
	{
		name: "flow-cluster", title: "the same with a Cluster: slots migrate", right: "the same",
		setting: setting{form: cluster}, load: limitedLoad, pause: 300 * time.Millisecond,
		quick: 4 * time.Second, inject: disruptLimitedCluster, finish: resumeLimits,
	},
	{
		name: "flow-failover",
		title: "the same; the primary is killed, Sentinel promotes a replica, and the old primary restarts, half of " +
			"the times before it is told that it is a replica",
		right: "the order of keys and the refusals as above, except where the loss of writes explains it: those " +
			"acknowledged in the second before the death, and by the old primary until the Sentinels demoted it",
		setting: setting{form: sentinel, args: safeReplicas}, load: limitedLoad, pause: 300 * time.Millisecond,
		quick: 3 * time.Second, inject: disruptLimitedPrimary, finish: resumeLimits,
	},
	{
		name: "flow-clock", title: "the same; the server's clock is stepped by seconds and hours, forward and back",
		right: "the order of keys and the refusals as above", setting: setting{form: alone, clock: true},
		load: limitedLoad, pause: 300 * time.Millisecond,
		quick: 4 * time.Second, inject: disruptLimitedClock, finish: resumeLimitedClock,
	},
	{
		name: "reshard",
		title: "the numbers of shards of queues change between 1 and 5 again and again, and their limits do: the " +
			"process that moves the messages, the one that changes the numbers, consumers, producers and the server are " +
			"killed, the first and the last of these are frozen, connections are cut, replies are lost, requests are late",
		right: "nothing lost or doubled; limits and order hold; in the end each id is in its sub-queue and in no other, " +
			"nothing is on its way, each shard has its share of the limits, and each change has ended",
		setting: setting{form: alone, args: always}, load: shardedLoad, pause: 200 * time.Millisecond,
		quick: 2500 * time.Millisecond, inject: disruptReshard, finish: endResharding, ended: awaitShards,
	},
	{
		name: "reshard-cluster", title: "the same with a Cluster: slots migrate, and nodes die or are frozen",
		right: "the same; undone is at most what the dead or frozen node acknowledged from a second before until it has " +
			"learned that it was replaced, and never a move",
		setting: setting{form: cluster}, load: shardedLoad, pause: 200 * time.Millisecond,
		quick: 2500 * time.Millisecond, inject: disruptReshardCluster, finish: endResharding, ended: awaitShards,
	},
	{
		name:    "reshard-failover",
		title:   "the same with a primary that is killed or frozen, and Sentinel promotes a replica",
		right:   "the same",
		setting: setting{form: sentinel, args: safeReplicas}, load: shardedLoad, pause: 200 * time.Millisecond,
		quick: 2500 * time.Millisecond, inject: disruptReshardPrimary, finish: endResharding, ended: awaitShards,
	},
	{
		name: "shared", title: "embedded store in a directory that all processes share: its holder is killed " +
			"and frozen",
		right: "another process takes over at once, and a call that was under way takes effect once; as under Redis, " +
			"nothing is lost or doubled",
		setting: setting{form: shared}, load: defaultLoad.with(func(l *load) { l.rate = 300 }),
		pause: 500 * time.Millisecond, quick: 3 * time.Second,
		inject: disruptHolder,
	},
	{
		name: "holder-stop", title: "the same: its holder is stopped for up to 30 s (SIGSTOP, SIGCONT)",
		right: "the others wait and name it; no call of a caller that has gone is executed, and no attempt is " +
			"lost to it",
		setting: setting{form: shared}, load: defaultLoad.with(func(l *load) { l.rate = 200 }),
		pause: 500 * time.Millisecond, quick: 3 * time.Second,
		inject: stopHolder,
	},
	{
		name: "directory",
		title: "the same: LOCK is removed, a copy takes the place of the directory, or it is moved away for " +
			"a moment, while its holder is stopped or runs",
		right:   "a directory has one owner: acknowledged changes are in the store that has its place",
		setting: setting{form: shared}, load: defaultLoad.with(func(l *load) { l.rate = 200 }),
		pause: 500 * time.Millisecond, quick: 4 * time.Second,
		inject: disruptDirectory,
	},
	{
		name: "unread", title: "the same: a client reads nothing (SIGSTOP) while the holder exits",
		right:   "the holder exits and another process takes over within seconds; nothing lost or doubled",
		setting: setting{form: shared},
		load: defaultLoad.with(func(l *load) { // replies do not fit into the buffers of a socket
			l.rate, l.payloadMin, l.payloadMax = 100, 20<<10, 60<<10
		}),
		pause: 500 * time.Millisecond, quick: 3 * time.Second,
		inject: leaveUnread,
	},
	{
		name: "disk-full", title: "the same: the disk fills up, and a purge frees it",
		right:   "sends refused with ErrFull; claims, settles, cancels and the purge work; goes on by itself",
		setting: setting{form: shared, disk: true}, load: defaultLoad.with(func(l *load) { l.rate = 200 }),
		pause: 500 * time.Millisecond, quick: 3 * time.Second,
		inject: fillDisk,
	},
	{
		name: "remote",
		title: "embedded store behind a server: the server is killed and frozen, the network is cut, connections are " +
			"half-open, replies are lost, requests are late, readers are slow",
		right:   "a call takes effect once, also one that a killed server has executed; nothing lost or doubled",
		setting: setting{form: remote}, load: defaultLoad.with(func(l *load) { l.rate = 300 }),
		pause: 300 * time.Millisecond, quick: 4 * time.Second,
		inject: disruptRemote,
	},
	{
		name: "remote-redis", title: "the same with a Redis behind the server",
		right:   "the next server knows the calls that the killed one has executed; nothing lost or doubled",
		setting: setting{form: served, args: always}, load: defaultLoad.with(func(l *load) { l.rate = 300 }),
		pause: 300 * time.Millisecond, quick: 4 * time.Second,
		inject: disruptRemote,
	},
	{
		name: "two-servers",
		title: "two servers of one Redis: requests that arrive late at one are repeated through the other, " +
			"while messages are sent with Follow and leased ones are cancelled",
		right: "one holder at a time; of the versions that are sent during a hold the last is delivered after " +
			"it; none is delivered after its ack",
		setting: setting{form: served, args: always},
		load:    defaultLoad.with(func(l *load) { l.rate, l.follows = 200, true }), pause: 300 * time.Millisecond,
		quick: 4 * time.Second, inject: disruptTwoServers,
	},
	{
		name: "large", title: "512 KB payloads, 1 % of them unreadable",
		right:   "claims bounded by size; unreadable messages become dead and keep their bytes",
		setting: setting{form: alone},
		load: defaultLoad.with(func(l *load) {
			l.rate, l.payloadMin, l.payloadMax, l.drainsFully = 60, 400<<10, 512<<10, true
		}),
		pause: 300 * time.Millisecond, quick: 3 * time.Second,
		inject: damageMessage,
	},
}

// Soak is the name of the soak fault: a random fault every 30 seconds. It is not one of Faults.
const Soak = "soak"

var soak = &fault{
	name: Soak, title: "hours of load with a fault every 30 s",
	right:   "flat memory in workers and Redis, no goroutine growth",
	setting: setting{form: alone, args: everysec},
	load:    defaultLoad.with(func(l *load) { l.rate, l.drainsFully = 5000, true }),
	pause:   30 * time.Second, inject: injectAny, quick: time.Minute,
}

// Faults returns the names of all faults.
func Faults() (names []string) {
	for _, f := range faults {
		names = append(names, f.name)
	}
	return names
}

func findFault(name string) (*fault, error) {
	if name == Soak {
		return soak, nil
	}
	if i := slices.IndexFunc(faults, func(f *fault) bool { return f.name == name }); i >= 0 {
		return faults[i], nil
	}
	return nil, fmt.Errorf("unknown fault %q: use one of %s", name, strings.Join(Faults(), ", "))
}

// QuickDuration returns the duration of the load of a fault in the package's tests, or 0 for an unknown fault.
func QuickDuration(name string) time.Duration {
	if f, err := findFault(name); err == nil {
		return f.quick
	}
	return 0
}
