package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestReceiveChecksItsArguments(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	for _, err := range []error{
		second(q.Receive(t.Context(), 0)),
		second(q.Receive(t.Context(), store.MaxBatch+1)),
		second(q.Receive(t.Context(), 1, Lease(time.Millisecond))),
		second(q.Receive(t.Context(), 1, Lease(time.Second), Lease(time.Second))),
	} {
		wantError(t, err, ErrInvalid)
	}
}

func TestReceiveBlocksUntilAMessageIsDueOrItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		begin := time.Now()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
		defer cancel()
		if _, err := q.Receive(ctx, 1); err == nil || err.Error() != "enough" || time.Since(begin) != time.Minute {
			t.Errorf("Receive returned %v after %v", err, time.Since(begin))
		}
		go func() {
			time.Sleep(time.Hour)
			mustSend(t, q, "")
		}()
		mustReceive(t, q, 10)
		if waited := time.Since(begin); waited != time.Hour+time.Minute {
			t.Errorf("Receive waited %v", waited)
		}
	})
}

func TestReceiveReleasesMessagesClaimedAfterItsContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		q := newClientOn(t, f).Queue("q")
		mustSend(t, q, "")
		let := make(chan struct{})
		f.set(nil, func(_ context.Context, call string) error {
			if call == "claim" {
				<-let
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := q.Receive(ctx, 1)
		wantError(t, err, context.DeadlineExceeded)
		wantCounts(t, q, 0, 0, 1, 0)
		close(let)
		synctest.Wait()
		wantCounts(t, q, 0, 1, 0, 0)
		f.set(nil, nil)
		if d := mustReceive(t, q, 1)[0]; d.Attempt != 1 {
			t.Errorf("attempt is %d; a release must not count as an attempt", d.Attempt)
		}
	})
}

func TestReceiveEndsWhenTheClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		result := make(chan error)
		go func() {
			_, err := c.Queue("q").Receive(context.Background(), 1)
			result <- err
		}()
		synctest.Wait()
		go c.Close()
		wantError(t, <-result, ErrClosed)
		_, err := c.Queue("q").Receive(context.Background(), 1)
		wantError(t, err, ErrClosed)
	})
}

func TestReceiveReturnsTheErrorOfTheStore(t *testing.T) {
	f := &faulty{Store: memstore.New()}
	q := newClientOn(t, f).Queue("q")
	f.set(unavailable("claim"), nil)
	_, err := q.Receive(t.Context(), 1)
	wantError(t, err, ErrUnavailable)
	f.set(unavailable("wait"), nil)
	_, err = q.Receive(t.Context(), 1)
	wantError(t, err, ErrUnavailable)
}

func TestDeliveryReturnsWhenItsLeaseEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "")
		begin := time.Now()
		first := mustReceive(t, q, 1, Lease(10*time.Second))[0]
		again := mustReceive(t, q, 1)[0]
		if again.Attempt != 2 || time.Since(begin) != 10*time.Second {
			t.Errorf("attempt %d after %v", again.Attempt, time.Since(begin))
		}
		wantError(t, first.Ack(t.Context()), ErrLeaseLost)
		wantCounts(t, q, 0, 0, 1, 0) // it still belongs to the new holder
		if err := again.Ack(t.Context()); err != nil {
			t.Errorf("the new holder's ack: %v", err)
		}
	})
}

func TestDeliveryLateNackCreatesNoSecondCopy(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "")
		first := mustReceive(t, q, 1, Lease(time.Second))[0]
		again := mustReceive(t, q, 1)[0]
		wantError(t, first.Nack(t.Context(), 0, errors.New("late")), ErrLeaseLost)
		wantCounts(t, q, 0, 0, 1, 0)
		if err := again.Ack(t.Context()); err != nil {
			t.Error(err)
		}
		wantError(t, first.Nack(t.Context(), 0, nil), ErrLeaseLost)
		wantCounts(t, q, 0, 0, 0, 0)
	})
}

