package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestFinishedMessagesAreBoundedByCountAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFinishedAPI(t, memstore.New(), FinishedConfig{Queues: []string{"mail"}, MaxCount: 3, MaxAge: time.Hour})
		for i := range 5 {
			a.finish("mail", fmt.Sprint(i), ackIt(t))
			time.Sleep(10 * time.Minute)
		}
		reported()
		if got := outcomes(a.get(t.Context(), finishedMail)); got != "4 acked; 3 acked; 2 acked; " {
			t.Error(got)
		}
		time.Sleep(35 * time.Minute) // an hour and 5 minutes after the message 2
		if got := outcomes(a.get(t.Context(), finishedMail)); got != "4 acked; 3 acked; " {
			t.Error(got)
		}
		time.Sleep(25 * time.Minute) // the memory is free without a request
		a.server.finished.lock(func() {
			if l := a.server.finished.queues["mail"]; len(l.entries) != 0 || l.bytes != listBytes+len("mail") {
				t.Errorf("%d messages of %d bytes are left", len(l.entries), l.bytes)
			}
		})
	})
}

// TestFinishedListsShareTheirMemory has one queue with many messages, and another with few, which keeps them.
func TestFinishedListsShareTheirMemory(t *testing.T) {
	f := &finishedLists{FinishedConfig: FinishedConfig{Queues: []string{"*"}, MaxCount: 10_000, MaxAge: time.Hour},
		maxBytes: 100_000}
	now := time.Now()
	add := func(queue, id string) {
		f.add(&wire.Event{Kind: later.EventAcked, Queue: queue, ID: id, Time: wire.FormatTime(now)}, now)
	}
	for i := range 20 {
		add("few", fmt.Sprint("few-", i))
	}
	for i := range 5000 {
		add("many", fmt.Sprint("many-", i))
		if f.bytes > f.maxBytes {
			t.Fatalf("%d bytes", f.bytes)
		}
	}
	if sum := f.size(); sum != f.bytes || f.bytes < f.maxBytes*3/4 {
		t.Errorf("%d bytes are counted, and %d are there", f.bytes, sum)
	}
	if few, many := f.queues["few"], f.queues["many"]; len(few.entries) != 20 ||
		many.entries[len(many.entries)-1].id != "many-4999" {
		t.Errorf("%d and %d messages", len(few.entries), len(many.entries))
	}
	f.forget("many")
	f.forget("few")
	if f.bytes != 0 {
		t.Errorf("%d bytes of no list", f.bytes)
	}
}

// TestFinishedMessagesAreSentWhenTheIDTellsIt has a name with the form of an id of Later and a time in 2085.
func TestFinishedMessagesAreSentWhenTheIDTellsIt(t *testing.T) {
	f := &finishedLists{FinishedConfig: FinishedConfig{Queues: []string{"mail"}, MaxCount: 10, MaxAge: time.Hour},
		maxBytes: maxFinishedBytes}
	for id, sent := range map[string]bool{store.NewID(): true, "order-00000042": false, "20261127-00042": false} {
		now := time.Now()
		f.add(&wire.Event{Kind: later.EventAcked, Queue: "mail", ID: id, Time: wire.FormatTime(now)}, now)
		entries := f.queues["mail"].entries
		if got := entries[len(entries)-1].sent; (got > 0) != sent {
			t.Errorf("%s was sent %v", id, time.UnixMilli(got))
		}
	}
}

// size returns how much the lists take.
func (f *finishedLists) size() (sum int) {
	for queue, l := range f.queues {
		for _, e := range l.entries {
			sum += e.size()
		}
		sum += listBytes + len(queue)
	}
	return sum
}

// TestFinishedListsOfManyQueuesAreBounded has more queues than the memory has room for, each with one message or with
// missed events.
func TestFinishedListsOfManyQueuesAreBounded(t *testing.T) {
	for _, kind := range []store.EventKind{later.EventAcked, later.EventMissed} {
		f := &finishedLists{FinishedConfig: FinishedConfig{Queues: []string{"*"}, MaxCount: 10, MaxAge: time.Hour},
			maxBytes: 100_000}
		for i, now := 0, time.Now(); i < 3000; i++ {
			f.add(&wire.Event{Kind: kind, Queue: fmt.Sprint("q-", i), ID: "a", Missed: 1}, now)
			if f.bytes > f.maxBytes || f.bytes != f.size() {
				t.Fatalf("%d bytes are counted, and %d are there", f.bytes, f.size())
			}
		}
		if n := len(f.queues); n < 100 {
			t.Errorf("%d queues are left", n)
		}
	}
}
