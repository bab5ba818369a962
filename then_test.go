package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// linkedFaulty is a faulty store that writes follow-ups with acks. A plain one does not.
type linkedFaulty struct{ *faulty }

func (linkedFaulty) Linked(string, string) bool { return true }

// eachLink runs a test with a store that writes follow-ups with acks, and with one that does not.
func eachLink(t *testing.T, f func(t *testing.T, s *faulty, c *Client, linked bool)) {
	for _, linked := range []bool{true, false} {
		t.Run(fmt.Sprintf("linked %v", linked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &faulty{Store: memstore.New()}
				if linked {
					f(t, s, newClientOn(t, linkedFaulty{s}), linked)
				} else {
					f(t, s, newClientOn(t, s), linked)
				}
			})
		})
	}
}

// payloads returns the payloads of the ready messages of a queue, in order, and acks them.
func payloads(t *testing.T, q *Queue) (got []string) {
	t.Helper()
	for mustStats(t, q).Ready > 0 {
		d := mustReceive(t, q, 1)[0]
		got = append(got, string(d.Payload))
		wantNoError(t, d.Ack(t.Context()))
	}
	return got
}

func wantNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantPayloads(t *testing.T, q *Queue, want ...string) {
	t.Helper()
	if got := payloads(t, q); !slices.Equal(got, want) {
		t.Errorf("queue %q has %q, want %q", q.Name(), got, want)
	}
}

func TestThenAcksAndSends(t *testing.T) {
	eachLink(t, func(t *testing.T, _ *faulty, c *Client, linked bool) {
		w := NewWorker(c, WorkerConfig{})
		w.Handle("orders", func(_ context.Context, m *Message) error {
			return Then("mail", m.Payload).Then("audit", []byte("late"), In(time.Hour), Header("kind", "audit"), WithID("mine"))
		})
		start(t, w)
		mustSend(t, c.Queue("orders"), "hello")
		synctest.Wait()
		wantCounts(t, c.Queue("orders"), 0, 0, 0, 0)
		wantCounts(t, c.Queue("mail"), 0, 1, 0, 0)
		wantPayloads(t, c.Queue("mail"), "hello")
		info, err := c.Queue("audit").Get(t.Context(), "mine")
		if err != nil || info.State != StateScheduled || info.Headers["kind"] != "audit" {
			t.Fatal(info, err)
		}
		if window := info.DedupWindow; (window == 0) != linked {
			t.Errorf("dedup window %v of a follow-up, linked %v", window, linked)
		}
		time.Sleep(time.Hour)
		wantPayloads(t, c.Queue("audit"), "late")
	})
}

func TestThenIsSentOnceWhenTheAckFails(t *testing.T) {
	for _, arrived := range []bool{false, true} {
		t.Run(fmt.Sprintf("the ack arrived %v", arrived), func(t *testing.T) {
			eachLink(t, func(t *testing.T, s *faulty, c *Client, _ bool) {
				w := NewWorker(c, WorkerConfig{Lease: 10 * time.Second})
				w.Handle("orders", func(context.Context, *Message) error { return Then("mail", []byte("hello")) })
				var mailed atomic.Int32
				w.Handle("mail", func(context.Context, *Message) error { mailed.Add(1); return nil })
				start(t, w)
				if s.set(unavailable("settle"), nil); arrived {
					s.set(nil, unavailable("settle"))
				}
				mustSend(t, c.Queue("orders"), "")
				time.Sleep(time.Second)
				s.set(nil, nil)
				time.Sleep(time.Minute) // repeated, or delivered again after the lease
				if n := mailed.Load(); n != 1 {
					t.Errorf("the follow-up was delivered %d times", n)
				}
				wantCounts(t, c.Queue("orders"), 0, 0, 0, 0)
				wantCounts(t, c.Queue("mail"), 0, 0, 0, 0)
			})
		})
	}
}

// A worker that is killed between the sends and the ack leaves its lease to end; another one repeats the message.
func TestThenIsSentOnceWhenAWorkerDiesBeforeTheAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New()}
		c := newClientOn(t, s)
		mustSend(t, c.Queue("orders"), "")
		for attempt := range 3 {
			d := mustReceive(t, c.Queue("orders"), 1)[0]
			s.set(unavailable("settle"), nil)
			wantError(t, d.AckThen(t.Context(), Then("mail", []byte("hello")).Then("mail", []byte("again"))), ErrUnavailable)
			s.set(nil, nil)
			if attempt == 0 {
				wantPayloads(t, c.Queue("mail"), "hello", "again")
			} else {
				wantPayloads(t, c.Queue("mail")) // handled before, and remembered
			}
			time.Sleep(defaultLease)
		}
	})
}

