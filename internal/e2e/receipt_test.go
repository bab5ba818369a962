package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// TestReceiptSettlesAndExtendsWithAnotherClient receives with one client and settles with another. The other one has
// its own connections to Redis, or has opened the embedded store's directory after the first one has closed it.
func TestReceiptSettlesAndExtendsWithAnotherClient(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t).URL()
	for name, e := range map[string]struct {
		url   string
		alone bool // one client at a time can open the store
	}{
		"memory":   {"mem://" + store.NewID(), false},
		"embedded": {"file://" + filepath.ToSlash(t.TempDir()) + "/store", true},
		"redis":    {redis, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, name := open(t, e.url), newQueueName(t)
			q := client.Queue(name)
			bad := errors.New("bad")
			settles := map[string]func(context.Context, *later.Delivery) error{
				"ack":     func(ctx context.Context, d *later.Delivery) error { return d.Ack(ctx) },
				"nack":    func(ctx context.Context, d *later.Delivery) error { return d.Nack(ctx, time.Hour, bad) },
				"snooze":  func(ctx context.Context, d *later.Delivery) error { return d.Snooze(ctx, time.Hour) },
				"bury":    func(ctx context.Context, d *later.Delivery) error { return d.Bury(ctx, bad) },
				"release": func(ctx context.Context, d *later.Delivery) error { return d.Release(ctx) },
			}
			for id := range settles {
				send(t, q, "", later.WithID(id), later.DedupWindow(time.Hour))
			}
			receipts := map[string]string{}
			for _, d := range receive(t, q, len(settles), later.Lease(time.Minute)) {
				receipts[d.ID] = d.Receipt()
			}
			if e.alone {
				if err := client.Close(); err != nil {
					t.Fatal(err)
				}
			}

			other := open(t, e.url).Queue(name)
			delivery := func(id string) *later.Delivery {
				d, err := other.Delivery(receipts[id])
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			before := get(t, other, "ack").LeaseDeadline
			if err := delivery("nack").Extend(bounded(t), time.Hour); err != nil {
				t.Fatal(err)
			}
			if after := get(t, other, "ack").LeaseDeadline; after.Sub(before) < 50*time.Minute { // the whole claim
				t.Errorf("lease ends at %v, and ended at %v before Extend", after, before)
			}
			for id, settle := range settles {
				d := delivery(id)
				if err := settle(bounded(t), d); err != nil {
					t.Errorf("%s: %v", id, err)
				}
				if err := d.Ack(bounded(t)); (err == nil) != (id == "ack") {
					t.Errorf("ack of the same delivery after %s: %v", id, err)
				}
				for again, settle := range settles {
					if err := settle(bounded(t), delivery(id)); !errors.Is(err, later.ErrLeaseLost) {
						t.Errorf("%s of another delivery after %s: %v", again, id, err)
					}
				}
				err := delivery(id).Extend(bounded(t), time.Minute)
				if err != nil && !errors.Is(err, later.ErrLeaseLost) {
					t.Errorf("extend after %s: %v", id, err)
				}
			}
			if err := delivery("nack").Extend(bounded(t), time.Minute); !errors.Is(err, later.ErrLeaseLost) {
				t.Errorf("extend after the last settle: %v", err)
			}
			stats, err := other.Stats(bounded(t))
			if err != nil || stats.Scheduled != 2 || stats.Ready != 1 || stats.Dead != 1 || stats.Leased != 0 {
				t.Errorf("stats %+v, %v", stats, err)
			}
			if _, err := other.Send(bounded(t), nil, later.WithID("ack")); !errors.Is(err, later.ErrDuplicate) {
				t.Errorf("send within the dedup window: %v", err)
			}

			// The released message is delivered again. Its first receipt is stale, also once the lease has expired.
			first := receive(t, other, 1, later.Lease(time.Second))[0].Receipt() // the claim may take as long as it lasts
			second := receive(t, other, 1)[0].Receipt()
			for _, receipt := range []string{receipts["release"], first} {
				d, err := other.Delivery(receipt)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Ack(bounded(t)); !errors.Is(err, later.ErrLeaseLost) {
					t.Errorf("ack with a stale receipt: %v", err)
				}
			}
			d, err := other.Delivery(second)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Ack(bounded(t)); err != nil {
				t.Errorf("ack with the current receipt: %v", err)
			}
		})
	}
}
