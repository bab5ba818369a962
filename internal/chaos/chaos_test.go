//go:build unix

package chaos

import (
	"errors"
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	RunChild()
	logging.Disable() // go-redis logs each connection broken by a fault
	goleak.VerifyTestMain(m)
}

// onlyLong are faults that fail in some runs, with the reason.
var onlyLong = map[string]string{
	"many-queues": "on a busy machine a process of so many queues stalls for longer than its leases",
}

// TestPromisesAreKeptUnder runs each fault for a few seconds with its own seed. It also checks that every message's
// history is linearizable.
func TestPromisesAreKeptUnder(t *testing.T) {
	for i, name := range Faults() {
		t.Run(name, func(t *testing.T) {
			if why := onlyLong[name]; why != "" && os.Getenv("LATER_LONG") == "" {
				t.Skip(why + "; LATER_LONG=1 runs it")
			}
			t.Parallel()
			cfg := Config{Fault: name, Seed: uint64(i + 1), Duration: QuickDuration(name)}
			checked := 0
			cfg.onMessage = func(f *checker, m *message) {
				if f.listed != nil || m.follows() || m.sentOnce() {
					return // the model of a history has one queue, no replaced messages and no keys of sends
				}
				ok, is := f.linearizable(m)
				if is {
					checked++
				}
				if !ok {
					t.Errorf("seed %d: the history of message %s is not linearizable:\n%s", cfg.Seed, m.id, m.history())
				}
			}
			result, err := Run(t.Context(), cfg)
			if errors.Is(err, errNoClock) || errors.Is(err, errNoDisk) {
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
