package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/latertest"
	"github.com/laterq/later/store"
)

func TestCommittedMessagesAreSentWithAllTheirFields(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		client := memory(t)
		at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
		payload := make([]byte, 256)
		for i := range payload {
			payload[i] = byte(i)
		}
		headers := map[string]string{"trace": "größe \x00 \"quoted\"", "leer": "", "a b": "<&>"}
		full := later.Outgoing{
			ID: "order 日本 1 ", Payload: payload, Headers: headers, When: later.At(at), MaxAttempts: 7, Timeout: time.Minute,
			ExpireAt: at.Add(time.Hour), DedupWindow: 48 * time.Hour, Group: "order-42", Key: "customer-7",
			Urgency: later.UrgencyHigh,
		}
		relative := later.Outgoing{ID: "relative", When: later.In(time.Hour), ExpireAfter: 3 * time.Second}
		if err := client.Queue("größe").SetFlow(bounded(t), later.Flow{Urgency: true}); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		ids := commit(t, box, db, "größe", full, relative)
		if want := []string{full.ID, relative.ID}; !slices.Equal(ids, want) {
			t.Errorf("ids are %q; want %q", ids, want)
		}
		after := time.Now()
		flush(t, box.Relay(db, client, RelayConfig{DedupWindow: time.Hour}))
		wantRows(t, box, db, 0)

		infos, err := client.Store().Get(bounded(t), "größe", ids)
		if err != nil || infos[0] == nil || infos[1] == nil {
			t.Fatalf("messages are %v, %v", infos, err)
		}
		infos[0].SentAt = time.Time{}
		want := store.Message{
			ID: full.ID, Payload: payload, Headers: headers, MaxAttempts: 7, Timeout: time.Minute,
			ExpireAt: full.ExpireAt, DedupWindow: 48 * time.Hour, Group: "order-42", Key: "customer-7",
			Urgency: later.UrgencyHigh,
		}
		if got := infos[0].Message; !got.ExpireAt.Equal(want.ExpireAt) {
			t.Errorf("expiry is %v; want %v", got.ExpireAt, want.ExpireAt)
		}
		infos[0].ExpireAt = want.ExpireAt
		if !reflect.DeepEqual(infos[0].Message, want) {
			t.Errorf("message is %+v; want %+v", infos[0].Message, want)
		}
		if !infos[0].Due.Equal(at) {
			t.Errorf("due at %v; want %v", infos[0].Due, at)
		}
		r := infos[1]
		if r.Due.Before(before.Add(time.Hour)) || r.Due.After(after.Add(time.Hour+time.Millisecond)) {
			t.Errorf("due at %v; want an hour after the send, from %v to %v", r.Due, before, after)
		}
		if r.ExpireAfter != 3*time.Second || r.DedupWindow != time.Hour || len(r.Payload) != 0 || len(r.Headers) != 0 {
			t.Errorf("message is %+v", r.Message)
		}
	})
}

func TestRolledBackMessagesAreNotSent(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		client := memory(t)
		failed := errors.New("order refused")
		err := transact(bounded(t), db, func(tx *sql.Tx) error {
			if _, err := box.Send(t.Context(), tx, "q", later.Outgoing{Payload: []byte("rolled back")}); err != nil {
				return err
			}
			return failed
		})
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
		commit(t, box, db, "q", later.Outgoing{Payload: []byte("committed")})
		r := box.Relay(db, client, RelayConfig{})
		flush(t, r)
		if got := receive(t, client.Queue("q"), 1); got[0] != "committed" {
			t.Errorf("received %q", got)
		}
		wantNone(t, client.Queue("q"))
		if s := r.Stats(); s != (RelayStats{Sent: 1}) {
			t.Errorf("stats are %+v", s)
		}
	})
}

// A relay cannot tell a collision of ids from a row that is moved again.
func TestIDOfAMessageWithAKeyIsTheKeyAndAnID(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		client := memory(t)
		ids := commit(t, box, db, "q", later.Outgoing{Key: "customer-7"}, later.Outgoing{Key: "customer-7"}, later.Outgoing{})
		for _, id := range ids[:2] {
			if rest, ok := strings.CutPrefix(id, "customer-7/"); !ok || len(rest) != len(store.NewID()) || ids[0] == ids[1] {
				t.Errorf("ids of one key are %q", ids)
			}
		}
		flush(t, box.Relay(db, client, RelayConfig{}))
		for i, key := range []string{"customer-7", "customer-7", ""} {
			if info, err := client.Queue("q").Get(bounded(t), ids[i]); err != nil || info.Key != key {
				t.Errorf("message %s is %+v, %v; want the key %q", ids[i], info, err, key)
			}
		}
	})
}

func TestSendWritesInWhatItIsGiven(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t, Table("Shop_Outbox"))
		conn, err := db.Conn(bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []Execer{db, conn} {
			if id, err := box.Send(bounded(t), e, "q", later.Outgoing{}); err != nil || len(id) != len(store.NewID()) {
				t.Errorf("Send in a %T returned %q, %v", e, id, err)
			}
		}
		conn.Close()
		wantRows(t, box, db, 2)
	})
}

