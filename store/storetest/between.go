package storetest

import (
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// RunBetween checks that messages listed by one engine can be restored in another, which then lists the same: from the
// first to the second and back.
func RunBetween(t *testing.T, from, to func(t *testing.T) Harness) {
	e, f := newEnv(t, from(t)), newEnv(t, to(t))
	// It is due before all others, so that a claim takes it first.
	leased := newInfo("leased", store.StateReady, longAgo.Add(-time.Hour), func(i *store.Info) {
		i.MaxAttempts, i.Attempts, i.LastError, i.Delivered = 5, 3, "no", true
	})
	e.restore(append(everyKind(), leased)...)
	e.claimOne("leased", held)
	all := e.listAll()
	e.equal("number of messages", len(all), len(everyKind())+1)
	f.restore(all...)
	listed := f.listAll()
	e.equal("listed by the second engine", describeAll(listed, f.now()), describeAll(all, e.now()))
	back := e.other()
	back.restore(listed...)
	e.equal("listed by the first engine again", describeAll(back.listAll(), back.now()), describeAll(all, e.now()))
	for i, removed := range f.remove(listed...) {
		e.equal("removed "+listed[i].ID, removed, true)
	}
	f.count(0, 0, 0, 0)
}
