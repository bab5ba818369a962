package redisstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// moved fails unless an error says that a queue has moved from a name that has a sign.
func moved(t *testing.T, what string, err error, name, sign string) {
	t.Helper()
	if m, ok := errors.AsType[*store.Moved](err); !ok || m.Name != name || m.Sign != sign {
		t.Errorf("%s: error is %v, want that %q has moved, with the sign %q", what, err, name, sign)
	}
}

// subQueue creates a sub-queue that no other test uses.
func subQueue(t *testing.T, s *Store, queue, generation, salt string) string {
	t.Helper()
	name := store.SubQueue(queue, generation, salt)
	if err := s.Create(t.Context(), name, store.Settings{}); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestKeysOfSubQueues(t *testing.T) {
	keys, owner := keyTable{prefix: "p:"}, map[string]string{}
	for name, want := range map[string]string{
		"q": "p:{q}:due", "q{g1}": "p:{q}:g1:due", "q{g2}": "p:{q}:g2:due", "q{g1}a": "p:{q{a}:g1:due",
		"q~a": "p:{q~a}:due", "q~a{g1}": "p:{q~a}:g1:due", "q:g1": "p:{q:g1}:due",
	} {
		key := keys.key(name, "due")
		if key != want || owner[key] != "" {
			t.Errorf("the key of %q is %s, want %s, which %q has", name, key, want, owner[key])
		}
		owner[key] = name
		if queue, part, ok := keys.queueOf(key); queue != name || part != "due" || !ok {
			t.Errorf("the key %s is %s of %q, %v", key, part, queue, ok)
		}
	}
	for _, key := range []string{"p:queues", "q", "p:{q"} {
		if queue, part, ok := keys.queueOf(key); ok {
			t.Errorf("the key %s is %s of %q", key, part, queue)
		}
	}
	if tag := hashTag(keys.key("q{g1}a", "due")); tag != "q{a" {
		t.Errorf("the hash tag is %q", tag)
	}
}

// The scripts of sub-queues are those of other queues with a check that there is one.
func TestScriptsOfSubQueuesOnlyAddACheck(t *testing.T) {
	check := regexp.MustCompile(
		`(?m)^-- No call creates a sub-queue.*\nif redis.pcall\('HEXISTS', META, 'format'\) == 0 .*\n`)
	for name, plain := range production() {
		if keysOfCommon(name) != "" {
			continue
		}
		pairs := [][2]*script{{plain, plain.sub()}}
		if plain.flow != nil {
			pairs = append(pairs, [2]*script{plain.flow(), plain.sub().flow()})
		}
		for _, pair := range pairs {
			checks := len(check.FindAllString(pair[1].body, -1))
			text, err := luaFiles.ReadFile("lua/" + name + ".lua")
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Count(string(text), includeMark+"keys\n") // the others declare their keys
			if check.ReplaceAllString(pair[1].body, "") != pair[0].body || checks != want {
				t.Errorf("%s.lua has %d checks, want %d, or differs otherwise", name, checks, want)
			}
		}
	}
}

// A send that runs while the queue is renamed is in the queue, wherever it is then, or says that the queue has moved.
func TestSendsDuringARenameAreInOnePlace(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	for round := range 5 {
		queue := fmt.Sprint("renamed during sends ", round)
		to := store.SubQueue(queue, "g1", "")
		send(t, s, queue, "first", store.Due{})
		var senders sync.WaitGroup
		sent := make([][]string, 4)
		for i := range sent {
			senders.Go(func() {
				other := newStore(t, rdb)
				for n := 0; ; n++ {
					id := fmt.Sprint(i, "-", n)
					m := store.Outgoing{Message: store.Message{ID: id}, Due: store.Due{Delay: time.Duration(n%2) * 2 * time.Hour}}
					_, err := other.Send(ctx, queue, []store.Outgoing{m})
					if err != nil {
						moved(t, "send", err, queue, "sign")
						return
					}
					sent[i] = append(sent[i], id)
				}
			})
		}
		for len(idsOf(t, s, queue)) < 30 { // some are sent
		}
		if err := s.Rename(ctx, queue, to, "sign", ""); err != nil {
			t.Fatal(err)
		}
		senders.Wait()
		want := slices.Sorted(slices.Values(append(slices.Concat(sent...), "first")))
		if got := idsOf(t, s, to); !slices.Equal(got, want) {
			t.Errorf("%d messages are in the queue, want %d", len(got), len(want))
		}
		if keys := rdb.Keys(ctx, DefaultPrefix+"{"+queue+"}:*").Val(); slices.ContainsFunc(keys, func(key string) bool {
			return !strings.HasPrefix(key, DefaultPrefix+"{"+queue+"}:g1:") && !strings.HasSuffix(key, "}:meta") &&
				!strings.HasSuffix(key, "}:properties")
		}) {
			t.Errorf("the keys %q are left", keys)
		}
	}
}

// idsOf returns the ids that a scan of a queue finds, in order.
func idsOf(t *testing.T, s *Store, queue string) (all []string) {
	t.Helper()
	for cursor := ""; ; {
		part, err := s.Scan(t.Context(), queue, cursor)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, part.IDs...)
		if cursor = part.Next; cursor == "" {
			slices.Sort(all)
			return slices.Compact(all)
		}
	}
}

