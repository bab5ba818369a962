//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// fault is a way to attack and what is right then.
type fault struct {
	name    string
	title   string // in docs/reliability.md
	right   string // likewise
	setting setting
	load    load
	pause   time.Duration // mean time between blows
	// strike strikes one blow and heals it. It is called again and again, by one goroutine.
	strike func(context.Context, *run) error
	// finish comes before what is left is handled.
	finish func(context.Context, *run) error
	// quick is how long the load lasts in the quick set.
	quick time.Duration
}

// load is what flows meanwhile.
type load struct {
	rate                   int // messages a second
	payloadMin, payloadMax int
	spread                 time.Duration // of due times
	lease                  time.Duration
	noRest                 bool
	durable                int
}

var usual = load{rate: 600, payloadMin: 20, payloadMax: 300, spread: time.Second, lease: 1500 * time.Millisecond}

// durably is the usual load with sends that one replica must have.
var durably = usual.with(func(l *load) { l.durable = 1 })

// with changes a part of the load.
func (l load) with(change func(*load)) load {
	change(&l)
	return l
}

var (
	always   = []string{"--appendfsync", "always"}
	everysec = []string{"--appendfsync", "everysec"}
	// safeReplicas: a primary that no replica follows any more refuses writes, after about 3 seconds.
	safeReplicas = []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"}
)

