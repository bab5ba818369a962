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

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// message is all that the journals say of one message.
type message struct {
	id         string
	sends      []*send
	moves      []*send // reschedules
	cancels    []*call
	deliveries []*delivery // by the engine's clock, once sorted
	tolds      []toldLost
	runs       []handling
}

// call is one call that was made for a message. A ret of 0 means that it never came back.
type call struct {
	actor   string
	at, ret int64 // µs
	outcome string
}

// known tells that the call was answered, so that its effect is known.
func (c *call) known(outcomes ...string) bool {
	return c.ret != 0 && slices.Contains(outcomes, c.outcome)
}

// unknown tells that the call may have had its effect or not.
func (c *call) unknown() bool {
	return !c.known(outcomeOK, outcomeDuplicate, outcomeLost, outcomeNotFound, string(later.StateScheduled),
		string(later.StateReady), string(later.StateLeased), string(later.StateDead))
}

type send struct {
	call
	key, due, flags string
}

func (s *send) has(flag rune) bool { return strings.ContainsRune(s.flags, flag) }

// acknowledged tells that the sender knows its message to be there, or to have been there.
func (s *send) acknowledged() bool { return s.known(outcomeOK, outcomeDuplicate) }

type delivery struct {
	actor     string
	call, ret int64 // of the claim
	now       int64 // the engine's clock at the claim, µs
	deadline  int64 // ms
	lease     string
	due       int64 // ms
	attempt   int64
	settles   []*settle
}

type settle struct {
	call
	action string
	delay  int64 // µs
}

// guessed tells whether the store may have taken what another did for what this settle had done before its repetition. It
// knows a repeated ack by the number of the call, and tells the others by where they find the message.
func (s *settle) guessed() bool { return s.repeated() && s.action != "ack" }

type toldLost struct {
	actor   string
	at      int64
	attempt int64
}

type handling struct {
	at    int64
	key   string
	whole bool
}

// facts are what the journals say besides messages.
type facts struct {
	windows []window
	slack   int64 // µs by which the engine's clock may be off
	late    int64 // ms by which a request may arrive late
	lease   int64 // ms that every claim asks for
	killed  map[string]int64
	stopped map[string][]int64
	ended   map[string]bool // in good order
	kinds   map[string]string
	marks   []record
	extends map[string][]extension // by lease
	claims  map[string][]int64     // when claims came back with messages, by queue, sorted
	usage   map[string][]record
	left    map[string]*later.Info // what is left in the end
	heavy   []string               // claims whose payloads were more than a claim may give
}

// extension is a call that extended a lease, or may have: deadline is 0 when it was refused, or nobody knows.
type extension struct {
	call, ret int64 // µs
	deadline  int64 // ms
	refused   bool
}

// shardBytes is how much of the journals is looked at in one pass. A pass takes about eight times as much memory.
const shardBytes = 256 << 20

// account reads the journals and checks every message.
func (r *run) account(left map[string]*later.Info) error {
	actors, size, err := journals(r.dir)
	if err != nil {
		return err
	}
	f, err := readFacts(r.dir, actors)
	if err != nil {
		return err
	}
	f.windows, f.slack, f.left, f.lease, f.late = r.windows, r.slack.Microseconds(), left, r.lease.Milliseconds(), r.late.Milliseconds()
	shards := uint32(size/shardBytes + 1)
	for shard := range shards {
		messages, err := readMessages(r.dir, actors, shard, shards)
		if err != nil {
			return err
		}
		for _, m := range messages {
			m.sort(f.slack > 0)
			f.check(m, r.result)
			if r.cfg.each != nil {
				r.cfg.each(f, m)
			}
		}
	}
	r.checkWants(left)
	for _, text := range f.heavy {
		r.result.violate("heavy", "-", "%s; want about %d", text, store.MaxBatchBytes)
	}
	f.measure(r.result)
	return nil
}

func (r *run) checkWants(left map[string]*later.Info) {
	for _, w := range r.wants {
		if err := w.check(left[w.id]); err != nil {
			r.result.violate("fate", w.id, "%v", err)
		}
	}
}

// aFact tells the kinds of records that readFacts looks at.
func aFact(kind byte, _ []byte) bool { return strings.IndexByte(factKinds, kind) >= 0 }

var factKinds = string([]byte{mark, begun, ended, extended, usage, claimed})