func TestDeliverySettles(t *testing.T) {
	settles := map[string]struct {
		settle func(context.Context, *Delivery) error
		check  func(t *testing.T, q *Queue)
	}{
		"ack": {
			func(ctx context.Context, d *Delivery) error { return d.Ack(ctx) },
			func(t *testing.T, q *Queue) { wantCounts(t, q, 0, 0, 0, 0) },
		},
		"nack": {
			func(ctx context.Context, d *Delivery) error { return d.Nack(ctx, time.Hour, errors.New("no")) },
			func(t *testing.T, q *Queue) {
				wantCounts(t, q, 1, 0, 0, 0)
				if info, _ := q.Get(t.Context(), "id"); info.LastError != "no" || info.Attempts != 1 {
					t.Errorf("info is %+v", info)
				}
				if d := mustReceive(t, q, 1)[0]; d.Attempt != 2 {
					t.Errorf("attempt is %d", d.Attempt)
				}
			},
		},
		"snooze": {
			func(ctx context.Context, d *Delivery) error { return d.Snooze(ctx, time.Hour) },
			func(t *testing.T, q *Queue) {
				begin := time.Now()
				if d := mustReceive(t, q, 1)[0]; d.Attempt != 1 || time.Since(begin) != time.Hour {
					t.Errorf("attempt %d after %v", d.Attempt, time.Since(begin))
				}
			},
		},
		"bury": {
			func(ctx context.Context, d *Delivery) error { return d.Bury(ctx, errors.New("bad")) },
			func(t *testing.T, q *Queue) {
				wantCounts(t, q, 0, 0, 0, 1)
				if info, _ := q.Get(t.Context(), "id"); info.LastError != "bad" || info.DeadReason != DeadBuried {
					t.Errorf("info is %+v", info)
				}
			},
		},
		"release": {
			func(ctx context.Context, d *Delivery) error { return d.Release(ctx) },
			func(t *testing.T, q *Queue) {
				if d := mustReceive(t, q, 1)[0]; d.Attempt != 1 {
					t.Errorf("attempt is %d", d.Attempt)
				}
			},
		},
	}
	for name, s := range settles {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Client) {
				q := c.Queue("q")
				mustSend(t, q, "", WithID("id"))
				d := mustReceive(t, q, 1)[0]
				if err := s.settle(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				// Only an ack may be repeated, and only after an ack.
				if err := d.Ack(t.Context()); (err == nil) != (name == "ack") || err != nil && !errors.Is(err, ErrLeaseLost) {
					t.Errorf("ack after %s: %v", name, err)
				}
				wantError(t, d.Nack(t.Context(), 0, nil), ErrLeaseLost)
				s.check(t, q)
			})
		})
	}
}

func TestDeliveryRefusesDelaysThatAreTooLong(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	mustSend(t, q, "")
	d := mustReceive(t, q, 1)[0]
	wantError(t, d.Nack(t.Context(), store.MaxDelay+time.Second, nil), ErrInvalid)
	wantError(t, d.Snooze(t.Context(), store.MaxDelay+time.Second), ErrInvalid)
	wantError(t, d.Extend(t.Context(), 0), ErrInvalid)
}

func TestDeliveryExtendExtendsAllMessagesOfAReceive(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "a")
		mustSend(t, q, "b")
		got := mustReceive(t, q, 2, Lease(10*time.Second))
		for range 5 {
			time.Sleep(9 * time.Second)
			if err := got[0].Extend(t.Context(), 10*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range got {
			if err := d.Ack(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestDeliveryExtendReportsCancellationAndLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "", WithID("a"))
		mustSend(t, q, "", WithID("b"))
		got := mustReceive(t, q, 2)
		if state, err := q.Cancel(t.Context(), "b"); state != StateLeased || err != nil {
			t.Fatalf("Cancel: %q, %v", state, err)
		}
		if err := got[0].Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("Extend of the other message: %v", err)
		}
		wantError(t, got[1].Extend(t.Context(), time.Minute), ErrCancelled)
		wantError(t, got[1].Ack(t.Context()), ErrLeaseLost)
		time.Sleep(time.Minute)
		err := got[0].Extend(t.Context(), time.Minute)
		if !errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrCancelled) {
			t.Errorf("Extend after the lease: %v", err)
		}
	})
}

func TestDeliveryAckCanBeRepeatedAfterALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		q := newClientOn(t, f).Queue("q")
		mustSend(t, q, "")
		d := mustReceive(t, q, 1)[0]
		f.set(nil, unavailable("settle"))
		wantError(t, d.Ack(t.Context()), ErrUnavailable)
		f.set(nil, nil)
		if err := d.Ack(t.Context()); err != nil {
			t.Errorf("repeated Ack returned %v", err)
		}
	})
}

