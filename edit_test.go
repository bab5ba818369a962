package later

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
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
		if calls++; calls == 1 { // another Edit changes it in between
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

func TestEditKeepsEveryOptionThatItDoesNotChange(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		until := time.Now().Add(9 * time.Hour)
		mustSend(t, q, "x", WithID("after"), In(time.Hour), Timeout(time.Second), ExpireAfter(time.Minute),
			DedupWindow(time.Hour), Group("g"), Header("a", "b"), MaxAttempts(3))
		mustSend(t, q, "x", WithID("at"), In(time.Hour), ExpireAt(until))
		for _, id := range []string{"after", "at"} {
			before, err := q.Get(t.Context(), id)
			wantNoError(t, err)
			wantNoError(t, q.Edit(t.Context(), id, func(m *Outgoing) error { m.Payload = []byte("y"); return nil }))
			after, err := q.Get(t.Context(), id)
			wantNoError(t, err)
			if string(after.Payload) != "y" || after.Timeout != before.Timeout || after.ExpireAfter != before.ExpireAfter ||
				!after.ExpireAt.Equal(before.ExpireAt) || after.DedupWindow != before.DedupWindow ||
				after.Group != before.Group || after.Headers["a"] != before.Headers["a"] ||
				after.MaxAttempts != before.MaxAttempts || !after.Due.Equal(before.Due) {
				t.Errorf("%+v became %+v", before, after)
			}
		}
	})
}

func TestEditEndsWhenTheMessageChangesAllTheTime(t *testing.T) {
	var events []EventKind
	c := newClientOn(t, memstore.New(), WithObserver(func(e Event) { events = append(events, e.Kind) }))
	q := c.Queue("q")
	mustSend(t, q, "", WithID("a"), In(time.Hour))
	calls := 0
	err := q.Edit(t.Context(), "a", func(*Outgoing) error {
		calls++
		return q.Edit(t.Context(), "a", func(m *Outgoing) error {
			m.Payload = append(m.Payload, 'x')
			return nil
		})
	})
	wantError(t, err, ErrConflict)
	edited := 0
	for _, kind := range events {
		if kind == EventEdited {
			edited++
		}
	}
	if calls != editTries || edited != editTries {
		t.Errorf("%d calls, and %d edits are reported", calls, edited)
	}
}

func TestEditOfAMessageThatGoesMeanwhileReturnsErrNotFound(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	mustSend(t, q, "", WithID("a"), In(time.Hour))
	err := q.Edit(t.Context(), "a", func(*Outgoing) error {
		_, err := q.Cancel(t.Context(), "a")
		return err
	})
	wantError(t, err, ErrNotFound)
	if _, err := q.Get(t.Context(), "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the edit sent it again: %v", err)
	}
	mustSend(t, q, "", WithID("held"))
	err = q.Edit(t.Context(), "held", func(*Outgoing) error {
		mustReceive(t, q, 1)
		return nil
	})
	wantError(t, err, ErrLeased)
}

// unreadableStore has messages that cannot be read.
type unreadableStore struct{ *memstore.Store }

func (s unreadableStore) Get(ctx context.Context, queue string, ids []string) ([]*store.Info, error) {
	infos, err := s.Store.Get(ctx, queue, ids)
	for _, info := range infos {
		info.Raw = []byte("?")
	}
	return infos, err
}

func TestEditLeavesAloneWhatIsNotForIt(t *testing.T) {
	never := func(*Outgoing) error { t.Error("called"); return nil }
	q := newClientOn(t, unreadableStore{memstore.New()}).Queue("q")
	mustSend(t, q, "", WithID("a"))
	wantError(t, q.Edit(t.Context(), "a", never), ErrCorrupt)

	q = newClientOn(t, memstore.New()).Queue("q")
	mustSend(t, q, "", WithID("dead"))
	wantNoError(t, mustReceive(t, q, 1)[0].Bury(t.Context(), nil))
	wantError(t, q.Edit(t.Context(), "dead", never), ErrDead)

	mustSend(t, q, "", WithID("a"))
	for name, change := range map[string]func(m *Outgoing){
		"queue":      func(m *Outgoing) { m.Queue = "other" },
		"mode":       func(m *Outgoing) { m.OnDuplicate = Follow() },
		"durability": func(m *Outgoing) { m.Durability.asked.Timeout = time.Second },
	} {
		err := q.Edit(t.Context(), "a", func(m *Outgoing) error { change(m); return nil })
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "changes its id, queue") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
