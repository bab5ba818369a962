package redisstore

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redisdump"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// formatReads are the calls that only read, of scripts that check the format.
var formatReads = map[string]func(ctx context.Context, s *Store, queue string) error{
	"get": func(ctx context.Context, s *Store, queue string) error {
		_, err := s.Get(ctx, queue, []string{"ready"})
		return err
	},
	"find leases": func(ctx context.Context, s *Store, queue string) error {
		return s.findLeases(ctx, queue, map[messageEpoch]*store.Info{{id: "held1"}: {}})
	},
	"list": func(ctx context.Context, s *Store, queue string) error {
		_, err := s.List(ctx, queue, store.ListRequest{State: store.StateReady, Limit: 10})
		return err
	},
	"list leased": func(ctx context.Context, s *Store, queue string) error {
		_, err := s.List(ctx, queue, store.ListRequest{State: store.StateLeased, Limit: 10})
		return err
	},
	"list group": func(ctx context.Context, s *Store, queue string) error {
		_, err := s.List(ctx, queue, store.ListRequest{Group: "g", Limit: 10})
		return err
	},
	"stats": func(ctx context.Context, s *Store, queue string) error {
		_, err := s.Stats(ctx, queue)
		return err
	},
	"histogram": func(ctx context.Context, s *Store, queue string) error {
		_, err := s.Histogram(ctx, queue, []time.Time{time.Now(), time.Now().Add(time.Hour)})
		return err
	},
	"scan": func(ctx context.Context, s *Store, queue string) error {
		_, err := s.Scan(ctx, queue, "")
		return err
	},
	"activity": func(ctx context.Context, s *Store, queue string) error {
		_, err := s.Activity(ctx, queue)
		return err
	},
}

func metaFormat(t *testing.T, rdb redis.UniversalClient, queue string) string {
	t.Helper()
	format, err := rdb.HGet(t.Context(), DefaultPrefix+"{"+queue+"}:meta", "format").Result()
	if err != nil {
		t.Fatal(err)
	}
	return format
}

