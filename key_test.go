package later

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/series"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// wantKey checks the key of a live message, and of its JSON.
func wantKey(t *testing.T, q *Queue, id, key string) {
	t.Helper()
	info, err := q.Get(t.Context(), id)
	wantNoError(t, err)
	text, err := info.MarshalJSON()
	wantNoError(t, err)
	if info.Key != key || strings.Contains(string(text), fmt.Sprintf(`"key":%q`, key)) != (key != "") {
		t.Errorf("message %s has the key %q, want %q: %s", id, info.Key, key, text)
	}
}

func TestKeyGoesFromSendToHandlerAndReceiver(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx, q := t.Context(), c.Queue("q")
		wantKey(t, q, mustSend(t, q, "", Key("a")), "a")
		result, err := q.SendMessage(ctx, Outgoing{Key: "b"})
		wantNoError(t, err)
		wantKey(t, q, result.ID, "b")
		results, err := q.SendBatch(ctx, []Outgoing{{Key: "c"}, {}})
		wantNoError(t, err)
		wantKey(t, q, results[0].ID, "c")
		wantKey(t, q, results[1].ID, "")
		with, err := q.With(Key("default"))
		wantNoError(t, err)
		wantKey(t, q, mustSend(t, with, ""), "default")
		wantKey(t, q, mustSend(t, with, "", Key("own")), "own")
		got := ""
		for _, d := range mustReceive(t, q, 6) {
			got += d.Key + " "
			wantNoError(t, d.Nack(ctx, 0, nil))
		}
		if got != "a b c  default own " {
			t.Errorf("received the keys %s", got)
		}
		keys := make(chan string, 6)
		w := NewWorker(c, WorkerConfig{Concurrency: 1})
		w.Handle("q", func(ctx context.Context, m *Message) error {
			if MessageFromContext(ctx).Key != m.Key {
				t.Error("the context's message has another key")
			}
			keys <- m.Key
			return nil
		})
		start(t, w)
		seen := map[string]bool{}
		for range 6 {
			seen[<-keys] = true
		}
		if len(seen) != 6 || !seen[""] || !seen["own"] {
			t.Errorf("handled the keys %v", seen)
		}
	})
}

func TestKeyOfAReplacementAndOfAnEdit(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx, q := t.Context(), c.Queue("q")
		mustSend(t, q, "", WithID("m"), Key("a"), In(time.Hour))
		for _, mode := range []DuplicateMode{Replace(), Debounce(time.Hour, 2*time.Hour), Follow()} {
			key := mode.String()
			mustSend(t, q, "", WithID("m"), OnDuplicate(mode), Key(key))
			wantKey(t, q, "m", key)
		}
		wantNoError(t, q.Edit(ctx, "m", func(o *Outgoing) error { o.Payload = []byte("new"); return nil }))
		wantKey(t, q, "m", Follow().String())
		wantNoError(t, q.Edit(ctx, "m", func(o *Outgoing) error { o.Key = "edited"; return nil }))
		wantKey(t, q, "m", "edited")
		wantError(t, q.Edit(ctx, "m", func(o *Outgoing) error { o.Key = "a/b"; return nil }), ErrInvalid)
		wantKey(t, q, "m", "edited")
	})
}