// All waiters of a process learn at once that their queue has moved.
func TestAllWaitersLearnThatTheirQueueHasMoved(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s, other, ctx := newStore(t, rdb), newStore(t, rdb), t.Context()
	queue := "moves from waiters"
	send(t, s, queue, "far", store.Due{Delay: time.Hour})
	for step, do := range []func() error{
		func() error { return other.Rename(ctx, queue, queue+"{g1}", "sign", "") },
		func() error { return other.Retire(ctx, queue+"{g1}", "sign") },
	} {
		name := []string{queue, queue + "{g1}"}[step]
		errs := make(chan error)
		for range 3 {
			go func() { errs <- s.Wait(ctx, name) }()
		}
		waiting(t, s, name, 3)
		began := time.Now()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			moved(t, "wait", <-errs, name, "sign")
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the waits end after %v", took)
		}
	}
	s.waker.mu.Lock()
	defer s.waker.mu.Unlock()
	if n := len(s.waker.queues); n > 0 {
		t.Errorf("the store remembers %d queues", n)
	}
}

// Attempts of calls that arrive after their queue was renamed, and after it got its name back, change nothing.
func TestAttemptsArrivingAfterARenameChangeNothing(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	queue, to := "renamed before attempts", "renamed before attempts{g1}"
	send(t, s, queue, "held", store.Due{})
	held := claim(t, s, queue, 1, time.Minute).Messages[0].Receipt
	send(t, s, queue, "waits", store.Due{Delay: time.Hour})
	late := map[string]*call{}
	c := s.newCall("ack", queue, 5)
	defer s.sessions.release(s.stampRequest(ctx, c))
	c.add(0)
	c.addLease([]store.Settlement{{Receipt: held, Action: store.Ack}}, []int{0})
	late["ack"] = c
	c = s.newCall("cancel", queue, 5)
	defer s.sessions.release(s.stampRequest(ctx, c))
	c.add(0, "waits")
	late["cancel"] = c
	d, session := s.departCall(queue, store.Departure{To: to, IDs: []string{"waits"}})
	defer s.sessions.release(session)
	late["depart"] = d

	if err := s.Rename(ctx, queue, to, "sign", ""); err != nil {
		t.Fatal(err)
	}
	before := dump(t, rdb, queue)
	for name, c := range late {
		if reply, err := s.do(ctx, c); err != nil || reply != any(int64(replyNewer)) {
			t.Errorf("late %s: %v, %v", name, reply, err)
		}
	}
	if after := dump(t, rdb, queue); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("late attempts have left %v in place of %v", after, before)
	}
	if err := s.Rename(ctx, to, queue, "back", "sign"); err != nil {
		t.Fatal(err)
	}
	// The rename arrives again. The other name has a sign by now, which it does not know.
	if reply, err := s.do(ctx, s.renameCall(queue, to, "sign", "")); err != nil || !isConflict(reply) {
		t.Errorf("late rename: %v, %v", reply, err)
	}
	moved(t, "stats", errOf(s.Stats(ctx, to)), to, "back")
	if st, err := s.Stats(ctx, queue); err != nil || st.Leased != 1 || st.Scheduled != 1 {
		t.Errorf("stats are %+v, %v", st, err)
	}
}

