package schedule

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

func TestScheduleRecordIsReadWithTheRuleOfItsOwnCreation(t *testing.T) {
	first := newRecord(t, Schedule{When: recurrence.Spec{Every: time.Hour}})
	if _, err := first.Rule(); err != nil {
		t.Fatal(err)
	}
	again := newRecord(t, Schedule{When: recurrence.Spec{Every: time.Hour}}) // deleted and stored again
	again.Created += (20 * time.Minute).Milliseconds()
	payload := again.Encode()
	first.Encode()
	r, err := Decode("a", payload, first)
	if err != nil {
		t.Fatal(err)
	}
	rule, err := r.Rule()
	if err != nil {
		t.Fatal(err)
	}
	if next, _ := rule.Next(stepStart); next.Nominal.Minute() != 20 {
		t.Errorf("the next run is %v, want one 20 minutes past the hour", next.Nominal)
	}
	if _, err := Decode("b", payload, nil); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("the record under another name: %v", err)
	}
}

func TestScheduleRecordHasThePayloadAsItIs(t *testing.T) {
	headers := map[string]string{"content-type": "application/json"}
	for _, payload := range []string{`{"a": "<"}`, `"text"`, "text", "\xff", ""} {
		s := Schedule{When: recurrence.Spec{Every: time.Hour}, Payload: []byte(payload), Headers: headers}
		r, err := Decode("a", newRecord(t, s).Encode(), nil)
		if err != nil || string(r.Schedule.Payload) != payload || len(r.Schedule.Headers) != 1 {
			t.Errorf("%q became %+v, %v", payload, r, err)
		}
	}
	r, err := Decode("a", []byte(`{"v":2}`+"\n"+`{"name":"a","queue":"q","payload":"text","every":"1h0m0s"}`), nil)
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

func TestScheduleJSONHasEveryFieldOfARule(t *testing.T) {
	var fields map[string]any
	text, _ := json.Marshal(recurrence.Spec{Cron: "x", Every: 1, RRule: "x", Times: []time.Time{{}},
		Series: &recurrence.Series{}, TimeZone: "x", Start: time.Unix(1, 0), End: time.Unix(1, 0), Exclude: []string{"x"},
		Jitter: 1, MaxRuns: 1, Gap: "x", Overlap: "x"})
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	known := jsonfields.Fields(new(wire.Rule))
	if len(fields) != len(known) || len(fields) != reflect.TypeFor[recurrence.Spec]().NumField() {
		t.Errorf("a rule's JSON has the fields %v, and wire.Rule %d", fields, len(known))
	}
	for _, f := range known {
		if fields[f.Name] == nil {
			t.Errorf("field %q is missing in %v", f.Name, fields)
		}
	}
}
