package redisstore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

var update = flag.Bool("update", false, "rewrite testdata/snapshots")

// renderings iterates over the renderings of scripts. The names of those for queues with a flow begin with "flow/".
func renderings(all scripts) iter.Seq2[string, *script] {
	return func(yield func(string, *script) bool) {
		for name, script := range all {
			if !yield(name, script) || script.flow != nil && !yield("flow/"+name, script.flow()) {
				return
			}
		}
	}
}

// TestSnapshots shows in reviews the scripts as they are sent to the server, with includes and constants in place.
func TestSnapshots(t *testing.T) {
	for name, script := range renderings(production()) {
		file := filepath.Join("testdata", "snapshots", name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(script.body), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if script.body != string(want) {
			t.Errorf("%s.lua differs from its snapshot; if intended, run: go test ./redisstore -run Snapshots -update",
				name)
		}
	}
}

func TestScriptsUseOnlyDeclaredKeys(t *testing.T) {
	key := regexp.MustCompile(`redis\.call\((?:'TIME'|'[A-Z]+', ` +
		`(DUE|MESSAGES|LEASES|LEASE_DEADLINES|RECORDS|DEAD|DEDUP|META|` +
		`SESSIONS|OLD_SESSIONS|BUCKETS|BUCKET_STARTS|BUCKET_COUNTS|WAKE|GROUPS|` +
		`LANES|KEY_STATES|TURNS|RESTS|OLD_RESTS|FORGET|KEY_FLOWS|HOLDERS|HALTED|TURNS_HIGH|TURNS_LOW|` +
		`PROPERTIES|ACTIVITY|ONCE|OLD_ONCE|OUTBOX|key|to)[,)]|` +
		`command, key,|option, ARGV\[5\],)`)
	for name, script := range renderings(production()) {
		all, known := strings.Count(script.body, "redis.call("), len(key.FindAllString(script.body, -1))
		if all == 0 || all != known {
			t.Errorf("%s.lua calls Redis %d times, %d of them with a declared key", name, all, known)
		}
	}
}

// populatedQueue is a queue with a message in every state, and the receipts and ids with which to change each of them.
type populatedQueue struct {
	s     *Store
	queue string
	lease string
	held  []store.Receipt
	infos []store.Info // of a message in each state

	flow    store.Flow
	ordered bool // keys have an order, and each message has a key
	urgent  bool // each message has an urgency
}

// settleIf settles all held messages under a condition that is met unless a test removes the properties.
func (x *populatedQueue) settleIf(ctx context.Context, action store.Action) error {
	all := settlements(x.held, action)
	for i := range all {
		all[i].If = &store.Condition{Property: "kept", Value: "1"}
	}
	_, err := x.s.Settle(ctx, x.queue, all)
	return err
}

// everyCall has one call for every script that writes and every path through it.
var everyCall = []struct {
	name string
	do   func(ctx context.Context, x *populatedQueue) error
}{
	{"send", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.send(ctx, []store.Outgoing{{Message: store.Message{ID: "new", Group: "g"}},
			{Message: store.Message{ID: "gone"}}, {Message: store.Message{ID: "ready"}}})
		return err
	}},
	{"send one", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.send(ctx, []store.Outgoing{{Message: store.Message{ID: "lone"}}})
		return err
	}},
	{"send one gone", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.send(ctx, []store.Outgoing{{Message: store.Message{ID: "gone"}}})
		return err
	}},
	{"send packed", func(ctx context.Context, x *populatedQueue) error {
		in := store.Due{Delay: time.Hour}
		_, err := x.send(ctx, []store.Outgoing{{Message: store.Message{ID: "far"}, Due: in},
			{Message: store.Message{ID: "gone"}, Due: in}, {Message: store.Message{ID: "farther"},
				Due: store.Due{Delay: 2 * time.Hour}}})
		return err
	}},
	{"send existing", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.send(ctx, []store.Outgoing{{Message: store.Message{ID: "ready"}}})
		return err
	}},
	{"collapse", func(ctx context.Context, x *populatedQueue) error {
		ids := []string{"new", "gone", "ready", "scheduled", "late", "dead", "held1"}
		_, err := x.send(ctx, collapsing(store.Due{}, ids...))
		return err
	}},
	{"collapse packed", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.send(ctx, collapsing(store.Due{Delay: 2 * time.Hour}, "new", "gone", "ready",
			"scheduled"))
		return err
	}},
	{"collapse nothing", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.send(ctx, collapsing(store.Due{}, "dead", "done", "held1"))
		return err
	}},
	{"collapse with keys", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.send(ctx,
			onceEach(collapsing(store.Due{}, "new", "gone", "ready", "dead", "once", "other")))
		return err
	}},
	{"send with keys", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.send(ctx, onceEach([]store.Outgoing{{Message: store.Message{ID: "new"}},
			{Message: store.Message{ID: "ready"}}, {Message: store.Message{ID: "once"}}}))
		return err
	}},
	{"repeated send with a key", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.send(ctx, onceEach([]store.Outgoing{{Message: store.Message{ID: "once"}}}))
		return err
	}},
	{"follow", func(ctx context.Context, x *populatedQueue) error {
		ids := []string{"new", "gone", "ready", "late", "dead", "held1", "held2", "followed"}
		_, err := x.send(ctx, following(store.Due{}, ids...))
		return err
	}},
	{"restore packed", func(ctx context.Context, x *populatedQueue) error {
		in := func(id string, d time.Duration) store.Info {
			return store.Info{Message: store.Message{ID: id}, State: store.StateScheduled, Due: time.Now().Add(d)}
		}
		_, err := x.s.Restore(ctx, x.queue, []store.Info{in("new", 5*time.Hour), in("soon", time.Minute), in("gone",
			6*time.Hour), in("ready", time.Hour)})
		return err
	}},
	{"restore existing", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Restore(ctx, x.queue, []store.Info{{Message: store.Message{ID: "ready"}, State: store.StateReady,
			Due: time.UnixMilli(1)}})
		return err
	}},
	{"cancel packed", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Cancel(ctx, x.queue, store.CancelRequest{IDs: []string{"scheduled"}})
		return err
	}},
	{"cancel unknown", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Cancel(ctx, x.queue, store.CancelRequest{IDs: []string{"unknown"}})
		return err
	}},
	{"replay nothing", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Replay(ctx, x.queue, store.Selection{State: store.StateDead, IDs: []string{"unknown"}},
			store.Due{})
		return err
	}},
	{"purge nothing", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Purge(ctx, x.queue, store.Selection{State: store.StateDead, IDs: []string{"unknown"}})
		return err
	}},
	{"purge all", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Purge(ctx, x.queue, store.Selection{})
		return err
	}},
	{"check", func(ctx context.Context, x *populatedQueue) error {
		for _, key := range checkedKeys {
			key, level, _ := strings.Cut(key, " ")
			c := x.s.newCall("check", x.queue, 4)
			c.add(key, "0", "1", level)
			if _, err := x.s.run(ctx, x.queue, c); err != nil {
				return err
			}
		}
		return nil
	}},
	{"recount", func(ctx context.Context, x *populatedQueue) error {
		c := x.s.newCall("recount", x.queue, 1)
		c.add("1")
		_, err := x.s.run(ctx, x.queue, c)
		return err
	}},
	{"repair lost", func(ctx context.Context, x *populatedQueue) error {
		c := x.s.newCall("lost", x.queue, 2)
		c.add("1", "lost")
		_, err := x.s.run(ctx, x.queue, c)
		return err
	}},
	{"claim", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Claim(ctx, x.queue, store.ClaimRequest{Max: 10, Lease: time.Minute})
		return err
	}},
	{"claim one", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Claim(ctx, x.queue, store.ClaimRequest{Max: 1, Lease: time.Minute})
		return err
	}},
	{"ack whole claim", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Settle(ctx, x.queue, settlements(x.held, store.Ack))
		return err
	}},
	{"ack with dedup window", func(ctx context.Context, x *populatedQueue) error {
		s := settlements(x.held[:1], store.Ack)
		s[0].DedupWindow = time.Hour
		_, err := x.s.Settle(ctx, x.queue, s)
		return err
	}},
	{"conditional send", func(ctx context.Context, x *populatedQueue) error {
		results, err := x.send(ctx, []store.Outgoing{
			{Message: store.Message{ID: "new"}, If: &store.Condition{Property: "kept", Value: "1"}}})
		if err == nil && results[0].Err != nil && !errors.Is(results[0].Err, store.ErrConflict) {
			err = results[0].Err
		}
		return err
	}},
	{"conditional acks", func(ctx context.Context, x *populatedQueue) error {
		return x.settleIf(ctx, store.Ack)
	}},
	{"conditional buries", func(ctx context.Context, x *populatedQueue) error {
		return x.settleIf(ctx, store.Bury)
	}},
	{"ack with follow-ups", func(ctx context.Context, x *populatedQueue) error {
		s := settlements(x.held, store.Ack)
		s[0].DedupWindow = time.Hour
		for _, id := range []string{"new", "gone", "done", "dead"} {
			for _, due := range []store.Due{{}, {Delay: 2 * time.Hour}} {
				m := store.Outgoing{Message: store.Message{ID: id, Group: "g"}, Due: due}
				s[0].Then = append(s[0].Then, store.FollowUp{Queue: x.queue, Message: m})
			}
		}
		_, err := x.s.Settle(ctx, x.queue, s)
		return err
	}},
	{"ack with a follow-up in another queue", func(ctx context.Context, x *populatedQueue) error {
		s := settlements(x.held[:1], store.Ack)
		m := store.Outgoing{Message: store.Message{ID: "m"}}
		s[0].Then = []store.FollowUp{{Queue: x.queue + "-other", Message: m}}
		_, err := x.s.Settle(ctx, x.queue, s)
		return err
	}},
	{"follow-up of another queue", func(ctx context.Context, x *populatedQueue) error {
		other := x.queue + "-other"
		if _, err := x.s.Send(ctx, other, []store.Outgoing{{Message: store.Message{ID: "m"}}}); err != nil {
			return err
		}
		c, err := x.s.Claim(ctx, other, store.ClaimRequest{Max: 1, Lease: time.Minute})
		if err != nil {
			return err
		}
		s := settlements([]store.Receipt{c.Messages[0].Receipt}, store.Ack)
		for id, due := range map[string]store.Due{"new": {}, "far": {Delay: 2 * time.Hour},
			"gone": {At: time.UnixMilli(1)}} {
			m := store.Outgoing{Message: store.Message{ID: id}, Due: due}
			s[0].Then = append(s[0].Then, store.FollowUp{Queue: x.queue, Message: m})
		}
		_, err = x.s.Settle(ctx, other, s)
		infos, getErr := x.s.Get(ctx, other, []string{"m"})
		if getErr != nil {
			return getErr
		}
		if refused := err != nil; refused != (infos[0] != nil) {
			return fmt.Errorf("%v, but the message is %v", err, infos[0])
		}
		return err
	}},
	{"nack", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Settle(ctx, x.queue, settlements(x.held, store.Nack))
		return err
	}},
	{"bury", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Settle(ctx, x.queue, settlements(x.held[:1], store.Bury))
		return err
	}},
	{"release", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Settle(ctx, x.queue, settlements(x.held, store.Release))
		return err
	}},
	{"extend", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Extend(ctx, x.queue, []store.Extension{{Lease: x.lease, For: time.Minute}})
		return err
	}},
	{"cancel", func(ctx context.Context, x *populatedQueue) error {
		ids := []string{"ready", "scheduled", "late", "held1", "followed", "dead", "none"}
		_, err := x.s.Cancel(ctx, x.queue, store.CancelRequest{IDs: ids})
		return err
	}},
	{"cancel and keep the ids", func(ctx context.Context, x *populatedQueue) error {
		ids := []string{"ready", "scheduled", "late", "held1", "followed", "dead", "none"}
		_, err := x.s.Cancel(ctx, x.queue, store.CancelRequest{IDs: ids, KeepIDs: true})
		return err
	}},
	{"ask what was cancelled", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Extend(ctx, x.queue, []store.Extension{{Lease: x.lease}})
		return err
	}},
	{"reschedule", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Reschedule(ctx, x.queue, []string{"scheduled", "late", "held1", "dead", "none"},
			store.Due{At: time.UnixMilli(1)})
		return err
	}},
	{"replay", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Replay(ctx, x.queue, store.Selection{State: store.StateDead}, store.Due{At: time.UnixMilli(1)})
		return err
	}},
	{"purge ready", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Purge(ctx, x.queue, store.Selection{State: store.StateReady})
		return err
	}},
	{"forward to a list", forwards(store.TargetList)},
	{"forward to a stream", forwards(store.TargetStream)},
	{"forward to a channel", forwards(store.TargetChannel)},
	{"forward to a queue", forwards(store.TargetQueue)},
	{"purge scheduled", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Purge(ctx, x.queue, store.Selection{State: store.StateScheduled})
		return err
	}},
	{"purge dead", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Purge(ctx, x.queue, store.Selection{State: store.StateDead})
		return err
	}},
	{"restore", func(ctx context.Context, x *populatedQueue) error {
		info := func(id string, state store.State) store.Info {
			return store.Info{Message: store.Message{ID: id, Group: "g"}, State: state, Due: time.UnixMilli(1)}
		}
		failed, dead := info("failed", store.StateReady), info("died", store.StateDead)
		failed.Attempts, failed.LastError = 1, "boom"
		dead.DeadReason, dead.DiedAt = store.DeadBuried, time.UnixMilli(2)
		_, err := x.s.Restore(ctx, x.queue, []store.Info{info("new", store.StateReady), failed, dead, info("gone",
			store.StateReady), info("ready", store.StateReady)})
		return err
	}},
	{"restore one", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Restore(ctx, x.queue,
			[]store.Info{{Message: store.Message{ID: "new"}, State: store.StateScheduled,
				Due: time.Now().Add(time.Hour)}})
		return err
	}},
	{"remove", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Remove(ctx, x.queue, x.infos)
		return err
	}},
	{"retain", func(ctx context.Context, x *populatedQueue) error {
		return x.s.SetDeadRetention(ctx, x.queue, store.Retention{MaxAge: time.Hour}, nil)
	}},
	{"set properties", func(ctx context.Context, x *populatedQueue) error {
		return x.s.SetProperties(ctx, x.queue, map[string]string{"old": "", "kept": "2", "new": "3"}, nil)
	}},
	{"report", func(ctx context.Context, x *populatedQueue) error {
		counts := map[store.EventKind]int64{"sent": 2, "acked": 1}
		results, err := x.s.Report(ctx, []store.Report{{Queue: x.queue, Counts: counts}})
		if err != nil {
			return err
		}
		return results[0].Err
	}},
	{"depart", departs},
	{"depart again", func(ctx context.Context, x *populatedQueue) error {
		return errors.Join(departs(ctx, x), departs(ctx, x))
	}},
	{"arrive", func(ctx context.Context, x *populatedQueue) error {
		other := *x
		other.queue += "-other"
		if err := x.s.SetFlow(ctx, other.queue, x.flow, nil); err != nil {
			return err
		}
		msgs := append(onceEach([]store.Outgoing{{Message: store.Message{ID: "new", Group: "g"}}}),
			store.Outgoing{Message: store.Message{ID: "gone"}, Due: store.Due{Delay: 2 * time.Hour}},
			store.Outgoing{Message: store.Message{ID: "ready"}}, store.Outgoing{Message: store.Message{ID: "back"}})
		for _, m := range msgs {
			if _, err := other.send(ctx, []store.Outgoing{m}); err != nil {
				return err
			}
		}
		if _, err := x.s.Cancel(ctx, other.queue, store.CancelRequest{IDs: []string{"ready"}}); err != nil {
			return err
		}
		c, err := x.s.Claim(ctx, other.queue, store.ClaimRequest{Max: 5, Lease: time.Minute})
		if err != nil {
			return err
		}
		for i, m := range c.Messages { // one of them holds its key, another one halts it
			action := []store.Action{store.Nack, store.Bury}[i%2]
			if _, err := x.s.Settle(ctx, other.queue, settlements([]store.Receipt{m.Receipt}, action)); err != nil {
				return err
			}
		}
		if _, err := other.send(ctx, msgs[2:3]); err != nil {
			return err
		}
		d, err := x.s.Depart(ctx, other.queue, store.Departure{To: x.queue,
			IDs: []string{"new", "gone", "ready", "back"}, Once: []string{msgs[0].Once.Key},
			Keys: []string{"rests", "other", "ready", "none"}})
		if err != nil {
			return err
		}
		return x.s.Arrive(ctx, d.Parcel)
	}},
	{"outbox", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Outbox(ctx, x.queue)
		return err
	}},
	{"expect", func(ctx context.Context, x *populatedQueue) error {
		_, err := x.s.Expect(ctx, x.queue, store.Expected{From: x.queue + "-other",
			Keys: []string{"rests", "ready", "none"}, Last: time.Now().Add(time.Hour).UnixMicro()})
		return err
	}},
	{"expect nothing", func(ctx context.Context, x *populatedQueue) error {
		marked := store.Expected{Keys: []string{"ready", "none"}}
		_, err := x.s.Expect(ctx, x.queue, marked)
		if err == nil {
			_, err = x.s.Expect(ctx, x.queue, store.Expected{None: true})
		}
		return err
	}},
	{"empty", func(ctx context.Context, x *populatedQueue) error { return x.s.Empty(ctx, x.queue, 1) }},
	{"set a flow", func(ctx context.Context, x *populatedQueue) error {
		return x.s.SetFlow(ctx, x.queue, store.Flow{Concurrency: 9, Rate: store.Rate{N: 3, Per: time.Second}}, nil)
	}},
	{"set limits of keys", func(ctx context.Context, x *populatedQueue) error {
		return x.s.SetFlow(ctx, x.queue, store.Flow{Key: store.KeyFlow{Concurrency: 9}}, nil)
	}},
	{"set limits of a key", func(ctx context.Context, x *populatedQueue) error {
		one := 1
		err := x.s.SetKeyFlow(ctx, x.queue, "rests", store.KeyOverride{Concurrency: &one})
		if errors.Is(err, store.ErrInvalid) { // the queue is not Fair
			return nil
		}
		return err
	}},
	{"remove a flow", func(ctx context.Context, x *populatedQueue) error {
		return x.s.SetFlow(ctx, x.queue, store.Flow{}, nil)
	}},
	{"pause", func(ctx context.Context, x *populatedQueue) error { return x.s.SetPaused(ctx, x.queue, true) }},
	{"resume", func(ctx context.Context, x *populatedQueue) error { return x.s.SetPaused(ctx, x.queue, false) }},
}