func TestKeyGoesThroughFollowUpsTopicsForwardsSchedulesAndSeries(t *testing.T) {
	inTopicStores(t, func(t *testing.T, c *Client) {
		ctx, q, to := t.Context(), c.Queue("q"), c.Queue("to")
		mustSend(t, q, "", Key("a"))
		wantNoError(t, mustReceive(t, q, 1)[0].AckThen(ctx, Then("to", nil, WithID("follow-up"), Key("f"))))
		wantKey(t, to, "follow-up", "f")

		wantNoError(t, c.Topic("t").Subscribe(ctx, "subscribed"))
		_, err := c.Topic("t").Publish(ctx, nil, Key("p"))
		wantNoError(t, err)
		mustSend(t, c.Queue("from"), "", WithID("forwarded"), Key("g"))
		custom := make(chan string, 1)
		mustSend(t, c.Queue("custom"), "", Key("h"))
		_, err = c.Schedules().Put(ctx, Schedule{Name: "s", Queue: "scheduled", Key: "s",
			When: recurrence.Spec{Every: time.Minute}})
		wantNoError(t, err)
		w := NewWorker(c, WorkerConfig{})
		w.Forward("from", ToQueue("to"))
		w.Forward("custom", To(deliverFunc(func(_ context.Context, m []*Message) []error {
			custom <- m[0].Key
			return nil
		})))
		published := make(chan string, 1)
		w.Handle("subscribed", func(_ context.Context, m *Message) error {
			published <- m.Key
			return nil
		})
		start(t, w)
		if got := <-custom; got != "h" {
			t.Errorf("a destination of its own got the key %q", got)
		}
		if got := <-published; got != "p" {
			t.Errorf("a published message has the key %q", got)
		}
		settled()
		wantKey(t, to, "forwarded", "g")
		if got := mustReceive(t, c.Queue("scheduled"), 1)[0].Key; got != "s" {
			t.Errorf("a run has the key %q", got)
		}

		reminders := Series{Until: time.Now().Add(time.Hour), Offsets: []time.Duration{0}}
		_, err = q.SendSeries(ctx, nil, reminders, WithID("r"), Key("r"))
		wantNoError(t, err)
		for info, err := range q.All(ctx, ListOptions{Group: series.GroupPrefix + "r"}) {
			wantNoError(t, err)
			wantKey(t, q, info.ID, "r")
		}
	})
}

func TestKeyThatIsNotAllowedSendsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx, q := t.Context(), c.Queue("q")
		for key, want := range map[string]string{
			"":                                    "key is empty: it must have 1 to 64 bytes",
			strings.Repeat("k", store.MaxKey+1):   "key is 65 bytes long: the limit is 64; give a shorter one",
			"a/b":                                 `key "a/b" holds a slash: leave it out`,
			"a\nb":                                `key "a\nb" holds a control character: leave it out`,
			"a\xff":                               `key "a\xff" is not UTF-8`,
			strings.Repeat("ÿ", store.MaxKey/2+1): "key is 66 bytes long",
		} {
			_, err := q.Send(ctx, nil, Key(key))
			all := []error{err, Then("q", nil, Key(key)).err}
			if key != "" {
				_, one := q.SendMessage(ctx, Outgoing{Key: key})
				_, batch := q.SendBatch(ctx, []Outgoing{{}, {Key: key}})
				check := Outgoing{Key: key}
				all = append(all, one, batch, check.Check())
			}
			for _, err := range all {
				wantError(t, err, ErrInvalid)
				if !strings.Contains(fmt.Sprint(err), want) || store.FieldOf(err) != "key" {
					t.Errorf("error %v of field %q; want %q of the field key", err, store.FieldOf(err), want)
				}
			}
		}
		_, err := q.Send(ctx, nil, Key("a"), Key("b"))
		wantError(t, err, ErrInvalid)
		if stats := mustStats(t, q); stats.Exists {
			t.Errorf("there is a queue: %+v", stats)
		}
	})
}

// The slot is in the last two characters of an id.
func TestIDsHaveTheSlotOfTheirKeyOrOfTheirBatch(t *testing.T) {
	slot := func(id string) string { return id[12:] }
	s := &colliding{memstore.New(), map[string]bool{}, 0}
	q := newClientOn(t, s).Queue("q")
	want := slot(mustSend(t, q, "", Key("customer-7")))
	if got := slot(store.NewID()); len(got) != len(want) {
		t.Errorf("an id without a key ends in %q, one with a key in %q", got, want)
	}
	s.left = 1 // the first id is taken
	if again := slot(mustSend(t, q, "", Key("customer-7"))); again != want {
		t.Errorf("a second id of the key has the slot %q, want %q", again, want)
	}
	msgs := make([]Outgoing, 3*store.MaxBatch)
	for i := range msgs {
		if i%5 == 4 {
			msgs[i].Key = "customer-7"
		}
	}
	results, err := q.SendBatch(t.Context(), msgs)
	wantNoError(t, err)
	batch := slot(results[0].ID)
	for i, r := range results {
		if msgs[i].Key == "" && slot(r.ID) != batch || msgs[i].Key != "" && slot(r.ID) != want {
			t.Fatalf("id %s of message %d with the key %q; the batch has the slot %q, the key %q", r.ID, i, msgs[i].Key,
				batch, want)
		}
	}
}
