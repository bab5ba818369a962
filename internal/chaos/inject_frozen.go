//go:build unix

package chaos

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// freezeNode stops a Cluster's primary for less time than the others need to replace it. Its queues wait; queues of the
// other nodes must not.
func freezeNode(ctx context.Context, r *run) error {
	victim, _, err := r.servers.owner(ctx, r.slot(ctx, r.queues[r.random.IntN(len(r.queues))]))
	if err != nil {
		return err
	}
	var healthy []string
	for _, queue := range r.queues {
		owner, _, err := r.servers.owner(ctx, r.slot(ctx, queue))
		if err != nil {
			return err
		}
		if owner != victim {
			healthy = append(healthy, queue)
		}
	}
	r.log("freeze", victim, strings.Join(healthy, ","))
	if err := r.servers.nodes[victim].Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	sleep(ctx, 1500*time.Millisecond+r.upTo(1500*time.Millisecond))
	err = r.servers.nodes[victim].Signal(syscall.SIGCONT)
	r.log("thaw", victim)
	// Until its own queues have caught up, deliveries are late for another reason.
	sleep(ctx, time.Second)
	return err
}

// nameQueues returns the names of n queues on each of a Cluster's primaries, grouped by node.
func (r *run) nameQueues(ctx context.Context, n int) (names []string, err error) {
	byNode := map[int][]string{}
	for i, full := 0, 0; full < 3; i++ {
		name := fmt.Sprintf("q%d-%d", i, r.cfg.Seed)
		owner, _, err := r.servers.owner(ctx, r.slot(ctx, name))
		if err != nil {
			return nil, err
		}
		if of := byNode[owner]; len(of) < n {
			if byNode[owner] = append(of, name); len(of) == n-1 {
				full++
			}
		}
	}
	for node := range r.servers.nodes {
		names = append(names, byNode[node]...)
	}
	return names, nil
}

// measureFrozen measures how late first deliveries were: on the healthy queues while a node was frozen, and at other
// times on any queue. A message is neither if its claim or send was in progress when the node froze or thawed.
func (ck *checker) measureFrozen(m *message, result *Result) {
	if len(ck.freezes) == 0 || len(m.deliveries) == 0 || len(m.reschedules)+len(m.replays) > 0 {
		return
	}
	d := m.deliveries[0]
	ready := d.due * 1000
	for _, s := range m.sends {
		if s.acknowledged() { // a retried send may have arrived at any time until then
			ready = max(ready, s.ret)
			break
		}
	}
	if d.attempt > 1 || len(m.sends) == 0 {
		return
	}
	late := max(0, d.now-ready)
	for _, f := range ck.freezes {
		if d.now < f.from || ready > f.to+time.Second.Microseconds() {
			continue
		}
		if f.healthy[d.queue] && d.now <= f.to {
			result.WhileFrozen.add(late)
		}
		return
	}
	result.Lateness.add(late)
}

// freeze is a time when a node was stopped, with the queues of the other nodes.
type freeze struct {
	from, to int64
	healthy  map[string]bool
}

// addFreeze adds the facts of an event about a freeze.
func (ck *checker) addFreeze(x record) {
	switch x.field(0) {
	case "freeze":
		f := freeze{from: x.at, to: x.at, healthy: map[string]bool{}}
		for queue := range strings.SplitSeq(x.field(2), ",") {
			f.healthy[queue] = true
		}
		ck.freezes = append(ck.freezes, f)
	case "thaw":
		if n := len(ck.freezes); n > 0 {
			ck.freezes[n-1].to = x.at
		}
	}
}
