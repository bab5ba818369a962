package memstore_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a store with a clock that tests move.
func open(t *testing.T) storetest.Harness {
	clock := memstore.NewManualClock(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	s := memstore.New(memstore.WithClock(clock))
	t.Cleanup(func() { s.Close() })
	return storetest.Harness{
		Store: s, Peer: s, Exact: true, Back: true,
		Advance: func(_ testing.TB, _ string, d time.Duration) { clock.Advance(d) },
		Asleep:  s.Asleep,
	}
}

func TestConformance(t *testing.T) { storetest.Run(t, open) }

func TestStateMachine(t *testing.T) { storetest.RunStateMachine(t, open) }
