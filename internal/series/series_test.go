package series

import (
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

var moment = time.Date(2030, 3, 1, 12, 0, 0, 0, time.UTC)

func TestPartOfReadsTheHeadersOfMessages(t *testing.T) {
	s := Series{Until: moment, Offsets: []time.Duration{time.Hour, -24 * time.Hour, 0}, Past: Send}
	msgs := s.Messages("order-7", moment)
	want := []struct {
		id  string
		due time.Time
		Part
	}{
		{"order-7/-24h0m0s", moment.Add(-24 * time.Hour), Part{"order-7", moment, -24 * time.Hour, 1, 3}},
		{"order-7/+0s", moment, Part{"order-7", moment, 0, 2, 3}},
		{"order-7/+1h0m0s", moment.Add(time.Hour), Part{"order-7", moment, time.Hour, 3, 3}},
	}
	if len(msgs) != len(want) {
		t.Fatalf("%d messages, want %d", len(msgs), len(want))
	}
	for i, m := range msgs {
		headers := map[string]string{}
		for _, h := range m.Headers {
			headers[h[0]] = h[1]
		}
		got, ok := PartOf(headers, m.Due, 0)
		if !ok || got != want[i].Part || m.ID != want[i].id || !m.Due.Equal(want[i].due) {
			t.Errorf("%s at %v is %+v, %v; want %+v", m.ID, m.Due, got, ok, want[i])
		}
		// A rescheduled message moves the moment, and a retried one does not.
		if got, _ := PartOf(headers, m.Due.Add(time.Minute), 0); !got.Until.Equal(moment.Add(time.Minute)) {
			t.Errorf("%s was rescheduled by a minute, and its moment is %v", m.ID, got.Until)
		}
		if got, _ := PartOf(headers, m.Due.Add(time.Minute), 1); !got.Until.Equal(moment) {
			t.Errorf("%s failed, and its moment is %v", m.ID, got.Until)
		}
		headers[indexHeader] = "x"
		if _, ok := PartOf(headers, m.Due, 0); ok {
			t.Errorf("%s has an index that is no number, and is a part of a series", m.ID)
		}
	}
	if _, ok := PartOf(nil, moment, 0); ok {
		t.Error("a message without headers is a part of a series")
	}
}

func TestSkipLeavesOutMessagesThatAreDue(t *testing.T) {
	s := Series{Until: moment, Offsets: []time.Duration{-time.Hour, 0, time.Hour}}
	msgs := s.Messages("a", moment)
	if len(msgs) != 1 || msgs[0].ID != "a/+1h0m0s" {
		t.Errorf("got %+v, want the last one alone", msgs)
	}
}

func TestCheckRefusesSeriesThatCannotBeSent(t *testing.T) {
	valid := func() Series { return Series{Until: moment, Offsets: []time.Duration{0}} }
	for name, change := range map[string]func(s *Series){
		"no moment":       func(s *Series) { s.Until = time.Time{} },
		"no offsets":      func(s *Series) { s.Offsets = nil },
		"the same twice":  func(s *Series) { s.Offsets = []time.Duration{1e9, 1e9} },
		"parts of a ms":   func(s *Series) { s.Offsets = []time.Duration{1} },
		"too far":         func(s *Series) { s.Offsets = []time.Duration{store.MaxDelay + time.Millisecond} },
		"unknown past":    func(s *Series) { s.Past = Send + 1 },
		"too many at all": func(s *Series) { s.Offsets = make([]time.Duration, store.MaxBatch+1) },
	} {
		s := valid()
		change(&s)
		if err := s.Check("a"); !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := valid(); s.Check("a") != nil || s.Check("") != nil || s.Check(string(make([]byte, MaxID+1))) == nil {
		t.Error("the limits of ids are not those of CheckID")
	}
}