func TestThenFailsTheAttemptWhenAFollowUpCannotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New()}
		c := newClientOn(t, s)
		w := NewWorker(c, WorkerConfig{Backoff: ConstantBackoff(time.Minute)})
		w.Handle("orders", func(context.Context, *Message) error {
			s.set(unavailable("send"), nil)
			return Then("mail", []byte("hello"))
		})
		id := mustSend(t, c.Queue("orders"), "")
		stop := start(t, w)
		synctest.Wait()
		info, err := c.Queue("orders").Get(t.Context(), id)
		if err != nil || info.State != StateScheduled || info.Attempts != 1 ||
			!strings.Contains(info.LastError, `follow-up in queue "mail" could not be sent`) {
			t.Errorf("%+v, %v", info, err)
		}
		wantNoError(t, stop())
	})
}

func TestThenThatIsNotAllowedFailsTheAttempt(t *testing.T) {
	many := Then("q", nil)
	for range store.MaxBatch {
		many.Then("q", nil)
	}
	large := make([]byte, store.MaxPayload)
	heavy := Then("q", large)
	for range 4 {
		heavy.Then("q", large)
	}
	typed := TypedQueue[any](mustNew(t, memstore.New()).Queue("q"))
	for name, c := range map[string]struct {
		then *FollowUps
		want string
		kind error
	}{
		"queue":          {Then("a{b}", nil), `queue name "a{b}"`, ErrInvalid},
		"payload":        {Then("q", append(large, 0)), "payload is 1048577 bytes", ErrTooLarge},
		"option":         {Then("q", nil, nil), "option 0 is nil", ErrInvalid},
		"the second":     {Then("q", nil).Then("", nil), `follow-up 1, in queue "": queue name is empty`, ErrInvalid},
		"the first of 2": {Then("", nil).Then("{", nil), "queue name is empty", ErrInvalid},
		"number":         {many, "more than 500", ErrTooLarge},
		"size":           {heavy, "5242880", ErrTooLarge},
		"its own id":     {Then("orders", nil, WithID("m")), "id and the queue of the message", ErrInvalid},
		"not encodable":  {typed.Then(func() {}), "cannot be encoded", ErrInvalid},
		"not durable":    {Then("q", nil, Durable(0, time.Second)), "not durable", ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, client *Client) {
				q := client.Queue("orders")
				mustSend(t, q, "", WithID("m"))
				d := mustReceive(t, q, 1)[0]
				err := d.AckThen(t.Context(), c.then)
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("AckThen returns %v, want %q", err, c.want)
				}
				wantNoError(t, d.Release(t.Context()))

				w := NewWorker(client, WorkerConfig{})
				w.Handle("orders", func(context.Context, *Message) error { return c.then })
				stop := start(t, w)
				synctest.Wait()
				info, err := q.Get(t.Context(), "m")
				if err != nil || info.Attempts != 1 || !strings.Contains(info.LastError, c.want) {
					t.Errorf("%+v, %v, want the reason %q", info, err, c.want)
				}
				wantNoError(t, stop())
				wantCounts(t, client.Queue("q"), 0, 0, 0, 0)
			})
		})
	}
}

func TestThenAfterTheTimeLimitFailsTheAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Timeout: time.Second})
		w.Handle("orders", func(ctx context.Context, _ *Message) error {
			<-ctx.Done()
			return Then("mail", nil)
		})
		id := mustSend(t, c.Queue("orders"), "")
		start(t, w)
		time.Sleep(time.Second)
		synctest.Wait()
		info, err := c.Queue("orders").Get(t.Context(), id)
		if err != nil || info.Attempts != 1 || !strings.Contains(info.LastError, "time limit") {
			t.Errorf("%+v, %v", info, err)
		}
		wantCounts(t, c.Queue("mail"), 0, 0, 0, 0)
	})
}

// A panic is a failed attempt, whatever its value is.
func TestPanicWithFollowUpsFailsTheAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Backoff: ConstantBackoff(time.Hour)})
		w.Handle("orders", func(context.Context, *Message) error { panic(Then("mail", nil)) })
		w.HandleBatch("batches", func(context.Context, []*Message) []error {
			panic(fmt.Errorf("must: %w", Then("mail", nil)))
		}, BatchConfig{})
		ids := map[string]string{}
		for _, queue := range []string{"orders", "batches"} {
			ids[queue] = mustSend(t, c.Queue(queue), "")
		}
		start(t, w)
		time.Sleep(time.Minute)
		synctest.Wait()
		for queue, id := range ids {
			info, err := c.Queue(queue).Get(t.Context(), id)
			if err != nil || info.Attempts != 1 || !strings.Contains(info.LastError, "panic") {
				t.Errorf("%s: %+v, %v", queue, info, err)
			}
		}
		wantCounts(t, c.Queue("mail"), 0, 0, 0, 0)
	})
}

