package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// forward moves up to max messages and checks how many were moved.
func forward(t *testing.T, s *Store, queue string, to store.Target, max, want int) store.Forwarded {
	t.Helper()
	f, err := s.Forward(t.Context(), queue, store.ForwardRequest{To: to, Max: max, IDs: true})
	if err != nil {
		t.Fatal(err)
	}
	if f.Count != want || len(f.IDs) != want {
		t.Fatalf("%d messages were moved, %q, want %d", f.Count, f.IDs, want)
	}
	return f
}

// A call on two queues says which of them has another format, and changes neither.
func TestQueueOfAnotherFormatIsNamed(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ack := func(from string, then ...string) error {
		send(t, s, from, "m", store.Due{})
		st := store.Settlement{Receipt: claim(t, s, from, 1, time.Minute).Messages[0].Receipt, Action: store.Ack}
		for _, queue := range then {
			st.Then = append(st.Then,
				store.FollowUp{Queue: queue, Message: store.Outgoing{Message: store.Message{ID: "f"}}})
		}
		_, err := s.Settle(t.Context(), from, []store.Settlement{st})
		return err
	}
	move := func(from, to string) error {
		send(t, s, from, "m", store.Due{})
		_, err := s.Forward(t.Context(), from, store.ForwardRequest{
			To: store.Target{Kind: store.TargetQueue, Name: to}, Max: 1})
		return err
	}
	for _, known := range []bool{false, true} { // whether this process has used the queue
		newer := fmt.Sprint("named-newer-", known)
		if known {
			send(t, s, newer, "m", store.Due{})
		}
		setFormat(t, rdb, newer, 99)
		for name, err := range map[string]error{
			"ack":                   ack("named-ack", newer),
			"ack, the second queue": ack("named-ack2", "named-other", newer),
			"forward":               move("named-forward", newer),
		} {
			named := fmt.Sprintf("queue %q has format 99", newer)
			if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), named) {
				t.Errorf("%s: %v; want an error that names queue %q", name, err, newer)
			}
		}
		setFormat(t, rdb, "named-forward", 98)
		_, err := s.Forward(t.Context(), "named-forward", store.ForwardRequest{
			To: store.Target{Kind: store.TargetQueue, Name: newer}, Max: 1})
		if err == nil || !strings.Contains(err.Error(), `queue "named-forward" has`) {
			t.Errorf("forward of a queue of another format: %v", err)
		}
		for _, queue := range []string{"named-ack", "named-ack2", "named-other", "named-forward", newer} {
			setFormat(t, rdb, queue, layoutFormat)
			if err := s.Delete(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sendAll sends messages of all kinds that are due one after the other, and returns their payloads and entries in a
// stream.
func sendAll(t *testing.T, s *Store, queue string) (payloads []string, entries []map[string]any) {
	t.Helper()
	at := time.UnixMilli(1_790_000_000_000)
	binary := string([]byte{0, 0xff, '\n', '\r', 128})
	for i, m := range []store.Message{
		{ID: store.NewID(), Payload: []byte("plain")},
		{ID: "chosen", Payload: []byte(binary), SentAt: at},
		{ID: "empty"},
		{ID: "everything", Payload: []byte("x" + binary), SentAt: at, MaxAttempts: 300, ExpireAt: at.AddDate(50, 0, 0),
			Timeout: time.Hour, DedupWindow: time.Hour,
			Headers: map[string]string{"empty": "", "k": strings.Repeat("v", 300),
				"binary": "\x00\x01"}, Group: "g", Key: "k"},
		{ID: "key", Payload: []byte("k"), Key: "k"},
		{ID: "key and header", Payload: []byte("k"), Key: "k", Headers: map[string]string{"a": "b"}},
		{ID: "long", Payload: []byte(strings.Repeat("long", 10_000)), Headers: map[string]string{"a": "b"}},
		{ID: "relative", Payload: []byte("r"), ExpireAfter: 50 * 365 * 24 * time.Hour},
		{ID: "urgent", Payload: []byte("u"), Urgency: store.UrgencyHigh, Headers: map[string]string{"a": "b"}},
		{ID: "low", Payload: []byte("l"), Key: "k", Urgency: store.UrgencyLow, Group: "g"},
	} {
		due := at.Add(time.Duration(i) * time.Millisecond)
		if m.Urgency != store.UrgencyNormal { // a Send refuses it
			in := store.Info{Message: m, Due: due, State: store.StateReady}
			if _, err := s.Restore(t.Context(), queue, []store.Info{in}); err != nil {
				t.Fatal(err)
			}
		} else if _, err := s.Send(t.Context(), queue, []store.Outgoing{{Message: m, Due: store.Due{At: due}}}); err != nil {
			t.Fatal(err)
		}
		payloads = append(payloads, string(m.Payload))
		entry := map[string]any{"id": m.ID, "payload": string(m.Payload), "due": fmt.Sprint(due.UnixMilli())}
		for name, value := range m.Headers {
			entry["header:"+name] = value
		}
		entries = append(entries, entry)
	}
	return payloads, entries
}

func TestForwardToListIsInOrder(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	for _, front := range []bool{false, true} {
		key := fmt.Sprint("list ", front)
		want, _ := sendAll(t, s, key)
		to := store.Target{Kind: store.TargetList, Name: key, Front: front}
		f := forward(t, s, key, to, 2, 2)
		if !f.More {
			t.Error("more is false")
		}
		forward(t, s, key, to, 100, len(want)-2)
		if front {
			slices.Reverse(want)
		}
		if got := rdb.LRange(t.Context(), key, 0, -1).Val(); !slices.Equal(got, want) {
			t.Errorf("list is %q, want %q", got, want)
		}
		if st, err := s.Stats(t.Context(), key); err != nil || st.Ready+st.Scheduled+st.Leased+st.Dead != 0 {
			t.Errorf("queue has %+v, %v", st, err)
		}
	}
}

func TestForwardToStreamHasFields(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	_, want := sendAll(t, s, "q")
	forward(t, s, "q", store.Target{Kind: store.TargetStream, Name: "stream"}, 100, len(want))
	wantEntries(t, rdb, "stream", want)
}

func wantEntries(t *testing.T, rdb redis.UniversalClient, key string, want []map[string]any) {
	t.Helper()
	got := rdb.XRange(t.Context(), key, "-", "+").Val()
	if len(got) != len(want) {
		t.Fatalf("stream has %d entries, want %d", len(got), len(want))
	}
	for i := range got {
		if !maps.Equal(got[i].Values, want[i]) {
			t.Errorf("entry %d is %q, want %q", i, got[i].Values, want[i])
		}
	}
}

func TestForwardToStreamKeepsItsLength(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	for range 3 {
		msgs := make([]store.Outgoing, store.MaxBatch)
		for i := range msgs {
			msgs[i].ID = store.NewID()
		}
		if _, err := s.Send(t.Context(), "q", msgs); err != nil {
			t.Fatal(err)
		}
		to := store.Target{Kind: store.TargetStream, Name: "stream", MaxLen: 100}
		forward(t, s, "q", to, store.MaxBatch, store.MaxBatch)
	}
	if n := rdb.XLen(t.Context(), "stream").Val(); n < 100 || n > 300 {
		t.Errorf("stream has %d entries, want about 100", n)
	}
}

func TestForwardToChannelPublishes(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	listener := rdb.Subscribe(t.Context(), "news")
	defer listener.Close()
	if _, err := listener.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, _ := sendAll(t, s, "q")
	forward(t, s, "q", store.Target{Kind: store.TargetChannel, Name: "news"}, 100, len(want))
	for _, payload := range want {
		m, err := listener.ReceiveMessage(t.Context())
		if err != nil || m.Payload != payload {
			t.Fatalf("received %v, %v, want %q", m, err, payload)
		}
	}
}

// A packed message has a prefix in the messages hash, also after it was promoted.
func TestForwardOfPackedMessages(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newFrozenClock(t, rdb)
	for _, kind := range []store.TargetKind{store.TargetList, store.TargetStream, store.TargetQueue} {
		queue := string(kind) + "s"
		var msgs []store.Outgoing
		for i := range 50 {
			m := store.Message{ID: fmt.Sprintf("%03d", i), Payload: fmt.Append(nil, i)}
			if i%2 == 0 {
				m.Headers, m.MaxAttempts = map[string]string{"i": fmt.Sprint(i)}, 5
			}
			msgs = append(msgs, store.Outgoing{Message: m, Due: store.Due{Delay: 48 * time.Hour}})
		}
		if _, err := s.Send(t.Context(), queue, msgs); err != nil {
			t.Fatal(err)
		}
		to := store.Target{Kind: kind, Name: "to " + queue}
		forward(t, s, queue, to, 100, 0)
		advance(rdb)(t, queue, 48*time.Hour+time.Second)
		advance(rdb)(t, to.Name, 49*time.Hour)
		forward(t, s, queue, to, 100, 50)
		var got []string
		switch kind {
		case store.TargetList:
			got = rdb.LRange(t.Context(), to.Name, 0, -1).Val()
		case store.TargetStream:
			for _, entry := range rdb.XRange(t.Context(), to.Name, "-", "+").Val() {
				got = append(got, entry.Values["payload"].(string))
			}
		default:
			for _, m := range claim(t, s, to.Name, 100, time.Minute).Messages {
				got = append(got, string(m.Payload))
				if len(m.Headers) > 0 != (m.MaxAttempts == 5) {
					t.Errorf("message %+v", m)
				}
			}
		}
		for i, payload := range got {
			if payload != fmt.Sprint(i) {
				t.Errorf("%s: payload %d is %q", kind, i, payload)
			}
		}
		if len(got) != 50 {
			t.Errorf("%s has %d messages", kind, len(got))
		}
	}
}

// Bytes that no envelope has become a dead message, between others that are moved.
func TestForwardBuriesUnreadableMessages(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	values := []string{
		"", "\xff", "\x01", "\x10\x00\x00", "\x20\x00", "\x40", "\x40\x01\x05ab", "\x40\xff\xff\xff\xff\xff\xff",
		"\x40\x80\x80\x80\x80\x80\x80\x80\x80\x01", "\x40\x41",
	}
	for i, value := range values {
		id := fmt.Sprintf("%02d", i)
		send(t, s, "q", id, store.Due{})
		send(t, s, "q", id+" good", store.Due{})
		if err := rdb.HSet(t.Context(), "later:{q}:messages", id, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	f := forward(t, s, "q", store.Target{Kind: store.TargetList, Name: "list"}, 100, len(values))
	if len(f.Died) != len(values) || len(f.Expired) != 0 {
		t.Errorf("died %q, expired %q", f.Died, f.Expired)
	}
	infos, err := s.Get(t.Context(), "q", f.Died)
	if err != nil {
		t.Fatal(err)
	}
	for i, info := range infos {
		if info == nil || info.DeadReason != store.DeadUnreadable || string(info.Raw) != values[i] {
			t.Errorf("message %d is %+v", i, info)
		}
	}
	if n := rdb.LLen(t.Context(), "list").Val(); n != int64(len(values)) {
		t.Errorf("list has %d elements", n)
	}
}

// Entries of messages that another program deleted are removed.
func TestForwardSkipsMissingMessages(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	send(t, s, "q", "gone", store.Due{})
	send(t, s, "q", "here", store.Due{})
	if err := rdb.HDel(t.Context(), "later:{q}:messages", "gone").Err(); err != nil {
		t.Fatal(err)
	}
	forward(t, s, "q", store.Target{Kind: store.TargetList, Name: "list"}, 100, 1)
	if n := rdb.ZCard(t.Context(), "later:{q}:due").Val(); n != 0 {
		t.Errorf("%d messages are due", n)
	}
}

func TestForwardToKeyOfWrongTypeMovesNothing(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	for _, kind := range []store.TargetKind{store.TargetList, store.TargetStream} {
		queue, key := string(kind), "key of "+string(kind)
		send(t, s, queue, "m", store.Due{})
		if err := rdb.Set(t.Context(), key, "text", 0).Err(); err != nil {
			t.Fatal(err)
		}
		to := store.Target{Kind: kind, Name: key}
		_, err := s.Forward(t.Context(), queue, store.ForwardRequest{To: to, Max: 10})
		if want := fmt.Sprintf("key %q is a string, not a %s", key, kind); store.CodeOf(
			err) != store.ErrUnavailable.Code ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
		c := claim(t, s, queue, 10, time.Minute)
		err = s.Deliver(t.Context(), to, c.Messages)
		if store.CodeOf(err) != store.ErrUnavailable.Code || !strings.Contains(err.Error(), "not a "+string(kind)) {
			t.Errorf("deliver: error is %v", err)
		}
		if len(c.Messages) != 1 {
			t.Errorf("%s: %d messages are left in the queue", kind, len(c.Messages))
		}
	}
}

// The other queue's keys are read before the first write.
func TestForwardToBrokenQueueMovesNothing(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for _, name := range keyNames {
		x := newPopulatedQueue(t, rdb, "to-broken-"+name)
		to := store.Target{Kind: store.TargetQueue, Name: "broken-" + name}
		send(t, x.s, to.Name, "m", store.Due{})
		if err := rdb.Set(t.Context(), "later:{"+to.Name+"}:"+name, "wrong", 0).Err(); err != nil {
			t.Fatal(err)
		}
		before, was := dump(t, rdb, x.queue), dump(t, rdb, to.Name)
		_, err := x.s.Forward(t.Context(), x.queue, store.ForwardRequest{To: to, Max: 10})
		if err == nil {
			continue // it does not use the key
		}
		if store.CodeOf(err) != store.ErrCorrupt.Code {
			t.Errorf("%s: error is %v, want ErrCorrupt", name, err)
		}
		if !maps.Equal(before, dump(t, rdb, x.queue)) || !maps.Equal(was, dump(t, rdb, to.Name)) {
			t.Errorf("%s of a wrong type: the script failed (%v), but changed something", name, err)
		}
	}
}

// A move needs no memory, so a queue that has filled its server can be emptied.
func TestForwardWorksOnFullServer(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	kinds := []store.TargetKind{store.TargetList, store.TargetStream, store.TargetChannel, store.TargetQueue}
	for _, kind := range kinds {
		send(t, s, "from-"+string(kind), "m", store.Due{})
		send(t, s, "to-"+string(kind), "m2", store.Due{})
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		forward(t, s, "from-"+string(kind), store.Target{Kind: kind, Name: "to-" + string(kind)}, 10, 1)
	}
}

// The reply to a forward is lost: it is repeated, and each message is moved once.
func TestRepeatedForwardMovesEachMessageOnce(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	for i := range 11 {
		send(t, s, "q", fmt.Sprint(i), store.Due{})
	}
	to := store.Target{Kind: store.TargetQueue, Name: "to"}
	forward(t, s, "q", to, 1, 1) // the server knows the script
	other := afterLostReply(t, rdb, func() {})
	other.registered.Store("to", true)
	if _, err := other.Forward(t.Context(), "q", store.ForwardRequest{To: to, Max: 4}); err != nil {
		t.Fatal(err)
	}
	forward(t, s, "q", to, 10, 2)
	if c := claim(t, s, "to", 100, time.Minute); len(c.Messages) != 11 {
		t.Errorf("%d messages were moved, want 11", len(c.Messages))
	}
}

func TestForwardInCluster(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	rdb := cluster.Client(t)
	s := newStore(t, rdb)
	queue := "forwarded"
	for _, to := range []store.Target{
		{Kind: store.TargetList, Name: "{forwarded}:list"}, {Kind: store.TargetStream, Name: "{forwarded}:stream"},
		{Kind: store.TargetChannel, Name: "{forwarded}:channel"},
	} {
		if direct, err := s.ForwardsTo(queue, to); !direct || err != nil {
			t.Errorf("%v: %t, %v", to, direct, err)
		}
		send(t, s, queue, "m", store.Due{})
		if to.Kind != store.TargetChannel {
			forward(t, s, queue, to, 10, 1)
			continue
		}
		listener := rdb.SSubscribe(t.Context(), to.Name)
		defer listener.Close()
		if _, err := listener.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		forward(t, s, queue, to, 10, 1)
		if _, err := listener.ReceiveMessage(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, to := range []store.Target{
		{Kind: store.TargetList, Name: "elsewhere"}, {Kind: store.TargetChannel, Name: "{else}where"},
		{Kind: store.TargetStream, Name: "{}forwarded"}, {Kind: store.TargetQueue, Name: "elsewhere"},
	} {
		if direct, err := s.ForwardsTo(queue, to); direct || err != nil {
			t.Errorf("%v: %t, %v", to, direct, err)
		}
		_, err := s.Forward(t.Context(), queue, store.ForwardRequest{To: to, Max: 1})
		if store.CodeOf(err) != store.ErrInvalid.Code || !strings.Contains(err.Error(), "slots") {
			t.Errorf("%v: %v", to, err)
		}
	}
}

func TestDeliverWritesAsForwardDoes(t *testing.T) {
	cluster, single := redistest.SharedCluster(t).Client(t), redistest.Start(t).Client(t)
	for name, rdb := range map[string]redis.UniversalClient{"standalone": single, "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, rdb)
			payloads, entries := sendAll(t, s, "delivered")
			c := claim(t, s, "delivered", 100, time.Minute)
			for _, front := range []bool{false, true} {
				to := store.Target{Kind: store.TargetList, Name: fmt.Sprint("delivered ", front), Front: front}
				if err := s.Deliver(t.Context(), to, c.Messages); err != nil {
					t.Fatal(err)
				}
				want := slices.Clone(payloads)
				if front {
					slices.Reverse(want)
				}
				if got := rdb.LRange(t.Context(), to.Name, 0, -1).Val(); !slices.Equal(got, want) {
					t.Errorf("list is %q, want %q", got, want)
				}
			}
			to := store.Target{Kind: store.TargetStream, Name: "delivered stream", MaxLen: 1000}
			if err := s.Deliver(t.Context(), to, c.Messages); err != nil {
				t.Fatal(err)
			}
			wantEntries(t, rdb, to.Name, entries)
			listener := rdb.Subscribe(t.Context(), "delivered channel")
			if name == "cluster" {
				listener = rdb.SSubscribe(t.Context(), "delivered channel")
			}
			defer listener.Close()
			if _, err := listener.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			to = store.Target{Kind: store.TargetChannel, Name: "delivered channel"}
			if err := s.Deliver(t.Context(), to, c.Messages); err != nil {
				t.Fatal(err)
			}
			for _, want := range payloads {
				if m, err := listener.ReceiveMessage(t.Context()); err != nil || m.Payload != want {
					t.Errorf("received %v, %v, want %q", m, err, want)
				}
			}
		})
	}
}

func TestForwardsToRefusesOwnKeys(t *testing.T) {
	s := newStore(t, redistest.Shared(t).Client(t))
	for _, to := range []store.Target{
		{Kind: store.TargetList, Name: "later:{q}:dead"}, {Kind: store.TargetStream, Name: "later:queues"},
	} {
		if _, err := s.ForwardsTo("q", to); store.CodeOf(err) != store.ErrInvalid.Code {
			t.Errorf("%v: %v", to, err)
		}
		if err := s.Deliver(context.Background(), to, nil); store.CodeOf(err) != store.ErrInvalid.Code {
			t.Errorf("%v: %v", to, err)
		}
	}
}

// A message that is moved starts its dedup window and leaves its group, at every kind of destination.
func TestForwardStartsDedupWindowAndLeavesGroup(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	for _, kind := range []store.TargetKind{store.TargetList, store.TargetStream, store.TargetChannel,
		store.TargetQueue} {
		queue := "forward-leaves-" + string(kind)
		m := store.Outgoing{Message: store.Message{ID: "m", DedupWindow: time.Hour, Group: "g"}}
		plain := store.Outgoing{Message: store.Message{ID: "plain"}}
		if _, err := s.Send(t.Context(), queue, []store.Outgoing{m, plain}); err != nil {
			t.Fatal(err)
		}
		forward(t, s, queue, store.Target{Kind: kind, Name: queue + "-to"}, 10, 2)
		results, err := s.Send(t.Context(), queue, []store.Outgoing{m, plain})
		if err != nil || !results[0].Duplicate || results[1].Duplicate {
			t.Errorf("%s: results of a resend are %+v, %v", kind, results, err)
		}
		if n := rdb.ZCard(t.Context(), s.keys.key(queue, "groups")).Val(); n != 0 {
			t.Errorf("%s: %d messages are left in groups", kind, n)
		}
	}
}

// A dead message that the retention drops leaves its group.
func TestDroppedMessageLeavesGroup(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	const queue = "dropped-group"
	infos := make([]store.Info, 2)
	for i := range infos {
		infos[i] = store.Info{Message: store.Message{ID: fmt.Sprint(i), Group: "g"}, State: store.StateDead,
			DeadReason: store.DeadBuried, DiedAt: time.UnixMilli(int64(i + 1))}
	}
	if _, err := s.Restore(t.Context(), queue, infos); err != nil {
		t.Fatal(err)
	}
	if err := s.SetDeadRetention(t.Context(), queue, store.Retention{MaxCount: 1}, nil); err != nil {
		t.Fatal(err)
	}
	claim(t, s, queue, 1, time.Minute)
	if left := rdb.ZRange(t.Context(), s.keys.key(queue, "groups"), 0, -1).Val(); !slices.Equal(left, []string{"1"}) {
		t.Errorf("group has %q, want the message that is left", left)
	}
}

// When ids are listed without their messages, ids of another group with the same number are left out.
func TestIDsOfGroupAreComparedByName(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	const queue = "group-names"
	for id, group := range map[string]string{"a": "g", "b": "other", "c": "g"} {
		m := store.Outgoing{Message: store.Message{ID: id, Group: group, Headers: map[string]string{"k": "v"}},
			Due: store.Due{Delay: 48 * time.Hour}}
		if _, err := s.Send(t.Context(), queue, []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	groups := s.keys.key(queue, "groups")
	score := rdb.ZScore(t.Context(), groups, "a").Val()
	if err := rdb.ZAdd(t.Context(), groups, redis.Z{Score: score, Member: "b"}).Err(); err != nil {
		t.Fatal(err)
	}
	page, err := s.List(t.Context(), queue, store.ListRequest{Group: "g", IDsOnly: true, Limit: 10})
	if err != nil || len(page.Messages) != 2 || page.Messages[0].ID != "a" || page.Messages[1].ID != "c" {
		t.Errorf("page is %+v, %v; want a and c", page, err)
	}
}
