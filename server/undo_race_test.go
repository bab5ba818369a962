package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func TestOfSeveralUndosAtOnceOneRestores(t *testing.T) {
	onEachStore(t, func(a *api) {
		a.send("mail", "1", "2", "3")
		change := a.bulk(`{"filter": {"state": "ready"}, "action": "cancel"}`)["change"].(string)
		var all sync.WaitGroup
		var restored, refused atomic.Int64
		for range 8 {
			all.Go(func() {
				switch r := a.do(http.MethodPost, "/v1/changes/"+change+"/undo", nil); r.status {
				case http.StatusOK:
					restored.Add(1)
				case http.StatusConflict:
					refused.Add(1)
				default:
					t.Error(r.status, r.body)
				}
			})
		}
		all.Wait()
		stats, err := a.client.Queue("mail").Stats(t.Context())
		if restored.Load() != 1 || refused.Load() != 7 || err != nil || stats.Ready != 3 {
			t.Errorf("%d restored, %d were refused; %+v, %v", restored.Load(), refused.Load(), stats, err)
		}
	})
}

func TestTwoServersThatUndoAMoveAtOnceMoveItOnce(t *testing.T) {
	onTwoServers(t, func(a, b *api) {
		a.fill(20)
		before := a.infos("007")
		for range 20 {
			change := a.change(http.MethodPatch, mail+"/007?undoable=true", `{"in": "77h"}`)
			a.server.changes.Flush() // else the other server does not know it yet
			var all sync.WaitGroup
			var undone atomic.Int64
			for _, s := range []*api{a, b} {
				all.Go(func() {
					if r := s.do(http.MethodPost, "/v1/changes/"+change+"/undo", nil); r.status == http.StatusOK {
						undone.Add(1)
					}
				})
			}
			all.Wait()
			if undone.Load() != 1 {
				t.Errorf("%d undos succeeded", undone.Load())
			}
			a.same(before)
		}
	})
}

// A change can find a message twice, if it is moved while the change looks.
func TestUndoOfAMessageThatWasMovedTwiceByAChange(t *testing.T) {
	onEachStore(t, func(a *api) {
		a.fill(20)
		before := a.infos("007", "008")
		k := a.server.undos.begin()
		ctx := undo.WithLog(t.Context(), &k.log)
		for _, hours := range []time.Duration{77, 88} {
			results, err := a.client.Queue("mail").RescheduleBatch(ctx, []string{"007", "008", "007"}, later.In(hours*time.Hour))
			if err = errors.Join(append(results, err)...); err != nil {
				t.Fatal(err)
			}
		}
		c := a.server.changed(t.Context(), &undoable{right: access.Operate, kept: k}, "bulk change",
			slog.String("queue", "mail"))
		a.undo(c.ID)
		a.same(before)
	})
}

// TestUndoWhileWorkersRunLosesAndDoublesNothing cancels and restores messages while others receive them. Each message
// ends once: it is acked, or cancelled while it is leased.
func TestUndoWhileWorkersRunLosesAndDoublesNothing(t *testing.T) {
	for _, flow := range []string{`{}`, `{"fair": true, "key": {"order": "continue"}}`} {
		onEachStore(t, func(a *api) {
			a.do(http.MethodPut, "/v1/queues/mail/flow", flow).is(http.StatusOK)
			const n = 200
			q := a.client.Queue("mail")
			msgs := make([]later.Outgoing, n)
			for i := range msgs {
				msgs[i] = later.Outgoing{ID: fmt.Sprintf("%03d", i), Key: fmt.Sprint("key-", i%7)}
			}
			if _, err := q.SendBatch(t.Context(), msgs); err != nil {
				t.Fatal(err)
			}
			var ends [n]atomic.Int64
			var left atomic.Int64
			left.Store(n)
			end := func(id string) {
				var i int
				_, _ = fmt.Sscanf(id, "%d", &i)
				ends[i].Add(1)
				left.Add(-1)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { ackAll(ctx, t, q, &left, end) })
			}
			for part := range 4 {
				all.Go(func() {
					for i := part; i < n; i += 4 {
						r := a.do(http.MethodDelete, fmt.Sprintf("%s/%03d?undoable=true", mail, n-1-i), nil)
						switch {
						case r.status == http.StatusNotFound: // it is acked
						case r.header.Get("Later-Undoable") == "": // it was leased
							end(fmt.Sprintf("%03d", n-1-i))
						default:
							if got := a.undo(r.header.Get("Later-Change")); got["changed"] != 1.0 {
								t.Errorf("%v", got)
							}
						}
					}
				})
			}
			all.Wait()
			for i := range ends {
				if got := ends[i].Load(); got != 1 {
					t.Errorf("message %d ended %d times", i, got)
				}
			}
		})
	}
}

