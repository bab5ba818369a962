package storetest

import (
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// RunBetween proves that what one engine tells of its messages is restored in another, and told there as it was: from
// the first to the second and back.
func RunBetween(t *testing.T, from, to func(t *testing.T) Harness) {
	e, f := newEnv(t, from(t)), newEnv(t, to(t))
	leased := told("leased", store.StateReady, longAgo.Add(-time.Hour), func(i *store.Info) { // ahead of all others
		i.MaxAttempts, i.Attempts, i.LastError, i.Delivered = 5, 3, "no", true
	})
	e.restore(append(everything(), leased)...)
	e.claimOne("leased", held)
	all := e.listAll()
	e.equal("number of messages", len(all), len(everything())+1)
	f.restore(all...)
	there := f.listAll()
	e.equal("told by the second engine", describeAll(there, f.now()), describeAll(all, e.now()))
	back := e.other()
	back.restore(there...)
	e.equal("told by the first engine again", describeAll(back.listAll(), back.now()), describeAll(all, e.now()))
	for i, removed := range f.remove(there...) {
		e.equal("removed "+there[i].ID, removed, true)
	}
	f.count(0, 0, 0, 0)
}
