//go:build unix

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// followerKind is the role of a process that sends messages with Follow.
const followerKind = "follower"

// follower sends versions of messages with Follow and cancels some of them. Of all versions that are sent while a
// worker holds the message, the last must be delivered when the hold has ended, and not before.
type follower struct {
	role
	queue   *later.Queue
	journal *journal
}

const (
	versions      = 6  // of each message
	followSenders = 12 // messages with versions that are sent at the same time
)

func (f follower) run(ctx context.Context, s store.Store, log *slog.Logger) error {
	client, err := later.New(s, later.WithLogger(log))
	if err != nil {
		return err
	}
	f.queue = client.Queue(f.Queues[0])
	trying, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(resendLimit, cancel) })()
	var sending sync.WaitGroup
	for i := range followSenders {
		sending.Go(func() {
			random := rand.New(rand.NewPCG(f.Seed, uint64(i)))
			for n := 0; ctx.Err() == nil; n++ {
				f.sendVersions(ctx, trying, random, fmt.Sprintf("%s-%d-%d", f.Actor, i, n))
			}
		})
	}
	sending.Wait()
	return client.Close()
}

// sendVersions sends the versions of one message, and sometimes cancels it in the end. It gives up the message when it
// does not learn the outcome of a send.
func (f follower) sendVersions(ctx, trying context.Context, random *rand.Rand, id string) {
	for v := range versions {
		if v > 0 && !sleep(ctx, time.Duration(random.Int64N(int64(f.Lease/8)))) {
			return
		}
		key := fmt.Sprintf("%s-%d", id, v)
		for {
			f.journal.one(beginSend, now(), id, key, "+0", string(flagFollows))
			call, cancel := context.WithTimeout(trying, 15*time.Second)
			_, err := f.queue.Send(call, makePayload(key, lasting, 50), later.WithID(id),
				later.OnDuplicate(later.Follow()))
			cancel()
			f.journal.one(endSend, now(), id, outcomeOf(err))
			if errors.Is(err, later.ErrDead) {
				return // a handler has buried it
			}
			if err == nil {
				break
			}
			if !sleep(trying, 20*time.Millisecond) {
				return
			}
		}
	}
	if random.IntN(3) == 0 {
		sleep(ctx, time.Duration(random.Int64N(int64(f.Lease/4))))
		(&producer{role: f.role, journal: f.journal}).cancelAfter(trying, f.queue, id, 0)
	}
}

// flagFollows marks sends with Follow.
const flagFollows = 'w'

func (m *message) follows() bool { return len(m.sends) > 0 && m.sends[0].has(flagFollows) }

// version returns the version of a message that a key names.
func version(key string) int {
	n, _ := strconv.Atoi(key[strings.LastIndexByte(key, '-')+1:])
	return n
}

// checkFollowed checks a message with versions that were sent with Follow: it has one holder at a time, each delivery
// has a later version than the acked ones, and the last version was delivered unless the message was cancelled.
func (ck *checker) checkFollowed(m *message, result *Result, violate violator) {
	ck.countFollowed(m, result)
	slices.SortStableFunc(m.runs, func(a, b handlerRun) int { return cmp.Compare(a.at, b.at) })
	acked := -1
	for i, d := range m.deliveries {
		v := m.versionOf(d)
		if v >= 0 && v <= acked {
			if violate("doubled", "version %d was claimed under lease %s, although version %d was acked", v,
				d.lease, acked) {
				result.Doubled++
			}
		}
		for _, s := range d.settles {
			if s.action == "ack" && s.known(outcomeOK) {
				acked = max(acked, v)
			}
			if i+1 < len(m.deliveries) && s.known(outcomeOK) && s.at > m.deliveries[i+1].now {
				if violate("two-holders", "%s settled (%s) %d µs after %s had claimed it", d.actor, s.action,
					s.at-m.deliveries[i+1].now, m.deliveries[i+1].actor) {
					result.TwoHolders++
				}
			}
		}
		if i+1 == len(m.deliveries) || d.mayHaveEnded() || m.mayBeCancelled(d, m.deliveries[i+1].now) {
			continue
		}
		next := m.deliveries[i+1]
		if until := ck.heldUntil(d, next.call); next.now < until*1000 &&
			violate("two-holders", "%s claimed it %d µs before the lease of %s ended", next.actor, until*1000-next.now,
				d.actor) {
			result.TwoHolders++
		}
	}
	ck.checkLastVersion(m, result, violate)
}

// versionOf returns the version that a delivery had, or -1 if its handler did not begin.
func (m *message) versionOf(d *delivery) int {
	until := int64(math.MaxInt64) // when its process claimed the message again
	for _, other := range m.deliveries {
		if other.actor == d.actor && other.ret > d.ret {
			until = min(until, other.ret)
		}
	}
	for _, h := range m.runs {
		if h.actor == d.actor && h.attempt == d.attempt && h.at >= d.ret && h.at < until {
			return version(h.key)
		}
	}
	return -1
}

// mayHaveEnded reports whether a settle ended the delivery, or may have.
func (d *delivery) mayHaveEnded() bool {
	return slices.ContainsFunc(d.settles, func(s *settle) bool {
		return s.known(outcomeOK) || s.unknown() || s.ambiguous()
	})
}

// mayBeCancelled reports whether a cancel may have ended a delivery before a time.
func (m *message) mayBeCancelled(d *delivery, before int64) bool {
	return slices.ContainsFunc(m.cancels, func(c *call) bool {
		return !c.known(outcomeNotFound) && c.at < before && (c.ret == 0 || c.ret > d.call)
	})
}

// checkLastVersion checks that the last version that was sent has been delivered.
func (ck *checker) checkLastVersion(m *message, result *Result, violate violator) {
	if info := ck.left[m.id]; info != nil && info.State != later.StateDead {
		violate("stuck", "is %s after the run", info.State)
	}
	last := m.sends[len(m.sends)-1]
	if !last.acknowledged() || len(m.cancels) > 0 {
		return
	}
	for _, h := range m.runs {
		if h.key == last.key {
			return
		}
	}
	if violate("lost", "its last version was acknowledged and never handled") {
		result.Lost++
	}
}

func (ck *checker) countFollowed(m *message, result *Result) {
	result.Deliveries += len(m.deliveries)
	for _, s := range m.sends {
		if s.acknowledged() {
			result.Sent++
		}
	}
}

// addFollowers adds a process that sends messages with Follow to a queue of its own. The consumers handle them.
func (r *run) addFollowers() {
	queue := fmt.Sprint("follow-", r.cfg.Seed)
	for _, c := range r.children {
		if c.role.Kind == "worker" || c.role.Kind == "receiver" {
			c.role.Queues = append(slices.Clone(c.role.Queues), queue)
		}
	}
	f := r.consumer(followerKind, followerKind, r.servers.url)
	f.Queues = []string{queue}
	r.add(f)
	r.queues = append(r.queues, queue)
}

// disruptTwoServers has requests arrive late at one server while their clients repeat them through the other one.
func disruptTwoServers(ctx context.Context, r *run) error {
	r.late = maxLate
	if err := r.servers.useOtherServer(ctx); err != nil {
		return err
	}
	r.withConditions(ctx, "late-requests", conditions{lateRequests: 0.05 + 0.2*r.random.Float64()})
	return nil
}
