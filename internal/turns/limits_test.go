package turns_test

import (
	"math"
	"testing"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// Keys to look at again after a change of the limits do not have engines claim when none of them waits any more.
func TestAChangeOfLimitsIsOverWhenNoKeyWaits(t *testing.T) {
	o := turns.New(halting)
	sort(o, "k", 2)
	next(o)
	o.SetLimits(start, store.KeyFlow{Order: store.OrderContinue})
	if at := o.Next(start); at != start {
		t.Errorf("the key is looked at again at %d, want %d", at, start)
	}
	o.Remove(start, turns.Message{Key: "k", Place: 1, ID: "k1"})
	if at := o.Next(start); at != math.MaxInt64 || o.Sorted() != 0 {
		t.Errorf("a message starts at %d, and %d are sorted, want none", at, o.Sorted())
	}
}