// readFacts reads what is not about one message.
func readFacts(dir string, actors []string) (*facts, error) {
	f := &facts{
		killed: map[string]int64{}, stopped: map[string][]int64{}, ended: map[string]bool{}, kinds: map[string]string{},
		extends: map[string][]extension{}, usage: map[string][]record{}, claims: map[string][]int64{},
	}
	var lastClaim, bytes int64
	lastLease := ""
	for _, actor := range actors {
		err := readJournal(filepath.Join(dir, actor+journalSuffix), aFact, func(x record) {
			switch x.kind {
			case mark:
				f.marks = append(f.marks, x)
				switch x.field(0) {
				case "kill":
					f.killed[x.field(1)] = x.at
				case "stop":
					f.stopped[x.field(1)] = append(f.stopped[x.field(1)], x.at)
				}
			case begun:
				f.kinds[actor] = x.field(0)
			case ended:
				f.ended[actor] = true
			case extended:
				lease := x.field(1)
				f.extends[lease] = append(f.extends[lease], extension{x.number(0), x.at, x.number(2), x.field(2) == outcomeLost})
			case usage:
				f.usage[actor] = append(f.usage[actor], x)
			case claimed:
				if lease := x.field(3); lease != lastLease {
					lastLease, bytes = lease, 0
				}
				// One message is given however large it is.
				if bytes += x.number(7); bytes > store.MaxBatchBytes+store.MaxPayload {
					f.heavy = append(f.heavy, fmt.Sprintf("lease %s holds %d payload bytes", lastLease, bytes))
				}
				// One that knows only a primary that was cut off does not tell how the others fare.
				if queue := x.field(4); x.at != lastClaim && !strings.HasPrefix(actor, stale) {
					lastClaim = x.at
					f.claims[queue] = append(f.claims[queue], x.at)
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	for _, of := range f.claims {
		slices.Sort(of)
	}
	return f, nil
}

// readMessages reads what is said of the messages of one shard.
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

// add takes in one record.
func (m *message) add(actor string, x record) {
	switch x.kind {
	case beginSend:
		m.sends = append(m.sends, &send{
			call: call{actor: actor, at: x.at}, key: x.field(0), due: x.field(1), flags: x.field(2),
		})
	case endSend:
		for _, s := range slices.Backward(m.sends) {
			if s.actor == actor && s.ret == 0 {
				s.ret, s.outcome = x.at, x.field(0)
				break
			}
		}
	case beginMove:
		m.moves = append(m.moves, &send{call: call{actor: actor, at: x.at}, due: x.field(0)})
	case endMove:
		for _, s := range slices.Backward(m.moves) {
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
	case claimed:
		m.deliveries = append(m.deliveries, &delivery{
			actor: actor, call: x.number(0), ret: x.at, now: x.number(1), deadline: x.number(2), lease: x.field(3),
			due: x.number(5), attempt: x.number(6),
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
		m.runs = append(m.runs, handling{x.at, x.field(1), x.number(2) == 1})
	case told:
		m.tolds = append(m.tolds, toldLost{actor, x.at, x.number(0)})
	}
}

// delivery gives the delivery under a lease.
func (m *message) delivery(lease string) *delivery {
	for _, d := range slices.Backward(m.deliveries) {
		if d.lease == lease {
			return d
		}
	}
	return nil
}

// sort puts the deliveries in the order in which the engine made them. With a clock that was stepped, it is the
// order in which they arrived, and of two whose claims were under way at the same time that of their attempts.
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

// inspect reads what is left in the store: by the public API, and past it, whether each message is in exactly one
// place.
func (r *run) inspect(ctx context.Context) (map[string]*later.Info, error) {
	left := map[string]*later.Info{}
	rdb, err := r.servers.client(ctx)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	for _, name := range r.queues {
		q := r.client.Queue(name)
		for _, state := range []later.State{later.StateScheduled, later.StateReady, later.StateLeased, later.StateDead} {
			for cursor := ""; ; {
				page, err := r.client.Queue(name).List(ctx, later.ListOptions{State: state, Cursor: cursor, Limit: store.MaxBatch})
				if err != nil {
					return nil, fmt.Errorf("list %s of %s: %w", state, q.Name(), err)
				}
				for i := range page.Messages {
					left[page.Messages[i].ID] = page.Messages[i]
				}
				if cursor = page.Next; cursor == "" {
					break
				}
			}
		}
		if err := r.audit(ctx, rdb, name); err != nil {
			return nil, err
		}
	}
	return left, r.examine(ctx)
}

// serverChecks are of Examine and tell of the servers as the fault wants them, not of messages.
var serverChecks = []string{"server", "persistence", "memory", "replicas", "clock"}

// examine has the store examine itself, which must find nothing wrong with its messages.
func (r *run) examine(ctx context.Context) error {
	return r.client.Examine(ctx, later.Examination{}, func(f later.Finding) {
		wrong := f.Severity == later.SeverityWarning || f.Severity == later.SeverityError
		if wrong && !slices.Contains(serverChecks, f.Check) {
			r.result.violate("examine", "-", "%s of %s: %s", f.Check, f.Queue, f.Text)
		}
	})
}

// client is a client for reading past Later.
func (v *servers) client(ctx context.Context) (redis.UniversalClient, error) {
	if v.form == cluster {
		var addrs []string
		for _, n := range v.nodes {
			addrs = append(addrs, n.Addr())
		}
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs}), nil
	}
	primary, err := v.primary(ctx, -1)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(v.nodes[primary].Options()), nil
}

// audit checks that the keys of a queue agree.
func (r *run) audit(ctx context.Context, rdb redis.UniversalClient, queue string) error {
	_, err := redistest.Places(ctx, rdb, queue, func(id, text string) { r.result.violate("places", id, "%s of %s", text, queue) })
	return err
}