// faults are all there are, in the order of docs/reliability.md.
var faults = []*fault{
	{
		name: "kill-always", title: "redis-server kill -9 and restart, AOF always", right: "0 lost",
		setting: setting{form: alone, args: always}, load: usual, pause: 1500 * time.Millisecond, quick: 4 * time.Second,
		strike: killServer,
	},
	{
		name: "kill-everysec", title: "redis-server kill -9 and restart, AOF everysec",
		right: "0 lost by the death of the process, save for what it answered while an fsync was under way, up to 2 s (a loss of " +
			"power may cost about the last 2 s)",
		setting: setting{form: alone, args: everysec}, load: usual, pause: 1500 * time.Millisecond, quick: 4 * time.Second,
		strike: killServer,
	},
	{
		name: "failover", title: "primary killed, Sentinel promotes a replica",
		right:   "goes on by itself; lost or undone is at most what was acknowledged in the second before the death",
		setting: setting{form: sentinel, args: safeReplicas}, load: usual, pause: time.Second, quick: 3 * time.Second,
		strike: failover,
	},
	{
		name: "failover-durable", title: "the same, with `Durable(1)` sends", right: "0 lost; undone as above",
		setting: setting{form: sentinel, args: safeReplicas}, load: durably, pause: time.Second, quick: 3 * time.Second,
		strike: failover,
	},
	{
		name: "failover-haste", title: "the same, and the old primary is started again before it was told that it is a replica",
		right: "goes on by itself; lost or undone is at most what was acknowledged in the second before the death, and " +
			"by the old primary until the Sentinels have told it",
		setting: setting{form: sentinel, args: safeReplicas}, load: usual, pause: time.Second, quick: 3 * time.Second,
		strike: failoverInHaste,
	},
	{
		name: "partition", title: "primary cut off but alive, `min-replicas-to-write 1`, `Durable(1)` sends",
		right: "its sends fail as not durable, 0 lost; undone is at most what was acknowledged from a second before the cut " +
			"until it stopped to write; no message has two living copies afterwards",
		setting: setting{form: sentinel, args: safeReplicas}, load: durably, pause: time.Second, quick: 3 * time.Second,
		strike: partition,
	},
	{
		name: "cluster", title: "Cluster: slots migrate and a node dies under load, `Durable(1)` sends",
		right: "stalls, 0 lost; undone is at most what the dead node acknowledged in the second before; " +
			"MOVED, ASK, TRYAGAIN, CLUSTERDOWN handled",
		setting: setting{form: cluster}, load: durably, pause: time.Second, quick: 4 * time.Second,
		strike: clusterBlow,
	},
	{
		name: "migrate", title: "Cluster: slots migrate under load", right: "stalls; nothing lost or doubled",
		setting: setting{form: cluster}, load: usual, pause: time.Second, quick: 3 * time.Second,
		strike: migrate,
	},
	{
		name: "server", title: "SCRIPT FLUSH, restart, LOADING, READONLY", right: "tried again with the same ids; no duplicate",
		setting: setting{form: alone, args: append([]string{"--loading-process-events-interval-bytes", "1024"}, always...)},
		load:    usual, pause: time.Second, quick: 5 * time.Second,
		strike: serverTrouble,
	},
	{
		name: "lost-replies", title: "reply lost after the server did the work (send, claim, settle, extend, cancel)",
		right:   "no duplicate; what was claimed comes at the end of its lease; settles are done once, without an error",
		setting: setting{form: alone}, load: usual, pause: 500 * time.Millisecond, quick: 4 * time.Second,
		strike: loseReplies,
	},
	{
		name: "late-requests", title: "request that arrives after its client made the call again (all kinds)",
		right:   "what is done twice is done once: no duplicate, no claim of a lease that another try has, no cancel of what was sent since",
		setting: setting{form: alone}, load: usual, pause: 500 * time.Millisecond, quick: 4 * time.Second,
		strike: delayRequests,
	},
	{
		name: "consumer-kill", title: "consumer killed with SIGKILL", right: "redelivered at the end of the lease, one attempt more",
		setting: setting{form: alone}, load: usual, pause: 1500 * time.Millisecond, quick: 4 * time.Second,
		strike: killConsumer,
	},
	{
		name: "consumer-stop", title: "consumer stopped beyond its lease (SIGSTOP, SIGCONT)",
		right:   "redelivered at the end of the lease, one attempt more; the late settle is refused and its holder told",
		setting: setting{form: alone}, load: usual, pause: time.Second, quick: 4 * time.Second,
		strike: stopConsumer,
	},
	{
		name: "producer-kill", title: "producer killed with SIGKILL at random points", right: "never half a message",
		setting: setting{form: alone}, load: usual, pause: 500 * time.Millisecond, quick: 3 * time.Second,
		strike: killProducer,
	},
	{
		name: "network", title: "latency 200 ms, connections cut, half-open connections, throttling",
		right:   "on time again within seconds; nobody waits for ever",
		setting: setting{form: alone}, load: usual, pause: 500 * time.Millisecond, quick: 5 * time.Second,
		strike: badNetwork,
	},
	{
		name: "full", title: "maxmemory reached, noeviction",
		right:   "sends refused with ErrFull; claims, settles and cancels go on; recovers by being drained",
		setting: setting{form: alone}, load: usual, pause: time.Second, quick: 3 * time.Second,
		strike: fillMemory,
	},
	{
		name: "clock", title: "server's clock stepped by an hour, forward and back",
		right:   "nothing lost; early or late by the step at most",
		setting: setting{form: alone, clock: true}, load: usual, pause: time.Second, quick: 3 * time.Second,
		strike: stepClock, finish: stepBeyondAll,
	},
	{
		name: "poison", title: "message that kills its process", right: "dead after its attempts, others unharmed",
		setting: setting{form: alone}, load: usual.with(func(l *load) { l.lease = time.Second }), pause: 500 * time.Millisecond, quick: 2 * time.Second,
		strike: sendPoison,
	},
	{
		name: "large", title: "512 KB payloads, 1 % of them unreadable",
		right:   "claims bounded by size; the unreadable go to dead with their bytes",
		setting: setting{form: alone},
		load: usual.with(func(l *load) {
			l.rate, l.payloadMin, l.payloadMax, l.noRest = 60, 400<<10, 512<<10, true
		}),
		pause: 300 * time.Millisecond, quick: 3 * time.Second,
		strike: damageMessage,
	},
}

// Soak is the fault of soaks: one of many every half minute. It is not one of Faults.
const Soak = "soak"

var soak = &fault{
	name: Soak, title: "hours of load with a fault every 30 s", right: "flat memory in workers and Redis, no growth of goroutines",
	setting: setting{form: alone, args: everysec},
	load:    usual.with(func(l *load) { l.rate, l.noRest = 5000, true }),
	pause:   30 * time.Second, strike: anyBlow, quick: time.Minute,
}

// Faults gives the names of all faults.
func Faults() (names []string) {
	for _, f := range faults {
		names = append(names, f.name)
	}
	return names
}

func faultNamed(name string) (*fault, error) {
	if name == Soak {
		return soak, nil
	}
	if i := slices.IndexFunc(faults, func(f *fault) bool { return f.name == name }); i >= 0 {
		return faults[i], nil
	}
	return nil, fmt.Errorf("no fault is called %q: use one of %s", name, strings.Join(Faults(), ", "))
}

// QuickDuration is how long a fault's load lasts in the quick set.
func QuickDuration(name string) time.Duration {
	if f, err := faultNamed(name); err == nil {
		return f.quick
	}
	return 0
}
