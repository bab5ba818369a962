//go:build unix

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laterq/later"
	"github.com/laterq/later/doctor"
	"github.com/laterq/later/store"
)

// message is everything the journals say about one message.
type message struct {
	id          string
	sends       []*send
	reschedules []*send
	cancels     []*call
	replays     []*call
	founds      []observation
	deliveries  []*delivery // by the engine's clock, once sorted
	leaseLosses []leaseLoss
	runs        []handlerRun
	forwards    []forward
	sightings   []sighting
	group       string
	misses      []call // gets that did not find the message
}

// call is one call made for a message. A ret of 0 means that it never returned.
type call struct {
	actor   string
	at, ret int64 // µs
	outcome string
}

// known reports whether the call returned one of the outcomes, so that its effect is known.
func (c *call) known(outcomes ...string) bool {
	return c.ret != 0 && slices.Contains(outcomes, c.outcome)
}

// refused reports whether the call certainly had no effect, because the urgency of its message was refused.
func (c *call) refused() bool { return c.known(outcomeInvalid) && !c.repeated() }

// unknown reports whether the call may or may not have taken effect.
func (c *call) unknown() bool {
	return !c.refused() && !c.known(outcomeOK, outcomeDuplicate, outcomeLost, outcomeNotFound,
		string(later.StateScheduled), string(later.StateReady), string(later.StateLeased), string(later.StateDead))
}

type send struct {
	call
	key, due, flags string
	flowKey         string // the message's own key
	maxAttempts     int64  // 0 if the message has the default
	number          int64  // in its call, from 1 on; 0 if that is not known
	urgency         store.Urgency
	urgent          bool   // a message of its call has an urgency
	queue           string // "" if that is not known
}

func (s *send) has(flag rune) bool { return strings.ContainsRune(s.flags, flag) }

// acknowledged reports whether the sender knows that its message is, or was, in the store.
func (s *send) acknowledged() bool { return s.known(outcomeOK, outcomeDuplicate) }

type delivery struct {
	actor     string
	call, ret int64 // of the claim
	now       int64 // the engine's clock at the claim, µs
	deadline  int64 // ms
	lease     string
	queue     string
	due       int64 // ms
	attempt   int64
	key       string // the message's own
	fence     int64
	urgency   store.Urgency
	settles   []*settle
}

type settle struct {
	call
	action string
	delay  int64 // µs
}

// ambiguous reports whether the store may have mistaken another call's effect for that of an earlier attempt of this
// settle. The store recognizes a repeated ack by its call number, and other settles by the state of the message.
func (s *settle) ambiguous() bool { return s.repeated() && s.action != "ack" }

// leaseLoss is an event that reported a lost lease to its holder.
type leaseLoss struct {
	actor   string
	at      int64
	attempt int64
}

// handlerRun is one call of a handler.
type handlerRun struct {
	actor   string
	at      int64
	attempt int64
	key     string
	whole   bool
	fence   int64
}

// forward is an event that reported that the message left a queue for its destination.
type forward struct {
	actor string
	at    int64
	queue string
}

// checker holds the facts of the journals about the run as a whole, and verifies its messages.
type checker struct {
	windows []window
	slack   int64 // µs that the engine's clock may be off
	grouped bool  // leases begin when the engine begins a group of calls, and the claim may be a later one
	sharded bool  // queues have several shards, which share the limits and have turns of their own
	late    int64 // ms that a request may arrive late
	lease   int64 // ms requested by every claim
	killed  map[string]int64
	stopped map[string][]int64
	ended   map[string]bool     // exited cleanly
	starved map[string][]window // did not run
	unseen  []unseen
	freezes []freeze
	ends    int64 // when the last process ended
	kinds   map[string]string
	events  []record
	extends map[string][]extension // by lease
	claims  map[string][]int64     // return times of claims with messages, by queue, sorted
	usage   map[string][]record
	left    map[string]*later.Info // messages in the store after the run
	listed  map[string]int         // number of elements of the list, by key
	// awayLeft has the messages in the queue of copies; nil without such a queue.
	awayLeft map[string]bool
	around
	subscribers []*subscriber
	heavy       []string // claims with more payload bytes than a claim may return
}

