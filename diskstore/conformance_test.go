package diskstore

import (
	"flag"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/laterq/later/store/storetest"
)

// TestMain allows for the goroutine that Fatalf ends in tests of a broken disk, since that stops for good.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/laterq/later/diskstore.pebbleLogger.Fatalf"))
}

// manualClock stands still between calls of Advance.
type manualClock struct {
	mu     sync.Mutex
	now    time.Time
	alarms map[chan time.Time]time.Time
}

func newManualClock() *manualClock {
	return &manualClock{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), alarms: map[chan time.Time]time.Time{}}
}

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d, which may be negative, and rings the alarms it passes.
func (c *manualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for ring, t := range c.alarms {
		if !t.After(c.now) {
			ring <- c.now
			delete(c.alarms, ring)
		}
	}
}

func (c *manualClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ring := make(chan time.Time, 1)
	if !t.After(c.now) {
		ring <- c.now
		return ring, func() {}
	}
	c.alarms[ring] = t
	return ring, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.alarms, ring)
	}
}

// openMemory opens a store on a file system in memory, with a clock that the tests move.
func openMemory(t *testing.T) storetest.Harness {
	clock := newManualClock()
	s, err := Open("later", WithClock(clock), withFS(vfs.NewMem()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return storetest.Harness{
		Store: s, Peer: s, Exact: true, Back: true,
		Advance: func(_ testing.TB, _ string, d time.Duration) { clock.Advance(d) },
		Asleep:  s.asleep,
	}
}

// asleep returns how many calls of Wait on a queue sleep.
func (s *Store) asleep(queue string) int {
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	if b := s.notifiers[queue]; b != nil {
		return b.line.Len()
	}
	return 0
}

func TestConformance(t *testing.T) { storetest.Run(t, openMemory) }

func TestStateMachine(t *testing.T) {
	if os.Getenv("LATER_LONG") == "" {
		f := flag.Lookup("rapid.checks")
		defer f.Value.Set(f.Value.String())
		f.Value.Set("25") // memstore runs the same histories, 100 of them
	}
	storetest.RunStateMachine(t, openMemory)
}