func errOf(_ any, err error) error { return err }

// Reports, and follow-ups and forwards from a sub-queue and to one, find what a name has.
func TestCallsOfSeveralQueuesKnowSubQueues(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	a, signed, missing := subQueue(t, s, "several", "g1", "a"), "several signed", "several{g1}missing"
	if err := s.Retire(ctx, signed, "sign"); err != nil {
		t.Fatal(err)
	}
	counts := map[store.EventKind]int64{"sent": 1}
	reports, err := s.Report(ctx, []store.Report{{Queue: a, Counts: counts}, {Queue: signed, Counts: counts},
		{Queue: missing, Counts: counts}})
	if err != nil || reports[0].Err != nil {
		t.Fatal(err, reports)
	}
	moved(t, "report", reports[1].Err, signed, "sign")
	moved(t, "report", reports[2].Err, missing, "")

	ack := func(from string, to ...string) error {
		send(t, s, from, "x", store.Due{})
		held := settlements([]store.Receipt{claim(t, s, from, 1, time.Minute).Messages[0].Receipt}, store.Ack)
		for _, queue := range to {
			held[0].Then = append(held[0].Then, store.FollowUp{Queue: queue,
				Message: store.Outgoing{Message: store.Message{ID: "next"}}})
		}
		_, err := s.Settle(ctx, from, held)
		if err != nil { // the message is still leased
			_, cancelErr := s.Cancel(ctx, from, store.CancelRequest{IDs: []string{"x"}})
			return errors.Join(err, cancelErr)
		}
		return nil
	}
	for _, from := range []string{a, "several from"} {
		moved(t, "ack", ack(from, "several new", signed), signed, "sign")
		moved(t, "ack", ack(from, "several new", missing, a), missing, "")
		to := store.Target{Kind: store.TargetQueue, Name: signed}
		moved(t, "forward", errOf(s.Forward(ctx, from, store.ForwardRequest{To: to, Max: 1})), signed, "sign")
	}
	for _, from := range []string{a, "several from"} { // their format is known by now, and a flow changes it
		if err := ack(from, "several new", "several other", store.SubQueue("several", "g1", "a")); err != nil {
			t.Error(err)
		}
		if err := s.SetFlow(ctx, from, wideFlow, nil); err != nil {
			t.Fatal(err)
		}
		moved(t, "ack", ack(from, "several new", missing), missing, "")
	}
	if ids := idsOf(t, s, "several other"); !slices.Equal(ids, []string{"next"}) {
		t.Errorf("the follow-ups are %v", ids)
	}
	if keys := rdb.Keys(ctx, s.keys.key(missing, "*")).Val(); len(keys) > 0 {
		t.Errorf("calls have written %v", keys)
	}
}

// A send whose reply was lost before a rename does not say that it has changed nothing, unless its request is known
// wherever the queue is.
func TestCallWithALostReplyDoesNotDenyIt(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	for i, ctx := range []context.Context{t.Context(),
		store.WithRequest(t.Context(), store.Request{Session: "s", Number: 1})} {
		queue := fmt.Sprint("lost reply ", i)
		to := queue + "{g1}"
		send(t, s, queue, "first", store.Due{})
		other := afterLostReply(t, rdb, func() {
			if err := s.Rename(t.Context(), queue, to, "sign", ""); err != nil {
				t.Error(err)
			}
		})
		other.registered.Store(queue, true)
		msgs := []store.Outgoing{{Message: store.Message{ID: "second"}}}
		_, err := other.Send(ctx, queue, msgs)
		if i == 1 {
			moved(t, "send", err, queue, "sign")
			if r, err := other.Send(ctx, to, msgs); err != nil || r[0].Duplicate {
				t.Errorf("the same send elsewhere: %v, %v", r, err)
			}
		} else if _, ok := errors.AsType[*store.Moved](err); ok || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("send: %v", err)
		}
		if all := idsOf(t, s, to); !slices.Equal(all, []string{"first", "second"}) {
			t.Errorf("the queue has %v", all)
		}
	}
}

