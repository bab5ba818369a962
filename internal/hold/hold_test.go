package hold

import (
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// noHolder ignores what becomes of its lease.
type noHolder struct{}

func (noHolder) Lost()                     {}
func (noHolder) Cancelled([]store.Receipt) {}

func newKeeper(t *testing.T) *Keeper { return New(t.Context(), nil, func() {}) }

func TestKeeperThatHasStoppedRetriesNothing(t *testing.T) {
	k := newKeeper(t)
	k.Stop()
	if k.Retry(time.Now(), func() {}) {
		t.Error("a settle is to be retried after the end")
	}
}

// One lease of a queue is due to be extended, and another one only to be asked about. The order must not matter.
func TestKeeperExtendsTheLeasesThatAreDueWhateverElseIs(t *testing.T) {
	now := time.Now()
	q := &Queue{Length: 30 * time.Second, Looks: true}
	for range 50 { // map order
		k := newKeeper(t)
		end := now.Add(time.Minute)
		extend := &Lease{Queue: q, deadline: end, beatAt: now, lookAt: end}
		ask := &Lease{Queue: q, deadline: end, beatAt: end, lookAt: now}
		k.leases[extend], k.leases[ask] = struct{}{}, struct{}{}
		if _, due, _ := k.sortLeases(now); len(due[q]) != 2 || !extend.extend || ask.extend {
			t.Fatalf("%d leases are due, extended: %v and %v; want the first one only", len(due[q]), extend.extend, ask.extend)
		}
	}
}

func TestKeeperBeatsWhenAQueueAsksForIt(t *testing.T) {
	now := time.Now()
	next := now.Add(500 * time.Millisecond)
	q := &Queue{Length: 2 * time.Second, Beat: func(time.Time) time.Time { return next }, BeatAfter: time.Minute}
	k := newKeeper(t)
	k.Keep(&Lease{Queue: q, Holder: noHolder{}}, 1, now)
	if got := k.beat(now); !got.Equal(next) {
		t.Errorf("the next beat is after %v; want %v", got.Sub(now), next.Sub(now))
	}
}

func TestKeeperIsLateIfNobodyLooksAfterItsLeases(t *testing.T) {
	k := newKeeper(t)
	begin := time.Now()
	k.next = begin
	if late := k.Late(begin.Add(time.Minute)); late != time.Minute {
		t.Errorf("a beat that does not begin is late by %v", late)
	}
	k.next, k.beating = time.Time{}, begin
	if late := k.Late(begin.Add(time.Minute)); late != time.Minute {
		t.Errorf("a beat that does not end is late by %v", late)
	}
	k.beating = time.Time{}
	if late := k.Late(begin.Add(time.Minute)); late != 0 {
		t.Errorf("with nothing to do, it is late by %v", late)
	}
}
