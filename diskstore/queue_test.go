package diskstore

import (
	"errors"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

func TestNumbersOfQueuesComeToAnEnd(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	try(t, s.do(t.Context(), "q", urgent, func(*tx) { s.lastNumber = math.MaxUint32 - 3 }))
	create := func(name string) error {
		_, err := s.Send(t.Context(), name, []store.Outgoing{plain("id of " + name)})
		return err
	}
	try(t, create("near the end"))
	try(t, create("the end"))
	for range 2 {
		if err := create("another"); !errors.Is(err, store.ErrFull) {
			t.Errorf("a queue behind the last number gives %v, want ErrFull", err)
		}
		try(t, create("the end"))
		s.Close()
		s = openOn(t, fs, clock)
	}
	defer s.Close()
	if got := live(t, s, "the end"); len(got) != 1 {
		t.Errorf("the last queue has %v", got)
	}
}
