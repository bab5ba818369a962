package schedule

import (
	"time"

	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

const (
	// maxStepRuns is the maximum number of runs that one step sends, so that they and the record fit into one call.
	maxStepRuns = store.MaxBatch - 1
	// maxStepTimes is the maximum number of past times of its rule that one step looks at.
	maxStepTimes = 2 * MaxRuns
	// maxPeriods is the number of runs whose distances say how old a missed run may be: more than office hours have in a
	// week.
	maxPeriods = 64
	// bufferPoll is how often it is looked whether the run before a buffered one has ended.
	bufferPoll = time.Second
)

// parked is when a schedule is due that has no next run.
var parked = time.Date(2199, 12, 31, 0, 0, 0, 0, time.UTC)

// stepper makes the step of a schedule that is due. A step sends some runs, and leaves a record that says when the next
// step is due: at once if there is more to send than one step can.
type stepper struct {
	*Record
	rule       *recurrence.Rule
	now        time.Time // on the store's clock
	unfinished bool      // the last run is scheduled, ready or leased
	runs       []Run
	limit      int // of runs
	within     time.Duration
}

// step changes the record to the state after the step, and returns the runs to send. unfinished reports whether the
// last run that was sent is scheduled, ready or leased.
func (r *Record) step(now time.Time, unfinished bool) ([]Run, error) {
	rule, err := r.Rule()
	if err != nil || r.PausedAt != 0 {
		return nil, err
	}
	s := stepper{Record: r, rule: rule, now: now, unfinished: unfinished, limit: maxStepRuns}
	s.within = r.missedWithin(rule, now)
	if r.Buffered != 0 && !unfinished {
		nominal, due := store.Time(r.Buffered), store.Time(r.BufferedDue)
		r.Buffered, r.BufferedDue = 0, 0
		s.send(r.Run(nominal, due, RunBuffered))
	}
	due, following := s.dueTimes()
	if len(due) > 1 {
		s.limit = r.maxStepRuns()
	}
	for i, at := range due {
		if len(s.runs) == s.limit {
			following = &due[i]
			break
		}
		if s.finished() {
			break
		}
		s.meet(at)
	}
	if following != nil && s.finished() {
		following = nil
	}
	r.setNext(following)
	return s.runs, nil
}

// finished reports whether the schedule has had all its runs.
func (s *stepper) finished() bool {
	n := s.Runs - s.RunsBefore
	if s.Buffered != 0 {
		n++
	}
	return s.rule.Finished(int(n))
}

// meet sends, buffers or skips the run at a time.
func (s *stepper) meet(at recurrence.Occurrence) {
	switch policy := s.Schedule.Unfinished; {
	case s.unfinished && policy == UnfinishedBuffer && s.Buffered == 0:
		s.Buffered, s.BufferedDue = at.Nominal.UnixMilli(), at.Due.UnixMilli()
	case s.unfinished && policy != UnfinishedAllow:
		s.skip(at.Nominal.UnixMilli())
	case s.late(at):
		s.send(s.Run(at.Nominal, at.Due, RunMissed))
	default:
		s.send(s.Run(at.Nominal, at.Due, RunDue))
	}
}

func (s *stepper) send(run Run) {
	s.runs = append(s.runs, run)
	s.Runs++
	s.sentLast(run)
	s.unfinished = true
}

// late reports whether the run at a time was missed.
func (s *stepper) late(at recurrence.Occurrence) bool { return s.now.Sub(at.Due) > missedAfter }

// dueTimes returns the times that are due, without those that were missed and are not made up for, and the time that
// follows them, or nil if there is none.
func (s *stepper) dueTimes() (due []recurrence.Occurrence, following *recurrence.Occurrence) {
	at, ok := s.skipOld()
	for ; ok && !at.Due.After(s.now) && len(due) < maxStepTimes; at, ok = s.rule.Next(at.Nominal) {
		due = append(due, at)
	}
	if ok {
		following = &at
	}
	more := ok && !at.Due.After(s.now)
	old, late, keep := 0, 0, 0
	for oldest := s.oldest(); late < len(due) && s.late(due[late]); late++ {
		if due[late].Due.Before(oldest) {
			old++
		}
	}
	switch {
	case s.Schedule.Missed == MissedAll:
		keep = s.Schedule.MissedMax
	case s.Schedule.Missed == MissedOne && late == len(due):
		keep = 1
	}
	leftOut := max(old, late-keep)
	if leftOut > 0 {
		s.miss(leftOut, due[leftOut-1])
	}
	if due = due[leftOut:]; more && leftOut > 0 && len(due) > 0 {
		return nil, &due[0] // there may be later ones to make up for instead
	}
	return due, following
}

// missedWithin returns the age up to which missed runs are made up for.
func (r *Record) missedWithin(rule *recurrence.Rule, now time.Time) time.Duration {
	if r.Schedule.MissedWithin > 0 {
		return r.Schedule.MissedWithin
	}
	period, last, n := time.Duration(0), now, 0
	for at := range rule.After(now) {
		period, last = max(period, at.Nominal.Sub(last)), at.Nominal
		if n++; n == maxPeriods {
			break
		}
	}
	if n < maxPeriods { // nothing takes the place of the last run
		period = maxMissedWithin
	}
	period = min(period, maxMissedWithin)
	if r.Schedule.Missed == MissedAll {
		period *= time.Duration(min(r.Schedule.MissedMax, int(maxMissedWithin/max(period, 1))+1))
	}
	return min(max(period, minMissedWithin), maxMissedWithin)
}

// oldest returns the due time before which a run is too old to be made up for.
func (s *stepper) oldest() time.Time {
	window := missedAfter
	if s.Schedule.Missed != MissedNone {
		window = max(window, s.within)
	}
	return s.now.Add(-window)
}

// skipOld counts the times that are too old to be made up for, and returns the first that is not. After maxStepTimes it
// leaves out, uncounted, those that no jitter can delay enough, and returns the next one, which may be too old.
func (s *stepper) skipOld() (at recurrence.Occurrence, ok bool) {
	if s.Next == 0 {
		return at, false
	}
	oldest := s.oldest()
	at = recurrence.Occurrence{Nominal: store.Time(s.Next), Due: store.Time(s.NextDue)}
	ok = true
	for n := 0; ok && at.Due.Before(oldest); n++ {
		if n == maxStepTimes {
			if from := oldest.Add(-s.Schedule.When.Jitter); at.Nominal.Before(from) {
				return s.rule.Next(from.Add(-time.Millisecond))
			}
			return at, true
		}
		s.miss(1, at)
		at, ok = s.rule.Next(at.Nominal)
	}
	return at, ok
}

// maxStepRuns returns how many runs one step can send together with the record.
func (r *Record) maxStepRuns() int {
	m := r.Message(r.Run(parked, parked, RunBackfilled))
	sent := store.Message{Payload: m.Payload, Headers: m.Headers}
	room := store.MaxFollowUpBytes - len(r.Encode())
	return min(maxStepRuns, max(1, room/max(1, sent.Size())))
}

// miss counts n missed runs that are left out, of which the last is the one at a time.
func (r *Record) miss(n int, last recurrence.Occurrence) {
	r.Missed += int64(n)
	r.LastMissed = last.Nominal.UnixMilli()
}

// skip counts the run at a nominal time, which is left out because the one before is unfinished.
func (r *Record) skip(nominal int64) {
	r.Skipped++
	r.LastSkipped = nominal
}

// sentLast remembers a run as the last one.
func (r *Record) sentLast(run Run) {
	r.LastID, r.LastNominal, r.LastCause = run.ID, run.Nominal.UnixMilli(), run.Cause
}

// setNext sets the time of the next run, nil for none.
func (r *Record) setNext(at *recurrence.Occurrence) {
	r.Next, r.NextDue = 0, 0
	if at != nil {
		r.Next, r.NextDue = at.Nominal.UnixMilli(), at.Due.UnixMilli()
	}
}

// due returns when the schedule's next step is due.
func (r *Record) due(now time.Time) time.Time {
	due := parked
	if r.Next != 0 && r.NextDue < parked.UnixMilli() {
		due = store.Time(r.NextDue)
	}
	if poll := now.Add(bufferPoll); r.Buffered != 0 && poll.Before(due) {
		due = poll
	}
	if r.PausedAt != 0 {
		due = parked
	}
	return due
}
