package recurrence

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// FuzzSpec decodes rules as JSON, with exclusions, times and series. They are refused as invalid, or their own JSON is
// the same again.
func FuzzSpec(f *testing.F) {
	for _, text := range []string{`{"cron":"@daily","exclude":["2030-12-24/2031-01-02"]}`, `{"every":"1ns"}`,
		`{"every":"36500d"}`,
		`{"times":["2030-01-01T00:00:00Z","2030-01-01T00:00:00Z"]}`,
		`{"series":{"first":"3d","factor":1e999,"count":4}}`,
		`{"series":{"first":"3d","factor":2,"count":4}}`, `{"rrule":"FREQ=DAILY","start":"9999-12-31T23:59:59Z"}`,
		`{"cron":"* * * * *","exclude":["0000-01-01/9999-12-31"]}`,
		`{"cron":"* * * * *","exclude":["2030-01-02/2030-01-01"]}`,
		`{"cron":"@daily","time_zone":"../../etc/passwd"}`, `{"cron":"@daily","time_zone":"Local"}`,
		`{"cron":"@daily","cron":"@hourly"}`,
		`{"cron":` + strings.Repeat("[", 70), "null", `{"every":"1h","jitter":"2h"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var spec, again Spec
		if json.Unmarshal(text, &spec) != nil {
			return
		}
		rule, err := Compile(spec, Options{Created: time.Unix(1_774_746_000, 0)})
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		next := time.Unix(1_774_746_000, 0)
		for range 3 {
			run, ok := rule.Next(next)
			if !ok {
				break
			}
			if !run.Nominal.After(next) {
				t.Fatalf("%q: %v follows %v", text, run, next)
			}
			next = run.Nominal
		}
		first, err := json.Marshal(spec)
		if err == nil {
			err = json.Unmarshal(first, &again)
		}
		if second, serr := json.Marshal(again); err != nil || serr != nil || string(first) != string(second) {
			t.Errorf("%q: %s, %v becomes %s, %v", text, first, err, second, serr)
		}
	})
}
