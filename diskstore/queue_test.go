package diskstore

import (
	"fmt"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestNumbersOfQueuesThatComeToTheirEndAreReused(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	create := func(names ...string) {
		for _, name := range names {
			if _, err := s.Send(t.Context(), name, []store.Outgoing{{Message: store.Message{ID: "id of " + name}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("first", "gone", "third")
	if err := s.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if err := s.do(t.Context(), "q", urgent, func(*tx) { s.lastNumber = math.MaxUint32 - 3 }); err != nil {
		t.Fatal(err)
	}
	names := []string{"first", "third", "near the end", "the end", "second", "fourth", "fifth"}
	create(names[2:5]...)
	numbers := map[uint32]string{}
	for range 2 {
		create(names[5])
		s.Close()
		s = openOn(t, fs, clock)
		names[5], names[6] = names[6], names[5]
	}
	for _, name := range names {
		p, err := s.List(t.Context(), name, store.ListRequest{State: store.StateReady, Limit: 10})
		if err != nil || len(p.Messages) != 1 || p.Messages[0].ID != "id of "+name {
			t.Errorf("queue %q lists %v, %v", name, p.Messages, err)
		}
		number := s.queue(name).number
		if other := numbers[number]; number == 0 || number == math.MaxUint32 || other != "" {
			t.Errorf("queue %q has the number %d; %q", name, number, fmt.Sprint("it is also that of ", other))
		}
		numbers[number] = name
	}
	s.Close()
}