func TestSendCallsMiddlewareWithItsContext(t *testing.T) {
	type traceKey struct{}
	refused := errors.New("no tenant")
	trace := func(ctx context.Context, o *later.Outgoing) error {
		if o.Queue == "refused" {
			return refused
		}
		o.Headers["trace"] = fmt.Sprint(ctx.Value(traceKey{}))
		return nil
	}
	second := func(_ context.Context, o *later.Outgoing) error {
		o.Headers["second"], o.When = o.Headers["trace"], later.In(time.Hour)
		return nil
	}
	box, db := kinds[2].newBox(t, WithSendMiddleware(trace), WithSendMiddleware(second))
	client := memory(t)
	ctx := context.WithValue(t.Context(), traceKey{}, "4bf9")
	given := map[string]string{"of": "sender"}
	ids, err := box.SendBatch(ctx, db, "q", []later.Outgoing{{Headers: given}, {}})
	if err != nil {
		t.Fatal(err)
	}
	if len(given) != 1 {
		t.Errorf("the caller's headers are now %v", given)
	}
	if _, err := box.SendBatch(ctx, db, "refused", []later.Outgoing{{}, {}}); !errors.Is(err, refused) {
		t.Errorf("refused by middleware: %v", err)
	}
	wantRows(t, box, db, 2)
	flush(t, box.Relay(db, client, RelayConfig{}))
	for i, want := range []map[string]string{
		{"of": "sender", "trace": "4bf9", "second": "4bf9"}, {"trace": "4bf9", "second": "4bf9"},
	} {
		info, err := client.Queue("q").Get(t.Context(), ids[i])
		if err != nil || !maps.Equal(info.Headers, want) || info.State != later.StateScheduled {
			t.Errorf("message %d is %+v, %v; want scheduled with headers %v", i, info, err, want)
		}
	}
}

func TestSendChecksWhatMiddlewareChanged(t *testing.T) {
	box, db := kinds[2].newBox(t, WithSendMiddleware(func(_ context.Context, o *later.Outgoing) error {
		o.MaxAttempts = -1
		return nil
	}))
	_, err := box.Send(t.Context(), db, "q", later.Outgoing{})
	wantError(t, "middleware", err, later.ErrInvalid, "max attempts")
	wantRows(t, box, db, 0)
}