func ackAll(ctx context.Context, t *testing.T, q *later.Queue, left *atomic.Int64, acked func(id string)) {
	for left.Load() > 0 {
		waiting, stop := context.WithTimeout(ctx, 20*time.Millisecond)
		got, err := q.Receive(waiting, 5, later.Lease(30*time.Second))
		stop()
		if ctx.Err() != nil {
			t.Error("messages are left")
			return
		}
		if err != nil && waiting.Err() == nil {
			t.Error(err)
		}
		for _, d := range got {
			err := d.Ack(ctx)
			switch {
			case err == nil:
				acked(d.ID)
			case !errors.Is(err, later.ErrLeaseLost):
				t.Error(err)
			}
		}
	}
}

// losing is a store that loses the replies of some calls.
type losing struct {
	store.Store
	restores, removes, sends atomic.Int64 // replies to lose, from now on
}

func (l *losing) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	results, err := l.Store.Send(ctx, queue, msgs)
	if queue == "mail" && l.sends.Add(-1) >= 0 {
		return nil, store.ErrUnavailable
	}
	return results, err
}

func (l *losing) Restore(ctx context.Context, queue string, msgs []store.Info) ([]store.SendResult, error) {
	results, err := l.Store.Restore(ctx, queue, msgs)
	if l.restores.Add(-1) >= 0 {
		return nil, store.ErrUnavailable
	}
	return results, err
}

func (l *losing) Remove(ctx context.Context, queue string, msgs []store.Info) ([]bool, error) {
	removed, err := l.Store.Remove(ctx, queue, msgs)
	if l.removes.Add(-1) >= 0 {
		return nil, store.ErrUnavailable
	}
	return removed, err
}

func TestUndoWhoseReplyWasLostRestoresNoMessageTwice(t *testing.T) {
	for name, url := range map[string]func() string{
		"redis":    func() string { return redistest.Start(t).URL() },
		"embedded": func() string { return "file://" + t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			opened, err := later.Open(t.Context(), url())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := opened.Close(); err != nil {
					t.Error(err)
				}
			})
			s := &losing{Store: unclosed{opened.Store()}}
			c, err := later.New(s)
			if err != nil {
				t.Fatal(err)
			}
			a := newAPIOver(t, c, Config{})
			a.send("mail", "1", "2")
			change := a.bulk(`{"filter": {"state": "ready"}, "action": "cancel"}`)["change"].(string)
			s.restores.Store(1)
			a.do(http.MethodPost, "/v1/changes/"+change+"/undo", nil).fails(http.StatusServiceUnavailable, "unavailable", "")
			d, err := c.Queue("mail").Receive(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if err := d[0].Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := a.undo(change); got["changed"] != 2.0 {
				t.Errorf("%v", got)
			}
			stats, err := c.Queue("mail").Stats(t.Context())
			if err != nil || stats.Ready != 1 {
				t.Errorf("%+v, %v", stats, err)
			}
			s.removes.Store(1)
			op := a.bulk(`{"filter": {"state": "ready"}, "action": "cancel"}`)
			if op["state"] != "failed" || op["changed"] != 0.0 {
				t.Errorf("%v", op)
			}
			a.refuses(op["change"].(string)) // it may have been left, and handled since
		})
	}
}

// A repeated undo finds the messages as they were before the change, and says so.
func TestUndoOfAMoveWhoseReplyWasLostIsRepeated(t *testing.T) {
	s := &losing{Store: memstore.New()}
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	a := newAPIOver(t, c, Config{})
	a.fill(3)
	before := a.infos("000", "001", "002")
	shifted := a.bulk(`{"filter": {"state": "scheduled"}, "action": "shift", "by": "3h"}`)["change"].(string)
	edited := a.change(http.MethodPatch, mail+"/001?undoable=true", `{"payload": 1, "in": "7h"}`)
	for _, one := range []struct {
		change string
		n      float64
	}{{edited, 1}, {shifted, 3}} {
		s.sends.Store(1)
		a.do(http.MethodPost, "/v1/changes/"+one.change+"/undo", nil).fails(http.StatusServiceUnavailable, "unavailable", "")
		if got := a.undo(one.change); got["changed"] != one.n || got["skipped"] != 0.0 {
			t.Errorf("%v", got)
		}
	}
	a.same(before)
}