// extension is a call that may have extended a lease. deadline is 0 when it was refused or its outcome is unknown. The
// outcome of a refused call is unknown if it was repeated: its first attempt may have extended the lease, which a
// settle ended before the repetition.
type extension struct {
	call, ret int64 // µs
	deadline  int64 // ms
	refused   bool
}

// shardBytes limits the journal bytes processed in one pass. A pass needs about eight times as much memory.
const shardBytes = 256 << 20

// verify reads the journals and checks every message.
func (r *run) verify(left map[string]*later.Info) error {
	actors, size, err := journals(r.dir)
	if err != nil {
		return err
	}
	ck, err := newChecker(r.dir, actors)
	if err != nil {
		return err
	}
	ck.windows, ck.slack, ck.late = r.windows, r.slack.Microseconds(), r.late.Milliseconds()
	ck.left, ck.listed, ck.lease = left, r.listed, r.lease.Milliseconds()
	ck.awayLeft, ck.subscribers = r.awayLeft, r.subscribers
	ck.grouped, ck.sharded = r.grouped, r.sharded
	ck.indexStreams()
	shards := uint32(size/shardBytes + 1)
	for shard := range shards {
		messages, err := readMessages(r.dir, actors, shard, shards)
		if err != nil {
			return err
		}
		for _, m := range messages {
			m.sort(ck.slack > 0)
			ck.check(m, r.result)
			ck.measureFrozen(m, r.result)
			if r.cfg.onMessage != nil {
				r.cfg.onMessage(ck, m)
			}
		}
	}
	ck.checkAllAround(r.result)
	r.checkExpectations(left)
	for _, text := range ck.heavy {
		r.result.violate("heavy", "-", "%s; want at most about %d", text, store.MaxBatchBytes)
	}
	r.result.ShardChanges = ck.changes
	ck.measure(r.result)
	return nil
}

func (r *run) checkExpectations(left map[string]*later.Info) {
	for _, w := range r.expectations {
		if err := w.check(left[w.id]); err != nil {
			r.result.violate("expectation", w.id, "%v", err)
		}
	}
}

// isRunRecord reports whether newChecker reads records of that kind.
func isRunRecord(kind byte, _ []byte) bool { return strings.IndexByte(runRecordKinds, kind) >= 0 }

var runRecordKinds = aroundKinds +
	string([]byte{runEvent, reshardedTo, begun, ended, extended, usage, claimed, claimFailed, starved})

