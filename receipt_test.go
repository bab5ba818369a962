package later

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// fromReceipt returns the delivery of a receipt, as another process would get it.
func fromReceipt(t *testing.T, q *Queue, receipt string) *Delivery {
	t.Helper()
	d, err := q.Delivery(receipt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestReceiptIsRefusedUnlessItIsOneOfTheQueue(t *testing.T) {
	c := newClientOn(t, memstore.New())
	q := c.Queue("q")
	mustSend(t, q, "")
	receipt := mustReceive(t, q, 1)[0].Receipt()
	if len(receipt) > store.MaxReceipt {
		t.Errorf("receipt has %d bytes", len(receipt))
	}
	for name, err := range map[string]error{
		"another queue": second(c.Queue("p").Delivery(receipt)),
		"bad queue":     second(c.Queue("{}").Delivery(receipt)),
		"empty":         second(q.Delivery("")),
		"cut":           second(q.Delivery(receipt[:len(receipt)-1])),
		"no receipt":    second(q.Delivery("receipt")),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReceiptKeepsTheDedupWindowAndTheAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		mustSend(t, q, "", WithID("id"), DedupWindow(time.Hour))
		if err := mustReceive(t, q, 1)[0].Nack(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
		original := mustReceive(t, q, 1)[0]
		d := fromReceipt(t, q, original.Receipt())
		if d.ID != "id" || d.Queue != "q" || d.Attempt != 2 || d.Receipt() != original.Receipt() {
			t.Errorf("delivery is %+v", d.Message)
		}
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantError(t, second(q.Send(t.Context(), nil, WithID("id"))), ErrDuplicate)
	})
}

func TestReceiptAckCanBeRepeatedAfterALostReply(t *testing.T) {
	for name, c := range map[string]struct {
		extend bool
		wait   time.Duration
		want   error
	}{
		"while the lease is held":  {false, 29 * time.Second, nil},
		"after the lease":          {false, 30 * time.Second, ErrLeaseLost},
		"while the lease extended": {true, 59 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &faulty{Store: memstore.New()}
				q := newClientOn(t, f).Queue("q")
				mustSend(t, q, "")
				original := mustReceive(t, q, 1)[0]
				if c.extend {
					if err := original.Extend(t.Context(), time.Minute); err != nil {
						t.Fatal(err)
					}
				}
				d := fromReceipt(t, q, original.Receipt())
				f.set(nil, unavailable("settle"))
				wantError(t, d.Ack(t.Context()), ErrUnavailable)
				f.set(nil, nil)
				time.Sleep(c.wait)
				if err := d.Ack(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("repeated Ack returned %v, want %v", err, c.want)
				}
			})
		})
	}
}

func TestReceiptExtendReportsACancel(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		q := c.Queue("q")
		id := mustSend(t, q, "")
		d := fromReceipt(t, q, mustReceive(t, q, 1)[0].Receipt())
		if _, err := q.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		wantError(t, d.Extend(t.Context(), time.Minute), ErrCancelled)
	})
}

func TestReceiptOfAQueueThatIsNotAllowedIsRefused(t *testing.T) {
	c := newClientOn(t, memstore.New())
	mustSend(t, c.Queue("q"), "")
	receipt := mustReceive(t, c.Queue("q"), 1)[0].Receipt()
	_, err := c.Queue("").Delivery(receipt)
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "queue name is empty") {
		t.Errorf("%v", err)
	}
}
