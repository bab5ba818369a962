package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// Messages that move during a check are not reported as lost or inconsistent, and a repair does not touch them.
func TestCheckOfBusyQueueFindsNoIssues(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	send(t, s, "live", "first", store.Due{}) // so that there is a queue for its name
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				msgs := make([]store.Outgoing, 50)
				for k := range msgs {
					msgs[k] = store.Outgoing{Message: store.Message{ID: fmt.Sprint(w, "-", i, "-", k),
						MaxAttempts: 1 + k%3, Payload: bytes.Repeat([]byte("x"), k)}}
				}
				if _, err := s.Send(context.WithoutCancel(ctx), "live", msgs); err != nil {
					t.Error(err)
				}
				c, err := s.Claim(context.WithoutCancel(ctx), "live",
					store.ClaimRequest{Max: 60, Lease: 20 * time.Millisecond})
				if err != nil {
					t.Error(err)
				}
				for k, m := range c.Messages {
					action := []store.Action{store.Ack, store.Nack, store.Release, store.Snooze, store.Bury, 0}[k%6]
					if k%7 == 0 {
						if _, err := s.Cancel(context.WithoutCancel(ctx), "live",
							store.CancelRequest{IDs: []string{m.ID}}); err != nil {
							t.Error(err)
						}
					}
					if action != 0 { // otherwise the lease expires
						if _, err := s.Settle(context.WithoutCancel(ctx), "live",
							[]store.Settlement{{Receipt: m.Receipt, Action: action}}); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	for range 30 {
		for _, f := range findIssues(t, s, true) {
			t.Errorf("issue in a consistent queue: %+v", f)
		}
	}
	stop()
	work.Wait()
}

// A claim buries an unreadable message, whether or not claims inspect envelopes.
func TestCheckAcceptsBuriedUnreadableMessage(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	send(t, s, "q", "m", store.Due{})
	if err := rdb.HSet(t.Context(), DefaultPrefix+"{q}:messages", "m", "\xff").Err(); err != nil {
		t.Fatal(err)
	}
	if c := claim(t, s, "q", 1, time.Minute); len(c.Messages) != 0 || !slices.Equal(c.Died, []string{"m"}) {
		t.Fatalf("the claim returned %+v", c)
	}
	if wrong := findIssues(t, s, false); len(wrong) > 0 {
		t.Errorf("unexpected issues: %+v", wrong)
	}
}

// createDuring creates a queue right after a call found that it did not exist.
type createDuring struct {
	redis.UniversalClient
	asked func(cmd redis.Cmder) bool
	make  func()
}

func (m *createDuring) Process(ctx context.Context, cmd redis.Cmder) error {
	err := m.UniversalClient.Process(ctx, cmd)
	if m.make != nil && m.asked(cmd) {
		made := m.make
		m.make = nil
		made()
	}
	return err
}

// The queue is created between the lookup and the removal of its stale name.
func TestRepairKeepsQueueCreatedMeanwhile(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	other := newStore(t, rdb)
	if err := rdb.SAdd(t.Context(), DefaultPrefix+"queues", "q").Err(); err != nil {
		t.Fatal(err)
	}
	m := &createDuring{UniversalClient: rdb, make: func() { send(t, other, "q", "m", store.Due{}) }}
	s := newStore(t, m)
	m.asked = func(cmd redis.Cmder) bool {
		return fmt.Sprint(cmd.Args()[1]) == s.scripts["stats"].sha && cmd.Err() == nil
	}
	s.preflightDone.Store(true)
	var found []store.CheckResult
	x := &checkRun{s: s, repair: true, report: func(f store.CheckResult) { found = append(found, f) }}
	if err := other.ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ScriptLoad(t.Context(), s.scripts["stats"].body).Err(); err != nil {
		t.Fatal(err)
	}
	if err := x.checkNameOnly(t.Context(), "q"); err != nil || m.make != nil {
		t.Fatal(err, "queue looked up:", m.make == nil)
	}
	if c := claim(t, other, "q", 1, time.Minute); len(c.Messages) != 1 {
		t.Error("the message is gone")
	}
	if names, _, err := other.Queues(t.Context(), ""); err != nil || len(names) != 1 {
		t.Errorf("queues are %v, %v", names, err)
	}
	found = nil
	if err := x.checkUnregistered(t.Context(), "q", false); err != nil ||
		len(found) > 0 { // found after the names were read
		t.Errorf("issues of a registered queue: %+v, %v", found, err)
	}
}

// Valkey 8 reports its mode in a field of its own.
func TestCheckNamesModeOfServer(t *testing.T) {
	for name, shared := range map[string]func(testing.TB) *redistest.Server{
		"redis": redistest.Shared, "valkey": redistest.SharedValkey,
	} {
		t.Run(name, func(t *testing.T) {
			var text string
			s := newStore(t, shared(t).Client(t))
			err := s.Check(t.Context(), store.CheckOptions{}, func(f store.CheckResult) {
				if f.Check == "server" {
					text = f.Text
				}
			})
			if err != nil || !strings.Contains(text, ", standalone, up for") {
				t.Errorf("the check reports %q, %v", text, err)
			}
		})
	}
}

// A lost message is found among many leased ones in short calls. The number of messages that a single call would have
// to read decides alone whether it is repaired: ids that begin with the id of the lost message are not counted as lines
// of it.
func TestLostMessageIsFoundAmongManyLeases(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	for _, c := range []struct {
		bytes string
		want  string
	}{
		{"1000000", "1 messages are in no state, so they are never delivered"},
		{"10", "1 messages seem to be in no state; too many are leased to be sure"},
	} {
		queue := "lost-" + c.bytes
		constants := maps.Clone(luaConstants)
		constants["MAX_LEASE_BYTES"], constants["MAX_SCANNED"] = c.bytes, "100"
		s := newWith(t, loadScripts("", constants), rdb)
		for i := range 50 {
			send(t, s, queue, fmt.Sprintf("lost%064d", i), store.Due{}) // too long for the compact encoding of a hash
			claim(t, s, queue, 1, time.Hour)
		}
		if err := rdb.HSet(t.Context(), s.keys.key(queue, "messages"), "lost", "\x00").Err(); err != nil {
			t.Fatal(err)
		}
		var found []string
		x := &checkRun{s: s, report: func(r store.CheckResult) {
			if r.Check == "lost" {
				found = append(found, r.Text)
			}
		}}
		if err := x.queue(t.Context(), queue); err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || !strings.HasPrefix(found[0], c.want) {
			t.Errorf("leases of at most %s bytes: found %q, want %q", c.bytes, found, c.want)
		}
	}
}
