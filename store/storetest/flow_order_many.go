package storetest

import (
	"fmt"
	"sync"

	"github.com/laterq/later/store"
)

// sequence checks that messages of each key, as keyed made them, start one at a time in order, each twice in a row.
type sequence struct {
	mu      sync.Mutex
	running map[string]bool
	starts  map[string]int   // by key
	fences  map[string]int64 // by key
}

func newSequence() *sequence {
	return &sequence{running: map[string]bool{}, starts: map[string]int{}, fences: map[string]int64{}}
}

func (s *sequence) started(c store.Claimed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.starts[c.Key]
	want := fmt.Sprintf("%s%05d attempt %d", c.Key, n/2, n%2+1)
	switch got := fmt.Sprintf("%s attempt %d", c.ID, c.Attempt); {
	case s.running[c.Key]:
		return fmt.Errorf("%s starts while another message of its key is leased", got)
	case got != want:
		return fmt.Errorf("%s starts, want %s", got, want)
	case c.Fence <= s.fences[c.Key]:
		return fmt.Errorf("fence of %s is %d after %d", got, c.Fence, s.fences[c.Key])
	}
	s.running[c.Key], s.starts[c.Key], s.fences[c.Key] = true, n+1, c.Fence
	return nil
}

// settlement returns how the message is settled at once: the first attempt fails.
func (s *sequence) settlement(c store.Claimed) store.Settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[c.Key] = false
	if c.Attempt == 1 {
		return nack(c, 0)
	}
	return ackOf(c)
}

// manyRule is about many consumers at once.
var manyRule = rule{"no wake-up is lost and no order broken while many consumers share keys", func(e *env) {
	const n = 30
	e.limit(store.Flow{Concurrency: 5, Key: store.KeyFlow{Order: store.OrderHalt}})
	e.sendKeys(n, "a", "b", "c")
	s := newSequence()
	e.consumeAll(2*3*n, func(c store.Claimed, on store.Store) error {
		if err := s.started(c); err != nil {
			return err
		}
		settled, err := on.Settle(e.Context(), e.queue, []store.Settlement{s.settlement(c)})
		if err == nil {
			err = settled[0].Err
		}
		return err
	})
	e.counted(0)
	e.keyCounts(0, 0, 0)
	e.count(0, 0, 0, 0)
}}
