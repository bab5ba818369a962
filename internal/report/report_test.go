package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later/internal/event"
	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEventsThatAreTooLongAreMissed(t *testing.T) {
	var events []Event
	const many = 500
	for i := range many {
		events = append(events,
			Event{Kind: event.Nacked, ID: fmt.Sprint(i), Error: strings.Repeat("\x01", maxError)})
	}
	encoded, number := encode(ThisProcess(), events, 7)
	if len(encoded) > store.MaxEventBytes || number != many+7 {
		t.Fatalf("%d events have %d bytes", number, len(encoded))
	}
	decoded := decode("q", encoded)
	last := decoded[len(decoded)-1]
	if last.Kind != event.Missed || len(decoded)-1+last.Missed != number || len(decoded) < 100 {
		t.Errorf("%d events, the last is %+v", len(decoded), last)
	}
	for i, e := range decoded[:len(decoded)-1] {
		if e.ID != fmt.Sprint(i) || e.Error != events[i].Error {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
}

func TestEventsThatCannotBeReadAreMissed(t *testing.T) {
	for _, encoded := range []string{"", "x", "[]", `{"process":{"pid":1},"events":[{"kind":7}]}`} {
		if e := decode("q", []byte(encoded)); len(e) != 1 || e[0].Kind != event.Missed {
			t.Errorf("%q: %+v", encoded, e)
		}
	}
	e := decode("q", []byte(`{"process":{"pid":1},"events":[{"kind":"new","extra":1}],"missed":2}`))
	if len(e) != 2 || e[0].Kind != "new" || e[1].Missed != 2 {
		t.Errorf("%+v", e)
	}
}

func TestReporterKnowsEveryKind(t *testing.T) {
	seen := map[store.EventKind]bool{}
	for i, kind := range countedKinds {
		if kind == "" || seen[kind] || countIndex(kind) != i {
			t.Errorf("kind %d is %q, with index %d", i, kind, countIndex(kind))
		}
		seen[kind] = true
		r := store.Report{Queue: "q", Counts: map[store.EventKind]int64{kind: 1}}
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, kind := range []store.EventKind{
		event.Acked, event.Nacked, event.Snoozed, event.Buried, event.Released, event.GivenBack,
	} {
		if !seen[kind] {
			t.Errorf("%s is not counted", kind)
		}
	}
	if countIndex(event.Started) >= 0 || countIndex(event.Missed) >= 0 {
		t.Error("started and missed must not be counted")
	}
}

// hangingSink takes reports once it is let go.
type hangingSink struct{ letGo chan struct{} }

func (s *hangingSink) Report(_ context.Context, reports []store.Report) ([]store.ReportResult, error) {
	<-s.letGo
	return make([]store.ReportResult, len(reports)), nil
}

func TestReporterKeepsFewDetailsWhileAReportHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &hangingSink{make(chan struct{})}
		r := New(sink, slog.New(slog.DiscardHandler))
		q := r.Of("q")
		for range 100 * MaxDetails {
			q.Collect(Event{Kind: event.Sent}, nil)
			q.Collect(Event{Kind: event.Nacked}, errors.New("boom"))
			q.Count(event.Sent, 1)
		}
		synctest.Wait()
		if n := len(q.details); n > MaxDetails {
			t.Errorf("%d details are kept", n)
		}
		close(sink.letGo)
		r.Close()
		r.Wait()
	})
}

func TestReporterThatIsMissingRecordsNothing(t *testing.T) {
	var r *Reporter
	q := r.Of("q")
	q.Count(event.Sent, 1)
	q.Collect(Event{Kind: event.Sent}, nil)
	q.ExpectWatcher()
	if q.WantsDetails() {
		t.Error("it wants details")
	}
	r.Close()
	r.Wait()
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "[]", `{"process":{"pid":1},"events":[{"kind":"sent","id":"a"}],"missed":2}`,
		`{"events":[{"time":"x","lateness_ms":1e999,"headers":{"":""}}],"missed":-1}`,
		`{"events":[{"lateness_ms":1e308}],"missed":9223372036854775807}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, e := range decode("q", text) {
			if e.Queue != "q" {
				t.Errorf("%q has the event %v", text, e)
			}
		}
	})
}

// BenchmarkEncode encodes and decodes a report of the size that a process sends every 10 ms at most.
func BenchmarkEncode(b *testing.B) {
	events := make([]Event, MaxDetails)
	for i := range events {
		events[i] = Event{Kind: event.Acked, ID: store.NewID(), Time: time.Now(), Attempt: 1,
			Lateness: 612 * time.Microsecond, Duration: 12345 * time.Microsecond}
	}
	process := ThisProcess()
	encoded, _ := encode(process, events, 0)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			encode(process, events, 0)
		}
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			decode("q", encoded)
		}
	})
}
