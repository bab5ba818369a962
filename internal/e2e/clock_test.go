package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// TestWorkerWithSkewedClockDeliversOnTime uses a server with a clock that is an hour ahead of the client's, or behind
// it. The server gets the wrong clock, because the clock of a Go program cannot be changed from outside. Both see the
// same difference either way.
func TestWorkerWithSkewedClockDeliversOnTime(t *testing.T) {
	library := buildClock(t)
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(fmt.Sprint("by ", offset), func(t *testing.T) {
			t.Setenv("LD_PRELOAD", library)
			t.Setenv("CLOCK_OFFSET", fmt.Sprint(offset.Seconds()))
			srv := redistest.Start(t)
			serverTime, err := srv.Client(t).Time(bounded(t)).Result()
			if err != nil {
				t.Fatal(err)
			}
			if off := time.Until(serverTime) - offset; off.Abs() > patience {
				t.Fatalf("the server's clock is %v; want an offset of %v", serverTime, offset)
			}
			c := open(t, srv.URL())

			worked := c.Queue("for a worker")
			deliveries := make(chan string, 1)
			work(t, c, later.WorkerConfig{}, worked.Name(), func(_ context.Context, m *later.Message) error {
				deliveries <- m.ID
				return nil
			})
			wantInTime(t, worked, func() string {
				select {
				case id := <-deliveries:
					return id
				case <-time.After(patience):
					t.Fatalf("no message was delivered within %v", patience)
					return ""
				}
			})
			received := c.Queue("for Receive")
			wantInTime(t, received, func() string {
				d := receive(t, received, 1)[0]
				if err := d.Ack(bounded(t)); err != nil {
					t.Error(err)
				}
				return d.ID
			})
		})
	}
}

// buildClock builds the library that shifts a server's clock.
func buildClock(t *testing.T) (library string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip("a server's clock can be shifted on Linux with a C compiler only (make setup installs one)")
	}
	library = filepath.Join(t.TempDir(), "clock.so")
	built := exec.CommandContext(bounded(t), cc, "-shared", "-fPIC", "-o", library,
		filepath.Join("testdata", "clock.c"))
	if output, err := built.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", built, err, output)
	}
	return library
}

// wantInTime sends messages with a delay and checks, by this process's monotonic clock, when next returns them.
func wantInTime(t *testing.T, q *later.Queue, next func() string) {
	t.Helper()
	const messages, delay = 10, 400 * time.Millisecond
	asked := map[string]time.Time{}
	for i := range messages {
		id := fmt.Sprint("m", i)
		asked[id] = time.Now()
		send(t, q, "", later.WithID(id), later.In(delay))
	}
	for range messages {
		before := time.Now()
		id := next()
		wantOnTime(t, q.Name()+": "+id, asked[id].Add(delay), before, time.Now())
	}
}