// The lease is held and the settle refused: only the message shows whether the earlier call arrived or the message was
// cancelled.
func TestDeliverySettleThatNeverArrivedIsRefusedAfterACancel(t *testing.T) {
	reason := errors.New("no")
	for name, settle := range map[string]func(ctx context.Context, d *Delivery) error{
		"nack":    func(ctx context.Context, d *Delivery) error { return d.Nack(ctx, time.Second, reason) },
		"snooze":  func(ctx context.Context, d *Delivery) error { return d.Snooze(ctx, time.Second) },
		"release": func(ctx context.Context, d *Delivery) error { return d.Release(ctx) },
		"bury":    func(ctx context.Context, d *Delivery) error { return d.Bury(ctx, reason) },
	} {
		for _, arrived := range []bool{false, true} {
			for _, resent := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, arrived %t, sent again %t", name, arrived, resent), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := &faulty{Store: memstore.New()}
						q := newClientOn(t, f).Queue("q")
						mustSend(t, q, "", WithID("m"))
						d := mustReceive(t, q, 1)[0]
						if f.set(unavailable("settle"), nil); arrived {
							f.set(nil, unavailable("settle"))
						}
						wantError(t, settle(t.Context(), d), ErrUnavailable)
						f.set(nil, nil)
						if !arrived || resent {
							if _, err := q.Cancel(t.Context(), "m"); err != nil {
								t.Fatal(err)
							}
						}
						if time.Sleep(time.Millisecond); resent {
							mustSend(t, q, "", WithID("m"))
						}
						var want error
						if !arrived || resent {
							want = ErrLeaseLost
						}
						if err := settle(t.Context(), d); !errors.Is(err, want) {
							t.Errorf("repeated settle returned %v, want %v", err, want)
						}
					})
				})
			}
		}
	}
}

func TestDeliveryAckRepeatedAfterTheLeaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		q := newClientOn(t, f).Queue("q")
		mustSend(t, q, "")
		d := mustReceive(t, q, 1, Lease(time.Second))[0]
		f.set(unavailable("settle"), nil)
		wantError(t, d.Ack(t.Context()), ErrUnavailable)
		f.set(nil, nil)
		time.Sleep(time.Second)
		wantError(t, d.Ack(t.Context()), ErrLeaseLost)
	})
}

func TestReceiveAfterHoursAwayLosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var want []string
		for i := range 1200 {
			want = append(want, mustSend(t, q, "", In(time.Duration(i)*time.Minute)))
		}
		time.Sleep(48 * time.Hour)
		var got []string
		for len(got) < len(want) {
			for _, d := range mustReceive(t, q, store.MaxBatch) {
				got = append(got, d.ID)
				if err := d.Ack(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Error("messages were not received in the order of their due times")
		}
	})
}

func TestReceiveReportsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		c := newClientOn(t, memstore.New(), WithObserver(seen.add))
		q := c.Queue("q")
		mustSend(t, q, "", WithID("a"), MaxAttempts(1))
		q.Send(t.Context(), nil, WithID("a"))
		time.Sleep(time.Second)
		d := mustReceive(t, q, 1)[0]
		reason := errors.New("no")
		if err := d.Nack(t.Context(), 0, reason); err != nil {
			t.Fatal(err)
		}
		d.Ack(t.Context())
		want := []EventKind{EventSent, EventDuplicate, EventClaimed, EventNacked, EventDied}
		if got := seen.kinds("a"); !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		if e := seen.of(EventNacked)[0]; e.Err != reason || e.Lateness != time.Second || e.Attempt != 1 || e.Queue != "q" {
			t.Errorf("event %+v", e)
		}
	})
}

func TestSnoozeResetsAttemptsIfAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		var attempts []int
		w := NewWorker(c, WorkerConfig{Backoff: ConstantBackoff(time.Second)})
		w.Handle("q", func(_ context.Context, m *Message) error {
			switch attempts = append(attempts, m.Attempt); len(attempts) {
			case 1, 3:
				return errors.New("no")
			case 2:
				return Snooze(time.Second, ResetAttempts)
			case 4:
				return Snooze(time.Second)
			}
			return Snooze(time.Hour)
		})
		start(t, w)
		mustSend(t, q, "", MaxAttempts(3))
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(attempts, []int{1, 2, 1, 2, 2}) {
			t.Errorf("attempts %v", attempts)
		}
	})
}

func TestDeliverySnoozeResetsAttemptsIfAsked(t *testing.T) {
	q := newClientOn(t, memstore.New()).Queue("q")
	mustSend(t, q, "", WithID("a"))
	if err := mustReceive(t, q, 1)[0].Nack(t.Context(), 0, errors.New("no")); err != nil {
		t.Fatal(err)
	}
	if err := mustReceive(t, q, 1)[0].Snooze(t.Context(), 0, ResetAttempts); err != nil {
		t.Fatal(err)
	}
	if info, err := q.Get(t.Context(), "a"); err != nil || info.Attempts != 0 || len(info.Failures) != 1 {
		t.Errorf("Get returned %+v, %v", info, err)
	}
}
