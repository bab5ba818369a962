package shard

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

var errKilled = errors.New("the process is dead")

// chance is a process of a random history. Each of its calls of the engine takes some time, and it may die before or
// after any of them.
type chance struct {
	mu sync.Mutex // of the calls that a process makes in parallel
	*rand.Rand
	over  forwarder
	lives int // calls until it dies, negative if it does not
}

func newChance(engine *memstore.Store, seed uint64) *chance {
	e := &spied{Store: engine}
	c := &chance{Rand: rand.New(rand.NewPCG(seed, 0)), over: newForwarder(e), lives: -1}
	if c.IntN(3) == 0 {
		c.lives = c.IntN(50)
	}
	e.before = func(string, string) error {
		c.mu.Lock()
		dead, takes := c.lives == 0, time.Duration(c.IntN(100))*time.Millisecond
		if !dead {
			c.lives--
		}
		c.mu.Unlock()
		if dead {
			return errKilled
		}
		time.Sleep(takes)
		return nil
	}
	e.after = e.before
	return c
}

func newForwarder(engine store.Store) forwarder {
	s := New(engine, slog.New(slog.DiscardHandler)).(forwarder)
	Stepwise(s)
	return s
}

// act sets limits, or makes some steps of a change of shards and sends messages.
func (c *chance) act(t *testing.T) {
	if limit := 12 + c.IntN(200); c.IntN(3) == 0 {
		err := c.over.SetFlow(t.Context(), "q", store.Flow{Concurrency: limit}, nil)
		moving := errors.Is(err, store.ErrUnavailable) && !isMoved(err)
		if err != nil && !moving && !errors.Is(err, errKilled) {
			t.Errorf("SetFlow: %v", err)
		}
		return
	}
	for n := 1 + c.IntN(5); c.IntN(6) > 0; {
		_, err := Step(t.Context(), c.over, "q", n)
		if err != nil && !isMoved(err) && !errors.Is(err, errKilled) {
			t.Errorf("a step: %v", err)
		}
		if c.IntN(5) == 0 {
			time.Sleep(lateCalls)
		}
		m := store.Outgoing{Message: store.Message{ID: strconv.FormatUint(c.Uint64(), 36)}}
		if _, err := c.over.Send(t.Context(), "q", []store.Outgoing{m}); err != nil && !errors.Is(err, errKilled) {
			t.Errorf("a send: %v", err)
		}
	}
}

// Processes set limits and change the number of shards at the same time, and die. No other call fails, and then each
// shard has its share.
func TestSharesAfterRandomHistories(t *testing.T) {
	seeds := uint64(100)
	if os.Getenv("LATER_LONG") != "" {
		seeds = 5000
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			engine := memstore.New()
			defer engine.Close()
			if err := engine.SetFlow(t.Context(), "q", store.Flow{Concurrency: 60}, nil); err != nil {
				t.Fatal(err)
			}
			for round := range uint64(6) {
				var group sync.WaitGroup
				for i := range 1 + (seed+round)%3 {
					group.Go(func() { newChance(engine, seed*100+round*10+i).act(t) })
				}
				group.Wait()
				last := newForwarder(engine)
				if _, err := last.Stats(t.Context(), "q"); err != nil { // mends the share of a process that was late, and died
					t.Error(err)
				}
				if err := CheckShares(t.Context(), last, "q"); err != nil {
					t.Error(err)
				}
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
