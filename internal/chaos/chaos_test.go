//go:build unix

package chaos

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	RunChild()
	logging.Disable() // go-redis logs each connection broken by a fault
	goleak.VerifyTestMain(m)
}

// TestPromisesAreKeptUnder runs each fault for a few seconds with its own seed. It also checks that every message's
// history is linearizable.
func TestPromisesAreKeptUnder(t *testing.T) {
	for i, name := range Faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Fault: name, Seed: uint64(i + 1), Duration: QuickDuration(name)}
			checked := 0
			cfg.onMessage = func(f *checker, m *message) {
				ok, is := f.linearizable(m)
				if is {
					checked++
				}
				if !ok {
					t.Errorf("seed %d: the history of message %s is not linearizable:\n%s", cfg.Seed, m.id, m.history())
				}
			}
			result, err := Run(t.Context(), cfg)
			if errors.Is(err, errNoClock) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s; %d histories are linearizable", result.Line(), checked)
			if !result.OK() {
				t.Error(result.Failure())
			}
			if result.Sent == 0 || result.Injected == 0 {
				t.Errorf("%d messages were sent and %d faults injected", result.Sent, result.Injected)
			}
		})
	}
}
