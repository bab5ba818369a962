package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// hooked is a store whose calls a test can observe or replace.
type hooked struct {
	store.Store
	list     func(req store.ListRequest) (store.Page, error)
	stats    func(queue string) (store.Stats, error)
	restored func(msgs []store.Info) error // called after messages are restored
	removing func(msgs []store.Info) error // called before messages are removed
}

func (h *hooked) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	if h.list != nil {
		return h.list(req)
	}
	return h.Store.List(ctx, queue, req)
}

func (h *hooked) Stats(ctx context.Context, queue string) (store.Stats, error) {
	if h.stats != nil {
		return h.stats(queue)
	}
	return h.Store.Stats(ctx, queue)
}

func (h *hooked) Restore(ctx context.Context, queue string, msgs []store.Info) ([]store.SendResult, error) {
	results, err := h.Store.Restore(ctx, queue, msgs)
	if err == nil && h.restored != nil {
		err = h.restored(msgs)
	}
	return results, err
}

func (h *hooked) Remove(ctx context.Context, queue string, msgs []store.Info) ([]bool, error) {
	if h.removing != nil {
		if err := h.removing(msgs); err != nil {
			return nil, err
		}
	}
	return h.Store.Remove(ctx, queue, msgs)
}

// contents describes all messages of a queue, except for their leases, by id.
func contents(t *testing.T, c *Client, queue string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, state := range []State{StateLeased, StateScheduled, StateReady, StateDead} {
		for i, err := range c.Queue(queue).All(t.Context(), ListOptions{State: state}) {
			if err != nil {
				t.Fatal(err)
			}
			all[i.ID] = fmt.Sprintf("%q %q due %d, %d of %d, %v %q, %q at %d, %v %v %d %v, raw %q",
				i.Payload, i.Headers, i.Due.UnixMilli(),
				i.Attempts, i.MaxAttempts, i.Delivered, i.LastError, i.DeadReason, i.DiedAt.UnixMilli(),
				i.Timeout, i.ExpireAfter, i.SentAt.UnixMilli(), i.Remember, i.Raw)
		}
	}
	return all
}

