package schedule

import (
	"testing"
	"time"

	"github.com/laterq/later/recurrence"
)

// BenchmarkScheduleStep is what a worker does for a run besides calling the store.
func BenchmarkScheduleStep(b *testing.B) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := Schedule{
		Name: "nightly", Queue: "reports", Payload: make([]byte, 100),
		When: recurrence.Spec{Cron: "* * * * * *", TimeZone: "Europe/Berlin"},
	}
	s.normalize()
	var record Record
	record.set(&s)
	record.Created = now.UnixMilli()
	if err := record.restart(now); err != nil {
		b.Fatal(err)
	}
	payload := record.Encode()
	b.ReportAllocs()
	var known *Record
	for b.Loop() {
		r, err := Decode("nightly", payload, known)
		if err != nil {
			b.Fatal(err)
		}
		known = r
		now = r.due(now)
		runs, err := r.step(now, false)
		if err != nil || len(runs) != 1 {
			b.Fatal(runs, err)
		}
		m := r.Message(runs[0])
		if err := m.Check(); err != nil {
			b.Fatal(err)
		}
		payload = r.outgoing(now).Payload
	}
}
