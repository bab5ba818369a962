package later

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
)

func TestEditChangesAMessageInPlace(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	ctx := t.Context()
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	_, err := q.Send(ctx, []byte("old"), WithID("a"), At(due), Header("h", "1"), MaxAttempts(3), Group("g"))
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	err = q.Edit(ctx, "a", func(m *Outgoing) error {
		if calls++; calls == 1 { // somebody else changes it meanwhile
			if err := q.Edit(ctx, "a", func(m *Outgoing) error {
				m.Headers = map[string]string{"h": "2"}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		m.Payload = []byte("new")
		return nil
	})
	if err != nil || calls != 2 {
		t.Fatalf("%d calls: %v", calls, err)
	}
	info, err := q.Get(ctx, "a")
	if err != nil || string(info.Payload) != "new" || info.Headers["h"] != "2" || !info.Due.Equal(due) ||
		info.MaxAttempts != 3 || info.Group != "g" {
		t.Fatalf("%+v, %v", info, err)
	}
	if err := q.Edit(ctx, "a", func(m *Outgoing) error { m.When = In(0); return nil }); err != nil {
		t.Fatal(err)
	}
	if info, err = q.Get(ctx, "a"); err != nil || info.State != StateReady {
		t.Fatalf("%+v, %v", info, err)
	}
}

func TestEditRefusesWhatItCannotChange(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	ctx := t.Context()
	same := func(*Outgoing) error { return nil }
	if err := q.Edit(ctx, "none", same); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := q.Send(ctx, nil, WithID("a")); err != nil {
		t.Fatal(err)
	}
	if err := q.Edit(ctx, "a", func(m *Outgoing) error { m.ID = "b"; return nil }); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	stop := errors.New("stop")
	if err := q.Edit(ctx, "a", func(*Outgoing) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	got, err := q.Receive(ctx, 1, NoWait())
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if none, err := q.Receive(ctx, 1, NoWait()); err != nil || len(none) != 0 {
		t.Errorf("%v, %v; want no messages at once", none, err)
	}
	if err := q.Edit(ctx, "a", same); !errors.Is(err, ErrLeased) {
		t.Error(err)
	}
	if err := got[0].Bury(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := q.Edit(ctx, "a", same); !errors.Is(err, ErrDead) {
		t.Error(err)
	}
}

func TestSendMessageReturnsTheOutcome(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	ctx := t.Context()
	for _, step := range []struct {
		o    Outgoing
		want SendOutcome
		err  error
	}{
		{Outgoing{ID: "a", When: In(time.Hour)}, SendSent, nil},
		{Outgoing{ID: "a"}, SendDuplicate, ErrDuplicate},
		{Outgoing{ID: "a", OnDuplicate: Replace()}, SendReplaced, nil},
		{Outgoing{ID: "a", MaxAttempts: -1}, "", ErrInvalid},
	} {
		r, err := q.SendMessage(ctx, step.o)
		if r.Outcome != step.want || !errors.Is(err, step.err) {
			t.Errorf("%+v: %+v, %v", step.o, r, err)
		}
	}
}

func TestRescheduleBatchReturnsTheErrorOfEachMessage(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	ctx := t.Context()
	for _, id := range []string{"a", "b"} {
		if _, err := q.Send(ctx, nil, WithID(id), In(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	results, err := q.RescheduleBatch(ctx, []string{"a", "none", "b"}, In(0))
	if err != nil || len(results) != 3 || results[0] != nil || !errors.Is(results[1], ErrNotFound) || results[2] != nil {
		t.Fatalf("%v, %v", results, err)
	}
	if stats, err := q.Stats(ctx); err != nil || stats.Ready != 2 {
		t.Errorf("%+v, %v", stats, err)
	}
	if results, err := q.RescheduleBatch(ctx, []string{"a", ""}, In(0)); !errors.Is(err, ErrInvalid) || results != nil {
		t.Errorf("%v, %v", results, err)
	}
}

func TestSendMessageKeepsTheIDOfMiddleware(t *testing.T) {
	named := func(_ context.Context, o *Outgoing) error {
		o.ID = "chosen"
		return nil
	}
	q := newClientOn(t, memstore.New(), WithSendMiddleware(named)).Queue("q")
	for _, want := range []error{nil, ErrDuplicate} {
		if r, err := q.SendMessage(t.Context(), Outgoing{}); r.ID != "chosen" || !errors.Is(err, want) {
			t.Errorf("%+v, %v; want %v", r, err, want)
		}
	}
}
