package later

import (
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/recurrence"
)

func TestScheduleRecordIsReadWithTheRuleOfItsOwnCreation(t *testing.T) {
	first := newRecord(t, Schedule{When: recurrence.Spec{Every: time.Hour}})
	if _, err := first.rule(); err != nil {
		t.Fatal(err)
	}
	again := newRecord(t, Schedule{When: recurrence.Spec{Every: time.Hour}}) // deleted and stored again
	again.Created += (20 * time.Minute).Milliseconds()
	payload := again.encode()
	first.encode()
	r, err := decodeSchedule("a", payload, first)
	if err != nil {
		t.Fatal(err)
	}
	rule, err := r.rule()
	if err != nil {
		t.Fatal(err)
	}
	if next, _ := rule.Next(stepStart); next.Nominal.Minute() != 20 {
		t.Errorf("the next run is %v, want one 20 minutes past the hour", next.Nominal)
	}
	if _, err := decodeSchedule("b", payload, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the record under another name: %v", err)
	}
}

func TestScheduleRecordHasThePayloadAsItIs(t *testing.T) {
	headers := map[string]string{"content-type": "application/json"}
	for _, payload := range []string{`{"a": "<"}`, `"text"`, "text", "\xff", ""} {
		s := Schedule{When: recurrence.Spec{Every: time.Hour}, Payload: []byte(payload), Headers: headers}
		r, err := decodeSchedule("a", newRecord(t, s).encode(), nil)
		if err != nil || string(r.Schedule.Payload) != payload || len(r.Schedule.Headers) != 1 {
			t.Errorf("%q became %+v, %v", payload, r, err)
		}
	}
	r, err := decodeSchedule("a", []byte(`{"v":2}`+"\n"+`{"name":"a","queue":"q","payload":"text","every":"1h0m0s"}`), nil)
	if err != nil || string(r.Schedule.Payload) != "text" || r.Schedule.Headers != nil {
		t.Errorf("a record of an earlier program became %+v, %v", r, err)
	}
}

func TestNewRuleStartsAnewWhileARunIsDelayed(t *testing.T) {
	s := Schedule{Name: "a", Queue: "q", When: recurrence.Spec{Cron: "0 * * * *", Jitter: 50 * time.Minute}}
	r := newRecord(t, s)
	now := time.UnixMilli(r.Next) // the run is due later, because of jitter
	if r.NextDue <= r.Next {
		t.Fatalf("the run at %v is not delayed", now)
	}
	s.When = recurrence.Spec{Cron: "30 * * * *"}
	s.normalize()
	if _, err := s.putInto(r, now); err != nil || r.Next != now.Add(30*time.Minute).UnixMilli() {
		t.Errorf("the next run is at %v, %v", time.UnixMilli(r.Next), err)
	}
}

func TestResumeOfAFinishedScheduleLeavesItFinished(t *testing.T) {
	r := newRecord(t, Schedule{When: recurrence.Spec{Cron: "* * * * *", MaxRuns: 1}})
	now := stepStart.Add(time.Minute)
	if steps := allSteps(t, r, now); len(steps) != 1 || len(steps[0]) != 1 {
		t.Fatalf("steps %+v", steps)
	}
	if err := r.resume(now); err != nil || r.Next != 0 {
		t.Errorf("the next run is at %v, %v", time.UnixMilli(r.Next), err)
	}
}

// TestScheduleMessageWasSentWhenTheScheduleWasCreated looks at it after a change and after a step.
func TestScheduleMessageWasSentWhenTheScheduleWasCreated(t *testing.T) {
	inScheduleStores(t, func(t *testing.T, c *Client, start time.Time) {
		s := everyMinute("a")
		put(t, c, s, PutCreated)
		want := func() {
			t.Helper()
			infos, err := c.store.Get(t.Context(), reserved.Schedules, []string{"a"})
			if err != nil || !infos[0].SentAt.Equal(start) {
				t.Errorf("sent at %v, %v; want %v", infos[0].SentAt, err, start)
			}
		}
		time.Sleep(time.Second)
		s.Payload = nil
		put(t, c, s, PutChanged)
		want()
		ran := work(t, c, start, nil)
		time.Sleep(time.Minute)
		ran.want(t, "1m0s")
		want()
		ran.stop()
	})
}