func setFormat(t *testing.T, rdb redis.UniversalClient, queue string, format int) {
	t.Helper()
	if err := rdb.HSet(t.Context(), DefaultPrefix+"{"+queue+"}:meta", "format", format).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestScriptsRefuseOtherFormats(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for _, format := range []int{previousFormat - 1, flowFormat + 1} {
		of, do := "of an older version", "export the queue with that version"
		if format > flowFormat {
			of, do = "of a newer version", "use that version"
		}
		for i, c := range everyCall {
			x := newPopulatedQueue(t, rdb, fmt.Sprintf("other-format-%d-%d", format, i))
			setFormat(t, rdb, x.queue, format)
			before := dump(t, rdb, x.queue)
			err := c.do(t.Context(), x)
			if store.CodeOf(err) != store.ErrUnsupported.Code || !strings.Contains(err.Error(), of) ||
				!strings.Contains(err.Error(), do) || !strings.Contains(err.Error(), strconv.Quote(x.queue)) {
				t.Errorf("format %d: %s: %v", format, c.name, err)
			}
			if !maps.Equal(before, dump(t, rdb, x.queue)) {
				t.Errorf("format %d: %s changed the queue", format, c.name)
			}
		}
		x := newPopulatedQueue(t, rdb, fmt.Sprint("other-format-", format))
		setFormat(t, rdb, x.queue, format)
		for name, read := range formatReads {
			if err := read(t.Context(), x.s, x.queue); store.CodeOf(err) != store.ErrUnsupported.Code {
				t.Errorf("format %d: %s: %v", format, name, err)
			}
		}
		if err := x.s.Delete(t.Context(), x.queue); store.CodeOf(err) != store.ErrUnsupported.Code {
			t.Errorf("format %d: delete: %v", format, err)
		}
	}
}

// A queue of the previous format is read as it is, and gets the present one when it is changed.
func TestScriptsRaiseThePreviousFormat(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	leaves := map[string]bool{"check": true, "recount": true, "repair lost": true, "report": true, "outbox": true,
		"empty": true} // they change no message
	for i, c := range everyCall {
		x := newPopulatedQueue(t, rdb, "previous-format-"+strconv.Itoa(i))
		setFormat(t, rdb, x.queue, previousFormat)
		if err := c.do(t.Context(), x); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		want := layoutFormat
		switch {
		case leaves[c.name]:
			want = previousFormat
		case c.name == "set a flow", c.name == "set limits of keys":
			want = flowFormat
		}
		if format := metaFormat(t, rdb, x.queue); format != strconv.Itoa(want) {
			t.Errorf("%s leaves format %s, want %d", c.name, format, want)
		}
	}
	x := newPopulatedQueue(t, rdb, "previous-format")
	setFormat(t, rdb, x.queue, previousFormat)
	for name, read := range formatReads {
		if err := read(t.Context(), x.s, x.queue); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if format := metaFormat(t, rdb, x.queue); format != strconv.Itoa(previousFormat) {
			t.Errorf("%s leaves format %s", name, format)
		}
	}
}

// The fixture is a queue that the last version with format 10 left, at the start of 2026. It has dead and failed
// messages, an acked one in its dedup window, a packed message, a ready one in a group, and the lease of session s:1,
// request 7. Of that lease, "followed" has a successor that is due after 30 s, and "cancelled" was cancelled.
func TestFormat10IsMigrated(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	text, err := os.ReadFile("testdata/format10.json")
	if err == nil {
		err = redisdump.Load(t.Context(), rdb, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newFrozenClock(t, rdb)
	o := otherClient{t, s, "old"}
	sound := func() {
		t.Helper()
		if wrong := findIssues(t, s, false); len(wrong) > 0 {
			t.Errorf("issues: %+v", wrong)
		}
	}
	state := o.state()
	sound()
	if format := metaFormat(t, rdb, o.queue); format != "10" {
		t.Fatalf("format %s after reads", format)
	}

	// A repeated claim returns the messages that are still there. The old version did not keep the one before its
	// successor. The claim settles nothing.
	repeated := store.WithRequest(t.Context(), store.Request{Session: "s:1", Number: 7})
	lease := store.ClaimRequest{Max: 3, Lease: time.Minute}
	c, err := s.Claim(repeated, o.queue, lease)
	if err != nil || len(c.Messages) != 1 || string(c.Messages[0].Payload) != "of held" {
		t.Fatalf("the repeated claim returned %+v, %v", c, err)
	}
	if format := metaFormat(t, rdb, o.queue); format != strconv.Itoa(layoutFormat) {
		t.Errorf("format %s after a claim", format)
	}
	if after := o.state(); after != state {
		t.Errorf("the repeated claim changed\n%sto\n%s", state, after)
	}
	sound()

	followed := c.Messages[0].Receipt
	followed.ID, followed.Claim, followed.Index = "followed", nil, 0
	r, err := s.Extend(t.Context(), o.queue, []store.Extension{{Lease: followed.Lease, For: time.Hour}})
	if err != nil || r[0].Err != nil || len(r[0].Lost) != 1 || r[0].Lost[0].ID != "cancelled" {
		t.Errorf("Extend = %+v, %v", r, err)
	}
	further := following(store.Due{Delay: time.Minute}, "followed") // in place of the successor from before
	further[0].OnDuplicate.KeepDue = true
	further[0].Payload = []byte("further successor")
	if sent, err := s.Send(t.Context(), o.queue, further); err != nil || !sent[0].Follows || !sent[0].Replaced {
		t.Errorf("Send = %+v, %v", sent, err)
	}
	if c, err := s.Claim(repeated, o.queue, lease); err != nil || len(c.Messages) != 1 {
		t.Errorf("the repeated claim returned %+v, %v", c, err)
	}
	o.settle(store.Settlement{Receipt: followed, Action: store.Ack, DedupWindow: time.Hour})
	o.settle(store.Settlement{Receipt: c.Messages[0].Receipt, Action: store.Ack})
	sound()

	var claimed []string
	for _, wait := range []time.Duration{0, 30 * time.Second, 30 * time.Second, 2 * time.Hour} {
		advance(rdb)(t, o.queue, wait)
		for _, m := range claim(t, s, o.queue, 10, time.Hour).Messages {
			claimed = append(claimed, m.ID+" "+string(m.Payload)+" "+strconv.Itoa(m.Attempt))
			o.settle(store.Settlement{Receipt: m.Receipt, Action: store.Ack, Grouped: m.Group != ""})
		}
	}
	want := "ready of ready 1, followed further successor 1, failed  2, scheduled  1, far packed 1"
	if got := strings.Join(claimed, ", "); got != want {
		t.Errorf("claimed %s, want %s", got, want)
	}
	if sent, err := s.Send(t.Context(), o.queue, []store.Outgoing{{Message: store.Message{ID: "done"}}}); err != nil ||
		!sent[0].Duplicate {
		t.Errorf("Send within the dedup window = %+v, %v", sent, err)
	}
	if in := o.info("dead"); in == nil || in.DeadReason != store.DeadBuried {
		t.Errorf("dead is %+v", in)
	}
	sound()
}
