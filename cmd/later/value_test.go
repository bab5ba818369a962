package main

import (
	"log/slog"
	"testing"
	"time"
)

func TestTimesAreRFC3339OrLocal(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	now := time.Date(2030, 3, 30, 12, 0, 0, 0, berlin) // daylight saving time starts the next night
	local := func(day, hour, minute, second int) time.Time {
		return time.Date(2030, 3, day, hour, minute, second, 0, berlin)
	}
	for text, want := range map[string]time.Time{
		"2030-03-30T11:00:00Z":      local(30, 12, 0, 0),
		"2030-03-30T11:00:00.5Z":    local(30, 12, 0, 0).Add(500 * time.Millisecond),
		"2030-03-30T12:00:00+01:00": local(30, 12, 0, 0),
		"2030-03-31 15:04":          local(31, 15, 4, 0),
		"2030-03-31 15:04:05":       local(31, 15, 4, 5),
		"12:01":                     local(30, 12, 1, 0),
		"12:00":                     local(31, 12, 0, 0), // the next one, not now
		"11:59":                     local(31, 11, 59, 0),
		"11:59:30":                  local(31, 11, 59, 30),
	} {
		if got, err := parseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "noon", "25:00", "2030-03-31", "tomorrow 12:00"} {
		if got, err := parseTime(text, now); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}

func TestLogDurationsAreFormattedLikeOthers(t *testing.T) {
	if got := formatAttr(slog.Duration("after", 2*time.Hour)); got != " after=2h" {
		t.Errorf("got %q", got)
	}
}

func TestControlCharactersAreEscapedForATerminal(t *testing.T) {
	if got := printable("a\x1b[2Jb\tc\nd\x00é\xff"); got != "a\\x1b[2Jb\tc\nd\\x00é\uFFFD" {
		t.Errorf("got %q", got)
	}
	if got := preview("one\n two\tthree four", 12); got != "one two thr…" {
		t.Errorf("got %q", got)
	}
}

func TestTablesAlignNumbersToTheRight(t *testing.T) {
	table := newTable("NAME", ">COUNT", "")
	table.add("é", "1000", "")
	table.add("long name", "1", "paused")
	want := "NAME       COUNT\né           1000\nlong name      1  paused\n"
	if got := table.String(); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestFrameFitsTheScreen(t *testing.T) {
	got := frame([]string{"one", "two is long", "three", "four"}, 6, 4)
	want := "\x1b[Hone\x1b[K\r\ntwo is\x1b[K\r\nand 2 \x1b[K\r\n\x1b[J"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPercentiles(t *testing.T) {
	sorted := make([]time.Duration, 200)
	for i := range sorted {
		sorted[i] = time.Duration(i + 1)
	}
	for p, want := range map[int]time.Duration{50: 100, 99: 198, 100: 200} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("p%d is %d, want %d", p, got, want)
		}
	}
	if got := percentile(sorted[:1], 50); got != 1 {
		t.Errorf("p50 of one is %d", got)
	}
}
