package calls_test

import (
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/store"
)

func outgoing(id string, edits ...func(*store.Outgoing)) store.Outgoing {
	m := store.Outgoing{Message: store.Message{ID: id}}
	for _, edit := range edits {
		edit(&m)
	}
	return m
}

func durable(timeout time.Duration) func(*store.Outgoing) {
	return func(m *store.Outgoing) { m.Durable = store.Durability{Replicas: 1, Timeout: timeout} }
}

func replacing(m *store.Outgoing) { m.OnDuplicate.Mode = store.DuplicateReplace }

func TestPartsFitIntoACall(t *testing.T) {
	large := func(m *store.Outgoing) { m.Payload = make([]byte, store.MaxPayload) }
	d, other := durable(time.Second), durable(time.Minute)
	msgs := []store.Outgoing{
		outgoing("a"), outgoing("b"), outgoing("c", d), outgoing("d", other), outgoing("e", replacing),
		outgoing("f", large), outgoing("g", large), outgoing("h", large), outgoing("i", large),
		outgoing("j", large),
	}
	var ends []int
	for start := 0; start < len(msgs); {
		start = calls.PartEnd(msgs, start)
		ends = append(ends, start)
	}
	if want := []int{2, 3, 4, 5, 9, 10}; !slices.Equal(ends, want) {
		t.Errorf("parts end at %v, want %v", ends, want)
	}
	if end := calls.PartEnd(make([]store.Outgoing, store.MaxBatch+1), 0); end != store.MaxBatch {
		t.Errorf("a part has %d messages", end)
	}
}