// A sign of a sub-queue ends after a day, and one of a queue stays.
func TestSignsOfSubQueuesEnd(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s, ctx := newStore(t, rdb), t.Context()
	a := subQueue(t, s, "ending signs", "g1", "a")
	ttl := func(name string) time.Duration { return rdb.PTTL(ctx, s.keys.key(name, "meta")).Val() }
	for step, do := range []func() error{
		func() error { return s.Rename(ctx, a, "ending signs{g2}a", "s", "") },
		func() error { return s.SetSign(ctx, a, "t", "s") },
		func() error { return s.Retire(ctx, "ending signs{g2}a", "s") },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{a, "ending signs{g2}a"}[:1+step/2] {
			if left := ttl(name); left < signFor-time.Minute || left > signFor {
				t.Errorf("the sign of %s ends in %v", name, left)
			}
		}
	}
	if err := s.Retire(ctx, "ending signs", "s"); err != nil {
		t.Fatal(err)
	}
	if left := ttl("ending signs"); left != -1 {
		t.Errorf("the sign of the queue ends in %v", left)
	}
	if err := rdb.Del(ctx, s.keys.key(a, "meta")).Err(); err != nil { // it has ended
		t.Fatal(err)
	}
	moved(t, "send", errOf(s.Send(ctx, a, []store.Outgoing{{Message: store.Message{ID: "x"}}})), a, "")
	moved(t, "claim", errOf(s.Claim(ctx, a, store.ClaimRequest{Max: 1, Lease: time.Minute})), a, "")
	if keys := rdb.Keys(ctx, s.keys.key(a, "*")).Val(); len(keys) > 0 {
		t.Errorf("calls have written %v", keys)
	}
}

// A repeated SetSign knows that its first attempt has set the sign.
func TestRepeatedSetSignIsNoConflict(t *testing.T) {
	s, ctx := newStore(t, redistest.Shared(t).Client(t)), t.Context()
	if err := s.Retire(ctx, "resigned", "a"); err != nil {
		t.Fatal(err)
	}
	for _, signs := range [][2]string{{"a", "b"}, {"b", ""}} {
		c := s.signCall("resigned", signs[1], signs[0])
		c.repeated = len(c.args) - 1
		for _, want := range []any{int64(1), int64(1)} {
			if reply, err := s.do(ctx, c); err != nil || reply != want {
				t.Errorf("SetSign = %v, %v", reply, err)
			}
			c.args[c.repeated] = "1"
		}
	}
	if err := s.SetSign(ctx, "resigned", "b", "a"); !errors.Is(err, store.ErrConflict) {
		t.Errorf("SetSign = %v", err)
	}
}

// Each key of a wrong type: a rename and a retirement succeed, or change nothing.
func TestNoRenameFailsHalfway(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for i, name := range allKeyNames {
		for what, do := range map[string]func(ctx context.Context, s *Store, queue string) error{
			"rename": func(ctx context.Context, s *Store, queue string) error {
				return s.Rename(ctx, queue, queue+"{g1}", "s", "")
			},
			"retire": func(ctx context.Context, s *Store, queue string) error { return s.Retire(ctx, queue, "s") },
		} {
			x := populateQueue(t, rdb, fmt.Sprintf("halfway-%s-%d", what, i), store.Flow{})
			if err := rdb.Set(t.Context(), x.s.keys.key(x.queue, name), "wrong", 0).Err(); err != nil {
				t.Fatal(err)
			}
			before := dump(t, rdb, x.queue)
			err := do(t.Context(), x.s, x.queue)
			sign, signErr := x.s.Sign(t.Context(), x.queue)
			switch {
			case err == nil && (sign != "s" || signErr != nil):
				t.Errorf("%s with %s of a wrong type: sign %q, %v", what, name, sign, signErr)
			case err != nil && (store.CodeOf(err) != store.ErrCorrupt.Code ||
				fmt.Sprint(before) != fmt.Sprint(dump(t, rdb, x.queue))):
				t.Errorf("%s with %s of a wrong type failed halfway: %v", what, name, err)
			}
		}
	}
}