func sameContents(t *testing.T, to, from *Client, queue string) {
	t.Helper()
	got, want := contents(t, to, queue), contents(t, from, queue)
	for id := range want {
		if got[id] != want[id] {
			t.Errorf("message %q\n got  %s\n want %s", id, got[id], want[id])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d messages, want %d", len(got), len(want))
	}
}

// mixed fills a queue with the given number of scheduled messages, and two of each other state.
func mixed(t *testing.T, c *Client, queue string, scheduled int) {
	t.Helper()
	q := c.Queue(queue)
	for _, d := range []string{"dead", "leased"} {
		for n := range 2 {
			mustSend(t, q, d, WithID(fmt.Sprint(d, n)), Header("k", "v"),
				MaxAttempts(5), Timeout(time.Minute), RememberID(time.Hour))
		}
		for _, m := range mustReceive(t, q, 2, LeaseFor(time.Hour)) {
			if d == "dead" {
				if err := m.Bury(t.Context(), errors.New("bad")); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	mustSend(t, q, "ready")
	mustSend(t, q, "ready", ExpireAfter(time.Hour))
	msgs := make([]Outgoing, scheduled)
	for i := range msgs {
		due := In(time.Hour + time.Duration(i)*time.Second)
		msgs[i] = Outgoing{ID: fmt.Sprintf("s%05d", i), Payload: []byte("later"), When: due}
	}
	if _, err := q.SendBatch(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
}

func mustCopy(t *testing.T, to, from *Client, cfg CopyConfig) []QueueCopy {
	t.Helper()
	r, err := Copy(t.Context(), to, from, cfg)
	if err != nil {
		t.Fatalf("Copy: %v; so far %+v", err, r)
	}
	return r.Queues
}

func TestCopyMakesTheTargetLikeTheSource(t *testing.T) {
	from, to := newClientOn(t, memstore.New()), newClientOn(t, memstore.New())
	mixed(t, from, "a", 1234)
	mixed(t, from, "b", 0)
	if err := from.Queue("b").Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := contents(t, from, "a")
	var last QueueCopy
	pages := 0
	got := mustCopy(t, to, from, CopyConfig{Progress: func(q QueueCopy) { last, pages = q, pages+1 }})
	want := []QueueCopy{
		{Queue: "a", Total: 1240, Copied: 1240, Leased: 2},
		{Queue: "b", Total: 6, Copied: 6, Leased: 2, Paused: true},
	}
	if !slices.Equal(got, want) || last != want[1] || pages < 8 {
		t.Errorf("got %+v, the last of %d reports was %+v", got, pages, last)
	}
	for _, queue := range []string{"a", "b"} {
		sameContents(t, to, from, queue)
	}
	wantCounts(t, from.Queue("a"), 1234, 2, 2, 2)
	wantCounts(t, to.Queue("a"), 1234, 4, 0, 2)
	if mustStats(t, to.Queue("b")).Paused {
		t.Error("the pause was copied")
	}

	mustSend(t, from.Queue("a"), "one more")
	got = mustCopy(t, to, from, CopyConfig{Queues: []string{"a", "a"}})
	if want := []QueueCopy{{Queue: "a", Total: 1241, Copied: 1, Duplicates: 1240, Leased: 2}}; !slices.Equal(got, want) {
		t.Errorf("copied again: %+v", got)
	}
	sameContents(t, to, from, "a")
	after := contents(t, from, "a")
	for id, text := range before {
		if after[id] != text {
			t.Errorf("message %q of the source has changed", id)
		}
	}
}

func TestCopyReturnsArgumentErrorsBeforeItBegins(t *testing.T) {
	from, to := newClientOn(t, memstore.New()), newClientOn(t, memstore.New())
	mustSend(t, from.Queue("a"), "x")
	for _, c := range []struct {
		queues []string
		kind   error
		word   string
	}{{[]string{"a", "none"}, ErrNotFound, `"none"`}, {[]string{"a", "{}"}, ErrInvalid, "brace"}} {
		_, err := Copy(t.Context(), to, from, CopyConfig{Queues: c.queues})
		wantError(t, err, c.kind)
		if !strings.Contains(err.Error(), c.word) {
			t.Errorf("%v does not contain %s", err, c.word)
		}
	}
	if names, err := to.Queues(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("the target has %v, %v", names, err)
	}
	closed := New(memstore.New(), quiet)
	closed.Close()
	_, err := Copy(t.Context(), to, closed, CopyConfig{})
	wantError(t, err, ErrClosed)
	_, err = Copy(t.Context(), closed, from, CopyConfig{})
	wantError(t, err, ErrClosed)
}

func TestCopyRefusesTwoClientsOfOneStore(t *testing.T) {
	s := memstore.New()
	one, same := newClientOn(t, s), newClientOn(t, s)
	var shared [2]*Client
	for i := range shared {
		c, err := Open(t.Context(), "mem://copy-to-itself", quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		shared[i] = c
	}
	for _, pair := range [][2]*Client{{one, one}, {one, same}, shared} {
		mustSend(t, pair[0].Queue("q"), "x")
		for _, move := range []bool{false, true} {
			_, err := Copy(t.Context(), pair[0], pair[1], CopyConfig{Move: move})
			wantError(t, err, ErrInvalid)
		}
		if names, err := pair[0].Queues(t.Context()); err != nil || !slices.Equal(names, []string{"q"}) {
			t.Errorf("queues are %v, %v", names, err)
		}
	}
	wantCounts(t, shared[0].Queue("q"), 0, 1, 0, 0)
}

func TestCopyStopsBetweenPagesAndCanBeRepeated(t *testing.T) {
	for _, move := range []bool{false, true} {
		from, to := newClientOn(t, memstore.New()), newClientOn(t, memstore.New())
		mixed(t, from, "q", 5*store.MaxBatch)
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		r, err := Copy(ctx, to, from, CopyConfig{Move: move, Progress: func(q QueueCopy) {
			if q.Copied > store.MaxBatch {
				cancel(enough)
			}
		}})
		wantError(t, err, enough)
		if n := r.Queues[0].Copied; n <= store.MaxBatch || n > 2*store.MaxBatch+10 {
			t.Errorf("%d messages were copied", n)
		}
		here, there := mustStats(t, from.Queue("q")), mustStats(t, to.Queue("q"))
		if sum := here.Scheduled + there.Scheduled; move && sum != 5*store.MaxBatch {
			t.Errorf("%d messages in both", sum)
		}
		if _, err = Copy(t.Context(), to, from, CopyConfig{Move: move}); move {
			wantError(t, err, ErrLeased)
			wantCounts(t, from.Queue("q"), 0, 0, 2, 0)
		} else if err != nil {
			t.Error(err)
		} else {
			sameContents(t, to, from, "q")
		}
	}
}

func TestCopyContinuesAfterARefusedMessage(t *testing.T) {
	s := &hooked{Store: memstore.New()}
	from, to := newClientOn(t, s), newClientOn(t, memstore.New())
	mixed(t, from, "q", 10)
	s.list = func(req store.ListRequest) (store.Page, error) {
		p, err := s.Store.List(t.Context(), "q", req)
		for i := range p.Messages {
			if p.Messages[i].State == StateScheduled && i > 0 {
				p.Messages[i].Due = time.Time{} // damaged
			}
		}
		return p, err
	}
	for _, cfg := range []CopyConfig{{}, {Move: true}} {
		r, err := Copy(t.Context(), to, from, cfg)
		wantError(t, err, ErrInvalid)
		for _, word := range []string{`message "s00001" of queue "q"`, `"s00005"`, "due time", "4 more were left out"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v does not contain %s", err, word)
			}
		}
		if strings.Contains(err.Error(), "s00006") || r.Queues[0].Refused != 9 {
			t.Errorf("Copy returned %+v, %v", r.Queues, err)
		}
	}
	wantCounts(t, from.Queue("q"), 9, 0, 2, 0)
	wantCounts(t, to.Queue("q"), 1, 4, 0, 2)
}

func TestCopyContinuesAfterADamagedQueueButNotAfterAFullTarget(t *testing.T) {
	s, full := &hooked{Store: memstore.New()}, &hooked{Store: memstore.New()}
	from, to := newClientOn(t, s), newClientOn(t, memstore.New())
	for _, name := range []string{"a", "bad", "c"} {
		mixed(t, from, name, 0)
	}
	s.stats = func(queue string) (store.Stats, error) {
		if queue == "bad" {
			return store.Stats{}, store.ErrCorrupt
		}
		return s.Store.Stats(t.Context(), queue)
	}
	for _, queues := range [][]string{nil, {"a", "bad", "c"}} {
		r, err := Copy(t.Context(), to, from, CopyConfig{Queues: queues})
		wantError(t, err, ErrCorrupt)
		if len(r.Queues) != 2 || r.Queues[1].Queue != "c" || !strings.Contains(err.Error(), `queue "bad": source: `) {
			t.Errorf("Copy returned %+v, %v", r.Queues, err)
		}
	}
	full.restored = func([]store.Info) error { return store.ErrFull }
	r, err := Copy(t.Context(), newClientOn(t, full), from, CopyConfig{Move: true})
	wantError(t, err, ErrFull)
	if len(r.Queues) != 1 || !strings.Contains(err.Error(), `queue "a": target: `) {
		t.Errorf("Copy returned %+v, %v", r.Queues, err)
	}
	wantCounts(t, from.Queue("a"), 0, 2, 2, 2)
}

func TestCopyRestoresWithinTheLimitsOfACall(t *testing.T) {
	from, s := newClientOn(t, memstore.New()), &hooked{Store: memstore.New()}
	payload := strings.Repeat("x", store.MaxPayload)
	for range 10 {
		mustSend(t, from.Queue("q"), payload)
	}
	for range 2 {
		mustReceive(t, from.Queue("q"), 3, LeaseFor(time.Hour))
	}
	calls := 0
	s.restored = func(msgs []store.Info) error {
		calls++
		size := 0
		for i := range msgs {
			size += msgs[i].Size()
		}
		if size > store.MaxBatchBytes {
			t.Errorf("%d bytes in one call", size)
		}
		return nil
	}
	mustCopy(t, newClientOn(t, s), from, CopyConfig{})
	if calls < 3 {
		t.Errorf("%d calls", calls)
	}
	many := make([]store.Info, 2*store.MaxBatch+1)
	if first := restoreEnd(many, 0); first != store.MaxBatch || restoreEnd(many, 2*store.MaxBatch) != len(many) {
		t.Errorf("the first part has %d messages", first)
	}
	large := []store.Info{{Raw: make([]byte, store.MaxBatchBytes)}, {Raw: make([]byte, store.MaxBatchBytes)}}
	if end := restoreEnd(large, 0); end != 1 {
		t.Errorf("two large messages: %d in the first part", end)
	}
}
