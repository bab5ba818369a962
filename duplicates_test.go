package later

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestReplaceKeepsTheDueTimeUnlessTheSendHasOne(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		begin := time.Now()
		mustSend(t, q, "one", WithID("a"), OnDuplicate(Replace()), In(time.Hour))
		mustSend(t, q, "two", WithID("a"), OnDuplicate(Replace()))
		info, err := q.Get(t.Context(), "a")
		if err != nil || string(info.Payload) != "two" || !info.Due.Equal(begin.Add(time.Hour)) {
			t.Errorf("message is %+v, %v", info, err)
		}
		mustSend(t, q, "three", WithID("a"), OnDuplicate(Replace()), In(0))
		if d := mustReceive(t, q, 1)[0]; string(d.Payload) != "three" || !d.SentAt.Equal(begin) {
			t.Errorf("received %+v", d.Message)
		}
	})
}

func TestDebounceDeliversTheLastSendOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("index")
		begin := time.Now()
		for i := range 5 {
			mustSend(t, q, fmt.Sprint(i), WithID("doc"), OnDuplicate(Debounce(2*time.Second, 5*time.Second)))
			time.Sleep(time.Second) // of the bubble's clock
		}
		d := mustReceive(t, q, 1)[0]
		if string(d.Payload) != "4" || time.Since(begin) != 5*time.Second {
			t.Errorf("received %q after %v, want the last one after 5s", d.Payload, time.Since(begin))
		}
		wantCounts(t, q, 0, 0, 1, 0)
	})
}

func TestSendThatMayNotReplaceReturnsWhy(t *testing.T) {
	c := newClientOn(t, memstore.New())
	for i, mode := range []DuplicateMode{Replace(), Debounce(time.Second, time.Minute)} {
		q := c.Queue(fmt.Sprint("q", i))
		mustSend(t, q, "", WithID("m"), DedupWindow(time.Hour))
		d := mustReceive(t, q, 1)[0]
		id, err := q.Send(t.Context(), nil, WithID("m"), OnDuplicate(mode))
		wantError(t, err, ErrLeased)
		if id != "m" || !strings.Contains(err.Error(), `"m" in queue "q`) {
			t.Errorf("id %q, error %q; want both to name the message", id, err)
		}
		if err := d.Bury(t.Context(), errors.New("no")); err != nil {
			t.Fatal(err)
		}
		_, err = q.Send(t.Context(), nil, WithID("m"), OnDuplicate(mode))
		wantError(t, err, ErrDead)
		if _, err := q.Cancel(t.Context(), "m", KeepID()); err != nil {
			t.Fatal(err)
		}
		_, err = q.Send(t.Context(), nil, WithID("m"), OnDuplicate(mode))
		wantError(t, err, ErrDuplicate)
	}
}

