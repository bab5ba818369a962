package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// mixed fills a queue with the given number of scheduled messages, and two of each other state.
func mixed(t *testing.T, c *later.Client, queue string, scheduled int) {
	t.Helper()
	q := c.Queue(queue)
	for _, d := range []string{"dead", "leased"} {
		for n := range 2 {
			mustSend(t, q, d, later.WithID(fmt.Sprint("k/", d, n)), later.Header("k", "v"),
				later.MaxAttempts(5), later.Timeout(time.Minute), later.DedupWindow(time.Hour), later.Group("g"),
				later.Key("k"))
		}
		for _, m := range mustReceive(t, q, 2, later.Lease(time.Hour)) {
			if d == "dead" {
				if err := m.Bury(t.Context(), errors.New("bad")); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	mustSend(t, q, "ready")
	mustSend(t, q, "ready", later.ExpireAfter(time.Hour))
	msgs := make([]later.Outgoing, scheduled)
	for i := range msgs {
		due := later.In(time.Hour + time.Duration(i)*time.Second)
		msgs[i] = later.Outgoing{ID: fmt.Sprintf("s%05d", i), Payload: []byte("later"), When: due}
	}
	if _, err := q.SendBatch(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
}

func mustCopy(t *testing.T, to, from *later.Client, cfg CopyConfig) []QueueCopy {
	t.Helper()
	r, err := Copy(t.Context(), to, from, cfg)
	if err != nil {
		t.Fatalf("Copy: %v; so far %+v", err, r)
	}
	return r.Queues
}

func TestCopyMakesTheTargetLikeTheSource(t *testing.T) {
	from, to := newMem(t), newMem(t)
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

	added := mustSend(t, from.Queue("a"), "one more")
	got = mustCopy(t, to, from, CopyConfig{Queues: []string{"a", "a"}})
	if want := []QueueCopy{{Queue: "a", Total: 1241, Copied: 1, Duplicates: 1240, Leased: 2}}; !slices.Equal(
		got, want) {
		t.Errorf("copied again: %+v", got)
	}
	sameContents(t, to, from, "a")
	after := contents(t, from, "a")
	delete(after, added)
	sameMessages(t, after, before) // the source has not changed
}

func TestCopyAddsThePropertiesThatTheTargetLacks(t *testing.T) {
	for _, move := range []bool{false, true} {
		from, to := newMem(t), newMem(t)
		set := func(c *later.Client, queue string, properties map[string]string) {
			t.Helper()
			if err := c.Store().SetProperties(t.Context(), queue, properties, nil); err != nil {
				t.Fatal(err)
			}
		}
		want := func(c *later.Client, queue string, properties map[string]string) {
			t.Helper()
			if got, err := c.Store().Properties(t.Context(), queue); err != nil || !maps.Equal(got, properties) {
				t.Errorf("move %v: queue %s has %d properties, %v; want %d", move, queue, len(got), err,
					len(properties))
			}
		}
		many, all := map[string]string{}, map[string]string{}
		for i := range store.MaxProperties {
			if many[fmt.Sprint(i)] = "x"; len(many) == store.MaxBatch {
				set(from, "many", many)
				maps.Copy(all, many)
				clear(many)
			}
		}
		mustSend(t, from.Queue("some"), "m")
		set(from, "some", map[string]string{"a": "1", "b": "2"})
		set(to, "some", map[string]string{"b": "of the target", "c": "3"})
		cfg := CopyConfig{Move: move}
		for range 2 {
			mustCopy(t, to, from, cfg)
			want(to, "many", all)
			want(from, "many", all)
			want(to, "some", map[string]string{"a": "1", "b": "of the target", "c": "3"})
			want(from, "some", map[string]string{"a": "1", "b": "2"})
		}
		set(to, "many", map[string]string{"0": "", "new": "1"})
		_, err := Copy(t.Context(), to, from, cfg)
		wantError(t, err, store.ErrTooLarge)
		if err != nil && !strings.Contains(err.Error(), `queue "many": target: `) {
			t.Errorf("error %v does not name the queue and the store", err)
		}
	}
}

func TestCopyReturnsArgumentErrorsBeforeItBegins(t *testing.T) {
	from, to := newMem(t), newMem(t)
	mustSend(t, from.Queue("a"), "x")
	for _, c := range []struct {
		queues []string
		kind   error
		word   string
	}{{[]string{"a", "none"}, store.ErrNotFound, `"none"`}, {[]string{"a", "{}"}, store.ErrInvalid, "brace"}} {
		_, err := Copy(t.Context(), to, from, CopyConfig{Queues: c.queues})
		wantError(t, err, c.kind)
		if !strings.Contains(err.Error(), c.word) {
			t.Errorf("%v does not contain %s", err, c.word)
		}
	}
	if names, err := to.Queues(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("the target has %v, %v", names, err)
	}
	closed := newMem(t)
	closed.Close()
	_, err := Copy(t.Context(), to, closed, CopyConfig{})
	wantError(t, err, store.ErrClosed)
	_, err = Copy(t.Context(), closed, from, CopyConfig{})
	wantError(t, err, store.ErrClosed)
}

func TestCopyRefusesTwoClientsOfOneStore(t *testing.T) {
	s := memstore.New()
	one, same := newClient(t, s), newClient(t, s)
	var shared [2]*later.Client
	for i := range shared {
		c, err := later.Open(t.Context(), "mem://copy-to-itself")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		shared[i] = c
	}
	for _, pair := range [][2]*later.Client{{one, one}, {one, same}, shared} {
		mustSend(t, pair[0].Queue("q"), "x")
		for _, move := range []bool{false, true} {
			_, err := Copy(t.Context(), pair[0], pair[1], CopyConfig{Move: move})
			wantError(t, err, store.ErrInvalid)
		}
		if names, err := pair[0].Queues(t.Context()); err != nil || !slices.Equal(names, []string{"q"}) {
			t.Errorf("queues are %v, %v", names, err)
		}
	}
	wantCounts(t, shared[0].Queue("q"), 0, 1, 0, 0)
}

func TestCopyStopsBetweenPagesAndCanBeRepeated(t *testing.T) {
	for _, move := range []bool{false, true} {
		from, to := newMem(t), newMem(t)
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
			wantError(t, err, store.ErrLeased)
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
	from, to := newClient(t, s), newMem(t)
	mixed(t, from, "q", 10)
	s.list = func(_ string, req store.ListRequest) (store.Page, error) {
		p, err := s.Store.List(t.Context(), "q", req)
		for i := range p.Messages {
			if p.Messages[i].State == store.StateScheduled && i > 0 {
				p.Messages[i].Due = time.Time{} // damaged
			}
		}
		return p, err
	}
	for _, cfg := range []CopyConfig{{}, {Move: true}} {
		r, err := Copy(t.Context(), to, from, cfg)
		wantError(t, err, store.ErrInvalid)
		for _, word := range []string{`message "s00001" of queue "q"`, `"s00005"`, "due time",
			"4 more messages were left out"} {
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
	from, to := newClient(t, s), newMem(t)
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
		wantError(t, err, store.ErrCorrupt)
		if len(r.Queues) != 2 || r.Queues[1].Queue != "c" || !strings.Contains(err.Error(), `queue "bad": source: `) {
			t.Errorf("Copy returned %+v, %v", r.Queues, err)
		}
	}
	full.restored = func([]store.Info) error { return store.ErrFull }
	r, err := Copy(t.Context(), newClient(t, full), from, CopyConfig{Move: true})
	wantError(t, err, store.ErrFull)
	if len(r.Queues) != 1 || !strings.Contains(err.Error(), `queue "a": target: `) {
		t.Errorf("Copy returned %+v, %v", r.Queues, err)
	}
	wantCounts(t, from.Queue("a"), 0, 2, 2, 2)
}

// The order decides the exit code of later copy, so it must not depend on the order of the queues.
func TestCopyReturnsItsErrorsInTheDocumentedOrder(t *testing.T) {
	for _, names := range [][]string{{"conflict", "corrupt", "leased", "refused"},
		{"refused", "leased", "corrupt", "conflict"}} {
		s := &hooked{Store: memstore.New()}
		from, to := newClient(t, s), newMem(t)
		for _, name := range names {
			mustSend(t, from.Queue(name), name, later.WithID("x"))
		}
		mustSend(t, to.Queue("conflict"), "another", later.WithID("x"))
		mustReceive(t, from.Queue("leased"), 1, later.Lease(time.Hour))
		s.stats = func(queue string) (store.Stats, error) {
			if queue == "corrupt" {
				return store.Stats{}, store.ErrCorrupt
			}
			return s.Store.Stats(t.Context(), queue)
		}
		s.list = func(queue string, req store.ListRequest) (store.Page, error) {
			p, err := s.Store.List(t.Context(), queue, req)
			for i := range p.Messages {
				if queue == "refused" {
					p.Messages[i].Attempts = -1
				}
			}
			return p, err
		}
		_, err := Copy(t.Context(), to, from, CopyConfig{Move: true, Queues: names})
		joined, _ := err.(interface{ Unwrap() []error })
		want := []error{store.ErrCorrupt, store.ErrInvalid, store.ErrDuplicate, store.ErrLeased}
		if joined == nil || !slices.EqualFunc(joined.Unwrap(), want, errors.Is) {
			t.Errorf("queues %q: Copy returned %v; want %v", names, err, want)
		}
	}
}

func TestCopyRestoresWithinTheLimitsOfACall(t *testing.T) {
	from, s := newMem(t), &hooked{Store: memstore.New()}
	payload := strings.Repeat("x", store.MaxPayload)
	for range 10 {
		mustSend(t, from.Queue("q"), payload)
	}
	for range 2 {
		mustReceive(t, from.Queue("q"), 3, later.Lease(time.Hour))
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
	mustCopy(t, newClient(t, s), from, CopyConfig{})
	if calls < 3 {
		t.Errorf("%d calls", calls)
	}
	many := make([]store.Info, 2*store.MaxBatch+1)
	last := many[2*store.MaxBatch:]
	if first := fitting(many, (*store.Info).Size); first != store.MaxBatch || fitting(last, (*store.Info).Size) != 1 {
		t.Errorf("the first part has %d messages", first)
	}
	large := []store.Info{{Raw: make([]byte, store.MaxBatchBytes)}, {Raw: make([]byte, store.MaxBatchBytes)}}
	if end := fitting(large, (*store.Info).Size); end != 1 {
		t.Errorf("two large messages: %d in the first part", end)
	}
}
