package delayqueue_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// newRedis returns a client of an empty server.
func newRedis(t *testing.T) *redis.Client {
	t.Helper()
	return redistest.Start(t).Client(t)
}

// patience bounds every wait.
const patience = 30 * time.Second

// eventually waits until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

// receive returns the next value from a channel.
func receive[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("waited %v for: %s", patience, what)
	}
	return v
}
