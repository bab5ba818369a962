package schedule

import (
	"testing"
	"time"

	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

var stepStart = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// newRecord returns the record of a schedule that was stored at stepStart.
func newRecord(t *testing.T, s Schedule) *Record {
	t.Helper()
	s.Name, s.Queue = "a", "q"
	s.normalize()
	if err := s.checkNormal(); err != nil {
		t.Fatal(err)
	}
	r := new(Record)
	if _, err := s.putInto(r, stepStart); err != nil {
		t.Fatal(err)
	}
	return r
}

// allSteps makes steps until the next one is due later than now. No run has ended meanwhile.
func allSteps(t *testing.T, r *Record, now time.Time) (steps [][]Run) {
	t.Helper()
	for !r.due(now).After(now) {
		runs, err := r.step(now, r.LastID != "")
		if err != nil {
			t.Fatal(err)
		}
		if steps = append(steps, runs); len(steps) > 1000 {
			t.Fatal("there is no end of steps")
		}
	}
	return steps
}

// TestStepsAfterALongTimeAreBounded has more missed runs than one step looks at, all young enough.
func TestStepsAfterALongTimeAreBounded(t *testing.T) {
	const late = 12*3600 - 61 // runs, and 61 that are not
	now := stepStart.Add(12 * time.Hour)
	for policy, want := range map[MissedPolicy]struct{ runs, missed int }{
		MissedNone: {61, maxStepTimes}, // older ones are not counted
		MissedOne:  {61, late}, MissedAll: {61 + 700, late - 700},
	} {
		r := newRecord(t, Schedule{
			When: recurrence.Spec{Every: time.Second, Start: stepStart}, Missed: policy, MissedWithin: 24 * time.Hour,
			MissedMax: 700, Unfinished: UnfinishedAllow,
		})
		last, n := stepStart, 0
		steps := allSteps(t, r, now)
		for _, runs := range steps {
			for _, run := range runs {
				if isLate := now.Sub(run.Due) > missedAfter; isLate != (run.Cause == RunMissed) || !run.Nominal.After(last) {
					t.Fatalf("%s: run %+v after %v", policy, run, last)
				}
				last = run.Nominal
				n++
			}
		}
		if n != want.runs || r.Runs != int64(n) || r.Missed != int64(want.missed) || !last.Equal(now) {
			t.Errorf("%s: %d runs until %v, want %+v; the record %+v", policy, n, last, want, r.State)
		}
		if policy != MissedNone && len(steps) < late/maxStepTimes {
			t.Errorf("%s: %d steps looked at %d times", policy, len(steps), late)
		}
	}
}

// TestStepsSendAllThatJitterDelaysIntoTheWindow has more old runs than are counted.
func TestStepsSendAllThatJitterDelaysIntoTheWindow(t *testing.T) {
	for ms := range 10 {
		stepsWithJitter(t, stepStart.Add(24*time.Hour+time.Duration(ms)*100*time.Millisecond))
	}
}

func stepsWithJitter(t *testing.T, now time.Time) {
	r := newRecord(t, Schedule{
		When: recurrence.Spec{Every: time.Second, Start: stepStart, Jitter: 30 * time.Minute}, Missed: MissedAll,
		MissedWithin: time.Hour, MissedMax: MaxRuns, Unfinished: UnfinishedAllow,
	})
	rule, err := r.Rule()
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for at := range rule.After(stepStart) {
		if at.Due.After(now) {
			break
		}
		if !at.Due.Before(now.Add(-time.Hour)) {
			want++
		}
	}
	n := 0
	for _, runs := range allSteps(t, r, now) {
		n += len(runs)
	}
	if n != want || n == 0 {
		t.Errorf("%d runs were sent, want %d", n, want)
	}
}

func TestStepOfLargeRunsFitsIntoACall(t *testing.T) {
	r := newRecord(t, Schedule{
		When: recurrence.Spec{Every: time.Minute, Start: stepStart}, Missed: MissedAll, MissedWithin: time.Hour,
		Payload: make([]byte, 120_000), Unfinished: UnfinishedAllow,
	})
	sent := 0
	for _, runs := range allSteps(t, r, stepStart.Add(time.Hour)) {
		m := r.Message(r.Run(stepStart, stepStart, RunMissed))
		one := store.Message{Payload: m.Payload, Headers: m.Headers}
		if size := len(runs)*one.Size() + len(r.Encode()); size > store.MaxBatchBytes || len(runs) == 0 {
			t.Errorf("a step of %d runs has %d bytes, want at most %d", len(runs), size, store.MaxBatchBytes)
		}
		sent += len(runs)
	}
	if sent != 60 {
		t.Errorf("%d runs were sent, want 60", sent)
	}
}

func TestStepsEndWithTheLastRun(t *testing.T) {
	r := newRecord(t, Schedule{
		When: recurrence.Spec{Cron: "* * * * *", MaxRuns: 2}, Missed: MissedAll, Unfinished: UnfinishedAllow,
	})
	steps := allSteps(t, r, stepStart.Add(10*time.Minute))
	if len(steps) != 1 || len(steps[0]) != 2 || r.Runs != 2 || r.Next != 0 {
		t.Errorf("steps %+v, record %+v", steps, r.State)
	}
}

func TestBufferedRunIsLookedAtEachSecond(t *testing.T) {
	r := newRecord(t, Schedule{When: recurrence.Spec{Cron: "0 * * * *"}, Unfinished: UnfinishedBuffer})
	now := stepStart.Add(time.Hour)
	if runs, err := r.step(now, true); err != nil || len(runs) > 0 || !r.due(now).Equal(now.Add(bufferPoll)) {
		t.Errorf("%d runs, %v, due %v", len(runs), err, r.due(now))
	}
}

func TestStepOfAPausedScheduleSendsNothing(t *testing.T) {
	r := newRecord(t, Schedule{When: recurrence.Spec{Cron: "* * * * *"}})
	r.PausedAt = stepStart.UnixMilli()
	before := r.State
	if runs, err := r.step(stepStart.Add(time.Hour), false); err != nil || len(runs) > 0 || r.State != before {
		t.Errorf("%d runs, %v, %+v", len(runs), err, r.State)
	}
}

func TestScheduleOfADistantTimeIsParked(t *testing.T) {
	r := newRecord(t, Schedule{When: recurrence.Spec{Times: []time.Time{parked.AddDate(50, 0, 0)}}})
	if due := r.due(stepStart); !due.Equal(parked) {
		t.Errorf("it is due at %v, want %v", due, parked)
	}
}