func TestThenFollowsEachMessageWithTheSameID(t *testing.T) {
	eachLink(t, func(t *testing.T, _ *faulty, c *Client, _ bool) {
		for i := range 3 {
			mustSend(t, c.Queue("orders"), "", WithID("order-42"))
			d := mustReceive(t, c.Queue("orders"), 1)[0]
			wantNoError(t, d.AckThen(t.Context(), Then("mail", fmt.Append(nil, i))))
			time.Sleep(time.Second)
		}
		wantPayloads(t, c.Queue("mail"), "0", "1", "2")
	})
}

func TestThenIsReportedToTheObserver(t *testing.T) {
	for _, linked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var sent []string // calls of the observer come one after the other here
			observe := WithObserver(func(e Event) {
				if e.Kind == EventSent {
					sent = append(sent, e.Queue)
				}
			})
			var s store.Store = &faulty{Store: memstore.New()}
			if linked {
				s = linkedFaulty{s.(*faulty)}
			}
			c := newClientOn(t, s, observe)
			mustSend(t, c.Queue("orders"), "")
			wantNoError(t, mustReceive(t, c.Queue("orders"), 1)[0].AckThen(t.Context(), Then("mail", nil).Then("audit", nil)))
			if want := []string{"orders", "mail", "audit"}; !slices.Equal(sent, want) {
				t.Errorf("sends to %q were reported, want %q", sent, want)
			}
		})
	}
}

func TestAckThenIsRefusedWithoutTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		mustSend(t, c.Queue("orders"), "")
		d := mustReceive(t, c.Queue("orders"), 1)[0]
		time.Sleep(defaultLease)
		wantError(t, d.AckThen(t.Context(), Then("mail", nil)), ErrLeaseLost)
		wantCounts(t, c.Queue("mail"), 0, 0, 0, 0)
		again := mustReceive(t, c.Queue("orders"), 1)[0]
		wantNoError(t, again.AckThen(t.Context(), Then("mail", nil)))
		wantNoError(t, again.AckThen(t.Context(), Then("mail", nil)))
		wantError(t, again.Nack(t.Context(), 0, nil), ErrLeaseLost)
		wantCounts(t, c.Queue("mail"), 0, 1, 0, 0)
	})
}

func TestAckThenWithoutFollowUpsIsAnAck(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		mustSend(t, c.Queue("q"), "")
		wantNoError(t, mustReceive(t, c.Queue("q"), 1)[0].AckThen(t.Context(), nil))
		wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
	})
}

// countingStore counts the follow-ups of each Settle.
type countingStore struct {
	*memstore.Store
	mu   sync.Mutex
	most int
}

func (s *countingStore) Settle(
	ctx context.Context, queue string, all []store.Settlement,
) ([]store.SettleResult, error) {
	n := 0
	for i := range all {
		n += len(all[i].Then)
	}
	s.mu.Lock()
	s.most = max(s.most, n)
	s.mu.Unlock()
	return s.Store.Settle(ctx, queue, all)
}

func TestSettleHasNoMoreFollowUpsThanACallAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &countingStore{Store: memstore.New()}
		c := newClientOn(t, s)
		backlog(t, c.Queue("orders"), 100)
		w := NewWorker(c, WorkerConfig{Concurrency: 100})
		w.Handle("orders", func(_ context.Context, m *Message) error {
			f := Then("mail", m.Payload)
			for range 29 {
				f.Then("mail", m.Payload)
			}
			return f
		})
		start(t, w)
		synctest.Wait()
		wantCounts(t, c.Queue("mail"), 0, 3000, 0, 0)
		if s.most > store.MaxBatch || s.most < 100 {
			t.Errorf("a settle had %d follow-ups, want up to %d", s.most, store.MaxBatch)
		}
	})
}