// newChecker reads the records that are not about a single message.
func newChecker(dir string, actors []string) (*checker, error) {
	ck := &checker{
		killed: map[string]int64{}, stopped: map[string][]int64{}, ended: map[string]bool{}, kinds: map[string]string{},
		starved: map[string][]window{}, around: newAround(),
		extends: map[string][]extension{}, usage: map[string][]record{}, claims: map[string][]int64{},
	}
	var lastClaim, bytes int64
	lastLease := ""
	for _, actor := range actors {
		err := readJournal(filepath.Join(dir, actor+journalSuffix), isRunRecord, func(x record) {
			ck.addAround(actor, x)
			switch x.kind {
			case runEvent:
				ck.events = append(ck.events, x)
				ck.addFreeze(x)
				switch x.field(0) {
				case "kill":
					ck.killed[x.field(1)] = x.at
					ck.unseen = append(ck.unseen, unseen{from: x.at - unseenReach, to: x.at + unseenReach})
				case "stop":
					ck.stopped[x.field(1)] = append(ck.stopped[x.field(1)], x.at)
				}
			case reshardedTo:
				ck.addReshard(x)
			case begun:
				ck.kinds[actor] = x.field(0)
			case ended:
				ck.ended[actor] = true
				ck.ends = max(ck.ends, x.at)
			case starved:
				ck.starved[actor] = append(ck.starved[actor], window{from: x.number(0), to: x.at})
			case claimFailed:
				ck.unseen = append(ck.unseen, unseen{from: x.number(0), to: x.at + unseenReach, queue: x.field(1)})
			case extended:
				lease, c := x.field(1), call{at: x.number(0), ret: x.at}
				ck.extends[lease] = append(ck.extends[lease],
					extension{c.at, c.ret, x.number(2), x.field(2) == outcomeLost && !c.repeated()})
			case usage:
				ck.usage[actor] = append(ck.usage[actor], x)
			case claimed:
				if lease := x.field(3); lease != lastLease {
					lastLease, bytes = lease, 0
				}
				// A claim returns at least one message, however large.
				if bytes += x.number(7); bytes > store.MaxBatchBytes+store.MaxPayload {
					ck.heavy = append(ck.heavy, fmt.Sprintf("lease %s holds %d payload bytes", lastLease, bytes))
				}
				// An actor that knows only a primary that was cut off says nothing about the others, and a laggard
				// waits for its leases.
				if queue := x.field(4); x.at != lastClaim && !strings.HasPrefix(actor, stale) &&
					ck.kinds[actor] != "laggard" {
					lastClaim = x.at
					ck.claims[queue] = append(ck.claims[queue], x.at)
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for _, of := range ck.claims {
		slices.Sort(of)
	}
	return ck, nil
}

// readMessages reads the records of the messages in one shard.
func readMessages(dir string, actors []string, shard, shards uint32) (map[string]*message, error) {
	messages := map[string]*message{}
	wanted := func(_ byte, id []byte) bool {
		if len(id) == 1 && id[0] == '-' {
			return false
		}
		if shards == 1 {
			return true
		}
		h := fnv.New32a()
		h.Write(id)
		return h.Sum32()%shards == shard
	}
	for _, actor := range actors {
		err := readJournal(filepath.Join(dir, actor+journalSuffix), wanted, func(x record) {
			m := messages[x.id]
			if m == nil {
				m = &message{id: x.id}
				messages[x.id] = m
			}
			m.add(actor, x)
		})
		if err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// add adds one record.
func (m *message) add(actor string, x record) {
	switch x.kind {
	case beginSend:
		s := &send{
			call: call{actor: actor, at: x.at}, key: x.field(0), due: x.field(1), flags: x.field(2),
			flowKey: x.field(3), maxAttempts: x.number(4), number: x.number(5), urgent: x.field(6) != "",
			queue: x.field(7),
		}
		if x.field(6) != mixedUrgency {
			s.urgency = store.Urgency(x.field(6))
		}
		m.sends = append(m.sends, s)
	case endSend:
		for _, s := range slices.Backward(m.sends) {
			if s.actor == actor && s.ret == 0 {
				s.ret, s.outcome = x.at, x.field(0)
				break
			}
		}
	case beginReschedule:
		m.reschedules = append(m.reschedules, &send{call: call{actor: actor, at: x.at}, due: x.field(0)})
	case endReschedule:
		for _, s := range slices.Backward(m.reschedules) {
			if s.actor == actor && s.ret == 0 {
				s.ret, s.outcome = x.at, x.field(0)
				break
			}
		}
	case beginCancel:
		m.cancels = append(m.cancels, &call{actor: actor, at: x.at})
	case endCancel:
		for _, c := range slices.Backward(m.cancels) {
			if c.actor == actor && c.ret == 0 {
				c.ret, c.outcome = x.at, x.field(0)
				break
			}
		}
	case beginReplay:
		m.replays = append(m.replays, &call{actor: actor, at: x.at})
	case endReplay:
		for _, c := range slices.Backward(m.replays) {
			if c.actor == actor && c.ret == 0 {
				c.ret, c.outcome = x.at, x.field(0)
				break
			}
		}
	case missed:
		m.misses = append(m.misses, call{actor: actor, at: x.number(0), ret: x.at})
	case found:
		m.founds = append(m.founds, observation{at: x.at, attempts: x.number(0)})
	case claimed:
		m.deliveries = append(m.deliveries, &delivery{
			actor: actor, call: x.number(0), ret: x.at, now: x.number(1), deadline: x.number(2), lease: x.field(3),
			queue: x.field(4), due: x.number(5), attempt: x.number(6), key: x.field(8),
			fence: x.number(9), urgency: store.Urgency(x.field(10)),
		})
	case beginSettle:
		if d := m.delivery(x.field(0)); d != nil {
			d.settles = append(d.settles, &settle{
				call: call{actor: actor, at: x.at}, action: x.field(1), delay: x.number(2),
			})
		}
	case endSettle:
		if d := m.delivery(x.field(0)); d != nil {
			for _, s := range d.settles {
				if s.ret == 0 {
					s.ret, s.outcome = x.at, x.field(1)
					break
				}
			}
		}
	case handled:
		m.runs = append(m.runs, handlerRun{actor, x.at, x.number(0), x.field(1), x.number(2) == 1, x.number(3)})
	case forwarded:
		m.forwards = append(m.forwards, forward{actor, x.at, x.field(0)})
	case grouped:
		m.group = x.field(0)
	case watched:
		m.sightings = append(m.sightings, newSighting(actor, x))
	case leaseLost:
		m.leaseLosses = append(m.leaseLosses, leaseLoss{actor, x.at, x.number(0)})
	}
}

// delivery returns the delivery made under a lease.
func (m *message) delivery(lease string) *delivery {
	for _, d := range slices.Backward(m.deliveries) {
		if d.lease == lease {
			return d
		}
	}
	return nil
}

// sort sorts the deliveries in the order of the engine. If its clock was stepped, it sorts them by return time, or by
// attempt where two claims overlap.
func (m *message) sort(stepped bool) {
	slices.SortFunc(m.deliveries, func(a, b *delivery) int {
		switch {
		case !stepped:
			return cmp.Compare(a.now, b.now)
		case a.call < b.ret && b.call < a.ret:
			return cmp.Or(cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.ret, b.ret))
		}
		return cmp.Compare(a.ret, b.ret)
	})
}

// inspect returns the messages left in the store, read by the public API. It also audits the store's keys.
func (r *run) inspect(ctx context.Context) (map[string]*later.Info, error) {
	left := map[string]*later.Info{}
	for _, name := range append(slices.Clone(r.queues), r.lagQueue) {
		q := r.client.Queue(name)
		for _, state := range []later.State{later.StateScheduled, later.StateReady, later.StateLeased,
			later.StateDead} {
			for cursor := ""; ; {
				page, err := r.client.Queue(name).List(ctx, later.ListOptions{State: state, Cursor: cursor,
					Limit: store.MaxBatch})
				if err != nil {
					return nil, fmt.Errorf("list %s of %s: %w", state, q.Name(), err)
				}
				for i := range page.Messages {
					if id := page.Messages[i].ID; name == r.away {
						r.awayLeft[id] = true
					} else {
						left[id] = page.Messages[i]
					}
				}
				if cursor = page.Next; cursor == "" {
					break
				}
			}
		}
	}
	if len(r.servers.nodes) > 0 {
		if err := r.audit(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.readList(ctx); err != nil {
		return nil, err
	}
	if r.fault.load.limited {
		if err := r.checkNoKeyWaits(ctx); err != nil {
			return nil, err
		}
	}
	if r.fault.setting.memory {
		return left, nil // it has nothing to check
	}
	return left, r.check(ctx)
}

// serverChecks are the checks about the server's settings, which depend on the fault.
var serverChecks = []string{"server", "persistence", "memory", "replicas", "clock"}

// check runs the store's own check, which must find no issue with the messages.
func (r *run) check(ctx context.Context) error {
	err := doctor.Check(ctx, r.client, doctor.Config{}, func(c doctor.Result) {
		if c.IsIssue() && !slices.Contains(serverChecks, c.Check) {
			r.result.violate("check", "-", "%s of %s: %s", c.Check, c.Queue, c.Text)
		}
	})
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	return nil
}