func TestClockDecidesWhenADelayBegins(t *testing.T) {
	lt := latertest.New(t)
	box, db := kinds[2].newBox(t, Clock(lt.Now))
	relay := box.Relay(db, lt.Client(), RelayConfig{})
	lt.Handle("q", func(context.Context, *later.Message) error { return nil })
	lt.Advance(24 * time.Hour) // ahead of the machine's clock
	send := func(opts later.Outgoing) error {
		_, err := box.Send(t.Context(), db, "q", opts)
		return err
	}
	if err := send(later.Outgoing{When: later.In(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	early := later.Outgoing{When: later.In(time.Hour), ExpireAt: lt.Now().Add(time.Minute)}
	wantError(t, "expiry before due", send(early), later.ErrInvalid, "expiry", "due")
	flush(t, relay)
	latertest.RequireScheduled(t, lt.Client().Queue("q"), latertest.In(time.Hour))
	if got := lt.Advance(time.Hour - time.Millisecond); len(got) != 0 {
		t.Errorf("handled early: %v", got)
	}
	if got := lt.Advance(time.Millisecond); len(got) != 1 {
		t.Errorf("%d messages were handled after an hour", len(got))
	}
}

func TestRowsAreSentInOrder(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		client := memory(t)
		const n = 1234 // several statements and rounds
		at := later.At(time.Now().Add(-time.Minute))
		msgs, want := numbered(n), []string{}
		for i := range msgs {
			msgs[i].ID, msgs[i].When = fmt.Sprintf("%09d", n-i), at // ids in the other order, all due at the same time
			want = append(want, msgs[i].ID)
		}
		commit(t, box, db, "q", msgs...)
		sent := &recorder{Store: client.Store()}
		r := box.Relay(db, newClient(t, sent), RelayConfig{})
		flush(t, r)
		if !slices.Equal(sent.ids, want) {
			t.Errorf("%d messages were sent in another order than written", len(sent.ids))
		}
		if s := r.Stats(); s.Sent != n {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestLargeMessagesAreSentInSmallRounds(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		box, db := k.newBox(t)
		client := memory(t)
		large := bytes.Repeat([]byte("0"), store.MaxPayload)
		msgs := numbered(30)
		for i := range 10 {
			msgs[i+10].Payload = large
		}
		commit(t, box, db, "q", msgs...)
		r := box.Relay(db, client, RelayConfig{})
		rounds := 0
		r.hook = func(point string) {
			if point == atCommitted {
				rounds++
			}
		}
		flush(t, r)
		if rounds < 3 || rounds > 6 {
			t.Errorf("10 MiB were sent in %d rounds; want about 3", rounds)
		}
		if got := receive(t, client.Queue("q"), 30); slices.Max(got) != "9" {
			t.Errorf("payloads differ")
		}
	})
}

func TestSendRefusesWhatTheStoreWouldRefuse(t *testing.T) {
	box, db := kinds[2].newBox(t)
	for _, c := range []struct {
		name, queue string
		msg         later.Outgoing
		kind        error
		words       []string
	}{
		{"queue name", "a{b}", later.Outgoing{}, later.ErrInvalid, []string{"queue name", "brace"}},
		{"no queue name", "", later.Outgoing{}, later.ErrInvalid, []string{"queue name", "empty"}},
		{"payload", "q", later.Outgoing{Payload: make([]byte, store.MaxPayload+1)}, later.ErrTooLarge, []string{"payload"}},
		{"id", "q", later.Outgoing{ID: "a\nb"}, later.ErrInvalid, []string{"id", "control"}},
		{"attempts", "q", later.Outgoing{MaxAttempts: -1}, later.ErrInvalid, []string{"max attempts"}},
		{"zero time", "q", later.Outgoing{When: later.At(time.Time{})}, later.ErrInvalid, []string{"due time", "zero"}},
		{"expiry before due", "q", later.Outgoing{When: later.In(time.Hour), ExpireAt: time.Now().Add(time.Minute)},
			later.ErrInvalid, []string{"expiry", "due"}},
		{"mode for duplicates", "q", later.Outgoing{ID: "a", OnDuplicate: later.Replace()}, later.ErrInvalid,
			[]string{"mode for duplicates", "outbox", "replace"}},
		{"durability", "q", later.Outgoing{Durability: later.Durable(1, time.Second)}, later.ErrInvalid,
			[]string{"durability", "relay"}},
	} {
		_, err := box.Send(t.Context(), db, c.queue, c.msg)
		wantError(t, c.name, err, c.kind, c.words...)
		_, err = box.SendBatch(t.Context(), db, c.queue, []later.Outgoing{{}, c.msg})
		wantError(t, c.name+" in a batch", err, c.kind, c.words...)
	}
	if ids, err := box.SendBatch(t.Context(), db, "q", nil); len(ids) != 0 || err != nil {
		t.Errorf("an empty batch returns %v, %v", ids, err)
	}
	wantRows(t, box, db, 0)
	if err := transact(t.Context(), db, func(*sql.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	_, err := New(SQLite, Table("missing")).Send(t.Context(), db, "q", later.Outgoing{})
	if err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("without a table: %v", err)
	}
}

func TestConfigurationErrorsAreReturned(t *testing.T) {
	db, client := kinds[2].open(t, kinds[2].newDSN(t)), memory(t)
	for _, c := range []struct {
		name  string
		box   *Outbox
		words []string
	}{
		{"no dialect", New(0), []string{"dialect", "PostgreSQL"}},
		{"unknown dialect", New(9), []string{"Dialect(9)"}},
		{"nil option", New(SQLite, nil), []string{"option 0"}},
		{"nil clock", New(SQLite, Clock(nil)), []string{"clock is nil"}},
		{"nil middleware", New(SQLite, WithSendMiddleware(nil)), []string{"send middleware 0"}},
		{"no table", New(SQLite, Table("")), []string{"table name"}},
		{"table with a quote", New(SQLite, Table(`a"b`)), []string{"table name"}},
		{"long table", New(SQLite, Table(strings.Repeat("x", 49))), []string{"table name", "48"}},
	} {
		_, sendErr := c.box.Send(t.Context(), db, "q", later.Outgoing{})
		_, schemaErr := c.box.Schema()
		relay := c.box.Relay(db, client, RelayConfig{})
		for _, err := range []error{
			sendErr, schemaErr, c.box.Migrate(t.Context(), db), relay.Run(t.Context()), relay.Flush(t.Context()),
		} {
			wantError(t, c.name, err, later.ErrInvalid, c.words...)
		}
	}
	box := New(SQLite)
	for _, c := range []struct {
		relay *Relay
		words []string
	}{
		{box.Relay(nil, client, RelayConfig{}), []string{"db is nil"}},
		{box.Relay(db, nil, RelayConfig{}), []string{"client is nil"}},
		{box.Relay(db, client, RelayConfig{Batch: 501}), []string{"Batch", "500"}},
		{box.Relay(db, client, RelayConfig{Batch: -1}), []string{"Batch", "500"}},
		{box.Relay(db, client, RelayConfig{Poll: -1}), []string{"Poll", "1ms"}},
		{box.Relay(db, client, RelayConfig{DedupWindow: -1}), []string{"DedupWindow"}},
		{box.Relay(db, client, RelayConfig{DedupWindow: store.MaxDelay + 1}), []string{"DedupWindow"}},
	} {
		wantError(t, strings.Join(c.words, " "), c.relay.Run(t.Context()), later.ErrInvalid, c.words...)
	}
}

func wantError(t *testing.T, name string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s: error is %v; want %v", name, err, kind)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error %q does not mention %q", name, err, word)
		}
	}
}
