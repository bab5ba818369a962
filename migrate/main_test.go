package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newClient returns a client of a store, which ends with the test.
func newClient(t testing.TB, s store.Store) *later.Client {
	t.Helper()
	c, err := later.New(s, later.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func newMem(t testing.TB) *later.Client { return newClient(t, memstore.New()) }

// failer is a testing.TB or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
}

var states = []store.State{store.StateLeased, store.StateScheduled, store.StateReady, store.StateDead}

// contents returns the messages of a queue by id.
func contents(t failer, c *later.Client, queue string) map[string]store.Info {
	t.Helper()
	all := map[string]store.Info{}
	for _, state := range states {
		req := store.ListRequest{State: state, Limit: store.MaxBatch}
		for {
			page, err := c.Store().List(context.Background(), queue, req)
			if err != nil {
				t.Fatalf("%v", err)
			}
			for _, info := range page.Messages {
				all[info.ID] = info
			}
			if req.Cursor = page.Next; req.Cursor == "" {
				break
			}
		}
	}
	return all
}

// sameContents compares a queue of two stores.
func sameContents(t failer, to, from *later.Client, queue string) {
	t.Helper()
	sameMessages(t, contents(t, to, queue), contents(t, from, queue))
}

// sameMessages compares messages, by id.
func sameMessages(t failer, got, want map[string]store.Info) {
	t.Helper()
	for id, info := range want {
		if other, ok := got[id]; !ok || !other.Same(&info) {
			t.Errorf("message %q\n got  %+v\n want %+v", id, other, info)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d messages, want %d", len(got), len(want))
	}
}

// restore adds messages to a queue.
func restore(t failer, c *later.Client, queue string, infos []store.Info) {
	t.Helper()
	for part := range slices.Chunk(infos, store.MaxBatch) {
		if _, err := c.Store().Restore(context.Background(), queue, part); err != nil {
			t.Fatalf("%v", err)
		}
	}
}

// fill puts n scheduled, n ready and n dead messages into a queue, some of them of the same time, and leases two more.
func fill(t failer, c *later.Client, queue string, n int) {
	t.Helper()
	var infos []store.Info
	add := func(id string, state store.State, due time.Time) {
		i := store.Info{Message: store.Message{ID: id, Payload: []byte("payload of " + id)}, State: state, Due: due}
		if state == store.StateDead {
			i.DeadReason, i.DiedAt, i.LastError, i.Attempts, i.Delivered = store.DeadFailed, due, "no", 3, true
		}
		infos = append(infos, i)
	}
	past, future := time.UnixMilli(1_000_000_000_000), time.UnixMilli(5_000_000_000_000)
	add("leased0", store.StateReady, past.Add(-time.Hour))
	add("leased1", store.StateReady, past.Add(-time.Hour))
	for i := range n {
		at := time.Duration(i/3) * time.Millisecond // three of each time
		add(fmt.Sprintf("s%04d", i), store.StateScheduled, future.Add(at))
		add(fmt.Sprintf("r%04d", i), store.StateReady, past.Add(at))
		add(fmt.Sprintf("d%04d", i), store.StateDead, past.Add(at))
	}
	restore(t, c, queue, infos)
	claim(t, c, queue, 2)
}

func claim(t failer, c *later.Client, queue string, n int) []store.Claimed {
	t.Helper()
	claim, err := c.Store().Claim(context.Background(), queue, store.ClaimRequest{Max: n, Lease: time.Hour})
	if err != nil || len(claim.Messages) != n {
		t.Fatalf("claimed %d, %v", len(claim.Messages), err)
	}
	return claim.Messages
}

// exported returns an export that must succeed.
func exported(t failer, c *later.Client, queues ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	if r, err := Export(context.Background(), c, &b, ExportConfig{Queues: queues}); err != nil || !r.Complete {
		t.Fatalf("export: %v, %+v", err, r)
	}
	return b.Bytes()
}

// imported imports an input that must be all right.
func imported(t failer, c *later.Client, r io.Reader) ImportResult {
	t.Helper()
	result, err := Import(context.Background(), c, r, ImportConfig{})
	if err != nil {
		t.Fatalf("import: %v, %+v", err, result)
	}
	return result
}

// hooked is a store with calls that a test can replace or observe.
type hooked struct {
	store.Store
	list     func(queue string, req store.ListRequest) (store.Page, error)
	stats    func(queue string) (store.Stats, error)
	restore  func(queue string, infos []store.Info) ([]store.SendResult, error)
	restored func(infos []store.Info) error // called after messages are restored
	removing func(infos []store.Info) error // called before messages are removed
}

func (h *hooked) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	if h.list != nil {
		return h.list(queue, req)
	}
	return h.Store.List(ctx, queue, req)
}

func (h *hooked) Stats(ctx context.Context, queue string) (store.Stats, error) {
	if h.stats != nil {
		return h.stats(queue)
	}
	return h.Store.Stats(ctx, queue)
}

func (h *hooked) Restore(ctx context.Context, queue string, infos []store.Info) ([]store.SendResult, error) {
	if h.restore != nil {
		return h.restore(queue, infos)
	}
	results, err := h.Store.Restore(ctx, queue, infos)
	if err == nil && h.restored != nil {
		err = h.restored(infos)
	}
	return results, err
}

func (h *hooked) Remove(ctx context.Context, queue string, infos []store.Info) ([]bool, error) {
	if h.removing != nil {
		if err := h.removing(infos); err != nil {
			return nil, err
		}
	}
	return h.Store.Remove(ctx, queue, infos)
}

func mustSend(t *testing.T, q *later.Queue, payload string, opts ...later.SendOption) string {
	t.Helper()
	id, err := q.Send(t.Context(), []byte(payload), opts...)
	if err != nil {
		t.Fatalf("Send: %v", err)
	}
	return id
}

func mustReceive(t *testing.T, q *later.Queue, n int, opts ...later.ReceiveOption) []*later.Delivery {
	t.Helper()
	got, err := q.Receive(t.Context(), n, opts...)
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return got
}

func mustStats(t *testing.T, q *later.Queue) later.Stats {
	t.Helper()
	s, err := q.Stats(t.Context())
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	return s
}

// wantCounts checks the number of messages in each state.
func wantCounts(t *testing.T, q *later.Queue, scheduled, ready, leased, dead int64) {
	t.Helper()
	s := mustStats(t, q)
	got := [...]int64{s.Scheduled, s.Ready, s.Leased, s.Dead}
	if want := [...]int64{scheduled, ready, leased, dead}; got != want {
		t.Errorf("queue has scheduled, ready, leased, dead %d; want %d", got, want)
	}
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error is %v; want %v", err, want)
	}
}
