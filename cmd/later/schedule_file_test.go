package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later"
)

// TestScheduleFileWithAnchors parses anchors, which save people from repeating themselves, and the byte order mark of
// some editors.
func TestScheduleFileWithAnchors(t *testing.T) {
	const text = "\ufeffschedules:\n- &a {name: a, queue: q, every: 1h}\n- {<<: *a, name: b}\n"
	file, err := parseScheduleFile([]byte(text))
	if err != nil || len(file.Schedules) != 2 || file.Schedules[1].Name != "b" || file.Schedules[1].Queue != "q" {
		t.Errorf("parsed %+v, %v", file, err)
	}
	for _, twice := range []string{
		"schedules:\n- {name: a, queue: q, every: 1h, every: 2h}\n",
		`{"schedules": [{"name": "a", "queue": "q", "every": "1h", "every": "2h"}]}`,
	} {
		_, err := parseScheduleFile([]byte(twice))
		if !errors.Is(err, later.ErrInvalid) || !strings.Contains(err.Error(), "every") {
			t.Errorf("%s: %v", twice, err)
		}
	}
	_, err = parseScheduleFile(
		[]byte("a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 65) + "]"))
	if !errors.Is(err, later.ErrTooLarge) {
		t.Errorf("65 MiB by aliases: %v", err)
	}
}

// FuzzScheduleFile finds that any file is refused as invalid, or has schedules that survive their JSON.
func FuzzScheduleFile(f *testing.F) {
	for _, seed := range []string{
		"set: s\nschedules:\n- {name: a, queue: q, cron: 0 2 * * *, time_zone: Europe/Berlin, payload: {k: [1, 2.5]}}",
		`{"schedules": [{"name": "a", "queue": "q", "every": "1h", "payload_base64": "AAEC", "headers": {"k": "v"}}]}`,
		"schedules:\n- &a {name: 2030-01-01, queue: q, times: [2030-01-01T00:00:00Z]}\n- {<<: *a, name: 1}",
		"schedules: [{name: a, queue: q, series: {first: 3d, factor: 2, count: 4}, missed: all, unfinished: allow}]",
		"schedules: [{name: a, queue: q, rrule: FREQ=DAILY, start: 2030-01-01T00:00:00+02:00, exclude: [2030-12-25]}]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := parseScheduleFile(text)
		if err != nil {
			if !errors.Is(err, later.ErrInvalid) && !errors.Is(err, later.ErrTooLarge) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		for _, s := range file.Schedules {
			if s.Check() != nil {
				continue
			}
			first, err := s.MarshalJSON()
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			var again later.Schedule
			if err := again.UnmarshalJSON(first); err != nil {
				t.Fatalf("%s: %v", first, err)
			}
			if second, err := again.MarshalJSON(); err != nil || string(second) != string(first) {
				t.Fatalf("%s became %s, %v", first, second, err)
			}
		}
	})
}