func TestBatchOfMixedModesHasItsOutcomesInOrder(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	mustSend(t, q, "", WithID("held"))
	mustReceive(t, q, 1)
	hour, debounce := In(time.Hour), Debounce(time.Second, time.Minute)
	results, err := q.SendBatch(t.Context(), []Outgoing{
		{ID: "a", When: hour}, {ID: "a"}, {ID: "a", OnDuplicate: Replace()}, {ID: "held", OnDuplicate: Replace()},
		{ID: "b", OnDuplicate: debounce}, {ID: "b", OnDuplicate: debounce}, {ID: "b", OnDuplicate: Keep()}, {},
		{ID: "held", OnDuplicate: debounce}, {ID: "c", OnDuplicate: Replace(), When: hour},
		{ID: "held", OnDuplicate: Follow()}, {ID: "c", OnDuplicate: Follow()}, {ID: "held", OnDuplicate: Follow()},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []SendOutcome{SendSent, SendDuplicate, SendReplaced, "", SendSent, SendDebounced, SendDuplicate, SendSent, "",
		SendSent, SendFollows, SendReplaced, SendFollows}
	for i, r := range results {
		if r.Outcome != want[i] || r.Duplicate != (want[i] == SendDuplicate) || (r.Err != nil) != (want[i] == "") {
			t.Errorf("result %d is %+v, want %q", i, r, want[i])
		}
		if r.Err != nil && !errors.Is(r.Err, ErrLeased) {
			t.Errorf("result %d is %v, want ErrLeased", i, r.Err)
		}
	}
	wantCounts(t, q, 3, 1, 1, 0)
}

func TestObserverSeesAReplacedMessageAsADuplicate(t *testing.T) {
	var log []string
	c := newClientOn(t, memstore.New(), WithObserver(func(e Event) { log = append(log, string(e.Kind)) }))
	for range 2 {
		mustSend(t, c.Queue("q"), "", WithID("a"), OnDuplicate(Replace()), In(time.Hour))
	}
	if got := strings.Join(log, " "); got != "sent duplicate" {
		t.Errorf("events are %s", got)
	}
}

func TestModeForDuplicatesIsChecked(t *testing.T) {
	c := newClientOn(t, memstore.New())
	id := WithID("a")
	for name, opts := range map[string][]SendOption{
		"mode for duplicates is given twice":         {id, OnDuplicate(Replace()), OnDuplicate(Keep())},
		"replace and there is no id: give the id":    {OnDuplicate(Replace())},
		"debounce waits 0s":                          {id, OnDuplicate(Debounce(0, time.Second))},
		"maximum wait of debounce is 1s: give":       {id, OnDuplicate(Debounce(time.Minute, time.Second))},
		"maximum wait of debounce is 876001h":        {id, OnDuplicate(Debounce(1, store.MaxDelay+time.Hour))},
		"is debounce for 1s, at most 2s: give only ": {id, In(1), OnDuplicate(Debounce(time.Second, 2*time.Second))},
	} {
		_, err := c.Queue("q").Send(t.Context(), nil, opts...)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("error is %v; want an ErrInvalid with %q", err, name)
		}
	}
	_, err := Open(t.Context(), "mem://", WithDefaults(OnDuplicate(Replace())))
	wantError(t, err, ErrInvalid)
	err = Then("q", nil, id, OnDuplicate(Replace()))
	if !strings.Contains(err.Error(), "never changes a live message") {
		t.Errorf("follow-up: %v", err)
	}
}

func TestModeForDuplicatesCanBeADefaultOfAQueue(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q, err := c.Queue("q").With(OnDuplicate(Replace()), In(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	mustSend(t, q, "one", WithID("a"))
	mustSend(t, q, "two", WithID("a"))
	mustSend(t, q, "three", WithID("a"), OnDuplicate(Debounce(time.Minute, time.Minute)))
	_, err = q.Send(t.Context(), nil, WithID("a"), OnDuplicate(Keep()))
	wantError(t, err, ErrDuplicate)
	info, err := q.Get(t.Context(), "a")
	if err != nil || string(info.Payload) != "three" || time.Until(info.Due) > time.Minute {
		t.Errorf("message is %+v, %v", info, err)
	}
}

// Concurrent sends travel together, but sends that replace travel apart from other sends.
func TestConcurrentSendsOfEveryModeLeaveOneMessage(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	modes := []DuplicateMode{Keep(), Replace(), Debounce(time.Hour, 2*time.Hour), Follow()}
	var all sync.WaitGroup
	for i := range 300 {
		all.Go(func() {
			_, err := q.Send(t.Context(), nil, WithID("a"), OnDuplicate(modes[i%len(modes)]))
			if err != nil && (i%len(modes) != 0 || !errors.Is(err, ErrDuplicate)) {
				t.Errorf("send of mode %v: %v", modes[i%len(modes)], err)
			}
		})
	}
	all.Wait()
	if n := mustSent(t, q); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

// mustSent returns how many messages wait in a queue.
func mustSent(t *testing.T, q *Queue) int64 {
	t.Helper()
	s, err := q.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.Scheduled + s.Ready
}

func TestBatchGoesOnAfterMessagesThatAreNotReplaced(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	for _, id := range []string{"leased", "dead"} {
		mustSend(t, q, "", WithID(id))
	}
	for _, d := range mustReceive(t, q, 2) {
		if d.ID == "dead" {
			wantNoError(t, d.Bury(t.Context(), nil))
		}
	}
	results, err := q.SendBatch(t.Context(), []Outgoing{
		{ID: "dead", OnDuplicate: Replace()}, {ID: "leased", OnDuplicate: Replace()}, {ID: "plain"},
	})
	wantNoError(t, err)
	wantError(t, results[0].Err, ErrDead)
	wantError(t, results[1].Err, ErrLeased)
	if results[2].Outcome != SendSent ||
		!strings.Contains(results[0].Err.Error(), `id "dead" in queue "q" is not replaced`) {
		t.Errorf("%+v", results)
	}
}