// departs takes out messages in every state, an id in its dedup window, and a send with a key.
func departs(ctx context.Context, x *populatedQueue) error {
	_, err := x.s.Depart(ctx, x.queue, store.Departure{To: x.queue + "-other",
		IDs:  []string{"ready", "scheduled", "late", "dead", "held1", "followed", "gone", "done", "none", "expired"},
		Once: []string{store.NewOnce([]byte("once"), nil).Key, store.NewOnce([]byte("older"), nil).Key},
		Keys: []string{"rests", "other", "none", "ready", "held1"}})
	return err
}

// collapsing returns messages that replace live ones; every other one leaves its group.
func collapsing(due store.Due, ids ...string) (msgs []store.Outgoing) {
	for i, id := range ids {
		m := store.Outgoing{Message: store.Message{ID: id}, Due: due}
		m.OnDuplicate.Mode = store.DuplicateReplace
		if i%2 == 0 {
			m.Group = "g"
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// onceEach gives each message its id as key, and the same request.
func onceEach(msgs []store.Outgoing) []store.Outgoing {
	for i := range msgs {
		msgs[i].Once = store.NewOnce([]byte(msgs[i].ID), nil)
	}
	return msgs
}

// following returns messages that follow leased ones, or replace others.
func following(due store.Due, ids ...string) []store.Outgoing {
	msgs := collapsing(due, ids...)
	for i := range msgs {
		msgs[i].OnDuplicate.Mode = store.DuplicateFollow
	}
	return msgs
}

// forwards returns a call that moves messages.
func forwards(kind store.TargetKind) func(ctx context.Context, x *populatedQueue) error {
	return func(ctx context.Context, x *populatedQueue) error {
		to := store.Target{Kind: kind, Name: x.queue + " forwarded"}
		_, err := x.s.Forward(ctx, x.queue, store.ForwardRequest{To: to, Max: 10})
		return err
	}
}

func settlements(held []store.Receipt, a store.Action) []store.Settlement {
	var s []store.Settlement
	for _, r := range held {
		s = append(s, store.Settlement{Receipt: r, Action: a, Reason: "boom", Grouped: r.ID == "held1"})
	}
	return s
}