func TestThenWithADedupWindowNeedsNoID(t *testing.T) {
	eachLink(t, func(t *testing.T, _ *faulty, c *Client, _ bool) {
		mustSend(t, c.Queue("q"), "")
		d := mustReceive(t, c.Queue("q"), 1)[0]
		wantNoError(t, d.AckThen(t.Context(), Then("next", []byte("x"), DedupWindow(time.Hour))))
		next := mustReceive(t, c.Queue("next"), 1)[0]
		if got, err := c.Queue("next").Get(t.Context(), next.ID); err != nil || got.DedupWindow != time.Hour {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestThenWithAModeSetByMiddlewareFailsTheAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		s := c.Store()
		c = newClientOn(t, s, WithSendMiddleware(func(_ context.Context, o *Outgoing) error {
			if o.Queue == "next" {
				o.OnDuplicate = Replace()
			}
			return nil
		}))
		mustSend(t, c.Queue("q"), "")
		d := mustReceive(t, c.Queue("q"), 1)[0]
		err := d.AckThen(t.Context(), Then("next", nil))
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "never changes a live message") {
			t.Errorf("AckThen: %v", err)
		}
		wantCounts(t, c.Queue("q"), 0, 0, 1, 0)
		wantCounts(t, c.Queue("next"), 0, 0, 0, 0)
	})
}

// refusingStore answers each message of a queue with an error of its own.
type refusingStore struct {
	*memstore.Store
	queue string
}

func (s refusingStore) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	if queue != s.queue {
		return s.Store.Send(ctx, queue, msgs)
	}
	results := make([]store.SendResult, len(msgs))
	for i := range results {
		results[i].Err = store.ErrNotDurable
	}
	return results, nil
}

func (refusingStore) Linked(string, string) bool { return false }

func TestThenFailsWhenTheStoreRefusesOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, refusingStore{memstore.New(), "next"})
		mustSend(t, c.Queue("q"), "")
		d := mustReceive(t, c.Queue("q"), 1)[0]
		wantError(t, d.AckThen(t.Context(), Then("next", nil)), ErrNotDurable)
		wantCounts(t, c.Queue("q"), 0, 0, 1, 0)
	})
}

// partlyLinked links the queue "q" with itself and with "near".
type partlyLinked struct{ *faulty }

func (partlyLinked) Linked(_, to string) bool { return to == "near" }

func TestThenIsSentFirstUnlessAllQueuesAreLinked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &faulty{Store: memstore.New()}
		var sent []string
		c := newClientOn(t, partlyLinked{s}, WithObserver(func(e Event) {
			if e.Kind == EventSent && e.Queue != "q" {
				sent = append(sent, e.Queue)
			}
		}))
		for range 2 { // the second time, the ids are known
			mustSend(t, c.Queue("q"), "", WithID("a"), OnDuplicate(Keep()))
			d := mustReceive(t, c.Queue("q"), 1)[0]
			d.SentAt = time.UnixMilli(1)
			s.set(func(_ context.Context, call string) error { // the follow-ups are there when the ack fails
				if call == "settle" {
					return ErrFull
				}
				return nil
			}, nil)
			wantError(t, d.AckThen(t.Context(), Then("far", nil).Then("near", nil)), ErrFull)
			s.set(nil, nil)
			wantCounts(t, c.Queue("far"), 0, 1, 0, 0)
			wantCounts(t, c.Queue("near"), 0, 1, 0, 0)
			wantNoError(t, d.Ack(t.Context()))
		}
		if got := strings.Join(sent, " "); got != "far near" {
			t.Errorf("reported as sent: %s", got)
		}
	})
}

func TestThenThatAsksForDurabilityWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &durabilityStore{Store: memstore.New()}
		c := newClientOn(t, s)
		mustSend(t, c.Queue("q"), "")
		d := mustReceive(t, c.Queue("q"), 1)[0]
		wantNoError(t, d.AckThen(t.Context(), Then("next", nil, Durable(1, time.Second)).Then("next", nil)))
		if s.asked != 1 || s.patience != callTimeout+time.Second {
			t.Errorf("asked for durability %d times, for %v", s.asked, s.patience)
		}
	})
}

// durabilityStore counts the messages that ask for durability, and how long their calls may take.
type durabilityStore struct {
	*memstore.Store
	asked    int
	patience time.Duration
}

func (s *durabilityStore) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	for i := range msgs {
		if msgs[i].Durable.Asked() {
			deadline, _ := ctx.Deadline()
			s.asked, s.patience = s.asked+1, time.Until(deadline)
			msgs[i].Durable = store.Durability{} // which memory does not have
		}
	}
	return s.Store.Send(ctx, queue, msgs)
}

// TestAckThenAfterASettleSendsNothing has a store without links, where the follow-ups are sent before the ack.
func TestAckThenAfterASettleSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, &faulty{Store: memstore.New()})
		mustSend(t, c.Queue("q"), "")
		d := mustReceive(t, c.Queue("q"), 1)[0]
		wantNoError(t, d.Ack(t.Context()))
		wantNoError(t, d.AckThen(t.Context(), Then("next", nil)))
		wantCounts(t, c.Queue("next"), 0, 0, 0, 0)
	})
}