// breaking is a store that restores nothing after some calls.
type breaking struct {
	store.Store
	calls atomic.Int64
}

func (b *breaking) Restore(ctx context.Context, queue string, msgs []store.Info) ([]store.SendResult, error) {
	if b.calls.Add(-1) < 0 {
		return nil, store.ErrUnavailable
	}
	return b.Store.Restore(ctx, queue, msgs)
}

func TestUndoThatFailedInTheMiddleIsListedAndRepeated(t *testing.T) {
	s := &breaking{Store: memstore.New()}
	c, err := later.New(s)
	if err != nil {
		t.Fatal(err)
	}
	a := newAPIOver(t, c, Config{})
	a.fill(600)
	change := a.bulk(`{"filter": {"state": "scheduled"}, "action": "cancel"}`)["change"].(string)
	s.calls.Store(1)
	failed := a.undo(change)
	list, _ := a.changes("?limit=1")
	if failed["state"] != "failed" || failed["changed"] != 500.0 ||
		!strings.Contains(list, "undone in part mail map[count:500") {
		t.Errorf("%v, %s", failed, list)
	}
	s.calls.Store(9)
	a.undo(change)
	if stats, err := c.Queue("mail").Stats(t.Context()); err != nil || stats.Scheduled != 600 {
		t.Errorf("%+v, %v", stats, err)
	}
	if list, _ := a.changes("?limit=1"); !strings.Contains(list, "change undone mail map[count:600") {
		t.Error(list)
	}
}

// unclosed is a store that another client closes.
type unclosed struct{ store.Store }

func (unclosed) Close() error { return nil }

func TestUndoInAQueueWithShards(t *testing.T) {
	onEachStore(t, func(a *api) {
		a.fill(300)
		a.send("mail", "ready", "ready too")
		a.do(http.MethodPut, shardsPath, `{"shards": 4}`).is(http.StatusAccepted) // they move meanwhile
		var ids []string
		for i := range 300 {
			ids = append(ids, fmt.Sprintf("%03d", i))
		}
		before := a.infos(append(ids, "ready", "ready too")...)
		for _, state := range []string{"scheduled", "ready"} {
			op := a.bulk(`{"filter": {"state": "` + state + `"}, "action": "cancel"}`)
			if got := a.undo(op["change"].(string)); got["changed"] != op["changed"] || got["skipped"] != 0.0 {
				t.Errorf("%s: %v, was %v", state, got, op)
			}
		}
		op := a.bulk(`{"filter": {"state": "scheduled"}, "action": "shift", "by": "3h"}`)
		if got := a.undo(op["change"].(string)); got["changed"] != 300.0 {
			t.Errorf("%v", got)
		}
		a.same(before)
	})
}

func TestUndoOfAMessageThatHaltedItsKey(t *testing.T) {
	onEachStore(t, func(a *api) {
		q := a.client.Queue("mail")
		a.do(http.MethodPut, "/v1/queues/mail/flow", `{"fair": true, "key": {"order": "halt"}}`).is(http.StatusOK)
		for _, id := range []string{"1", "2", "3"} {
			if _, err := q.Send(t.Context(), nil, later.WithID(id), later.Key("k")); err != nil {
				t.Fatal(err)
			}
		}
		d, err := q.Receive(t.Context(), 3)
		if err != nil || len(d) != 1 || d[0].ID != "1" {
			t.Fatal(d, err)
		}
		if err := d[0].Bury(t.Context(), errors.New("no")); err != nil {
			t.Fatal(err)
		}
		before := a.infos("1", "2", "3")
		if got := a.undo(a.change(http.MethodDelete, mail+"/1?undoable=true", nil)); got["changed"] != 1.0 {
			t.Errorf("%v", got)
		}
		a.same(before)
		if got := a.undo(a.change(http.MethodDelete, mail+"/2?undoable=true", nil)); got["changed"] != 1.0 {
			t.Errorf("%v", got)
		}
		a.same(before)
		for _, want := range []string{"2", "3"} { // the key goes on once the message that halted it was cancelled
			d, err := q.Receive(t.Context(), 1)
			if err != nil || len(d) != 1 || d[0].ID != want {
				t.Fatal(want, d, err)
			}
			if err := d[0].Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}
