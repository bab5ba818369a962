package recurrence

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A transition is a change of a zone's offset.
type transition struct {
	at            int64 // seconds since 1970
	before, after int64 // offsets
}

// transitions returns the changes of a zone in a range of years, found without ZoneBounds, by bisection.
func transitions(loc *time.Location, from, to int) []transition {
	offset := func(at int64) int64 {
		_, o := time.Unix(at, 0).In(loc).Zone()
		return int64(o)
	}
	var found []transition
	const step = 5 * daySeconds // no zone had two changes within five days since 1970
	end := time.Date(to+1, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for at := time.Date(from, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); at < end; at += step {
		low, high := at, at+step
		before, after := offset(low), offset(high)
		if before == after {
			continue
		}
		for high-low > 1 {
			if mid := (low + high) / 2; offset(mid) == before {
				low = mid
			} else {
				high = mid
			}
		}
		found = append(found, transition{high, before, after})
	}
	return found
}

// forTransitions calls f for all transitions of all zones from 1970 to 2037. Zones with the same transitions, as links
// have, count once.
func forTransitions(t *testing.T, f func(t *testing.T, loc *time.Location, tr transition)) {
	t.Helper()
	changes := 0
	for _, z := range changingZones() {
		for _, tr := range z.transitions {
			f(t, z.loc, tr)
			changes++
		}
	}
	t.Logf("%d zones with %d transitions", len(changingZones()), changes)
	if len(changingZones()) < 200 || changes < 10_000 {
		t.Error("these are too few")
	}
}

type changingZone struct {
	loc         *time.Location
	transitions []transition
}

var changingZones = sync.OnceValue(func() []changingZone {
	var zones []changingZone
	for name := range strings.FieldsSeq(zoneNames) {
		loc, err := time.LoadLocation(name)
		if err != nil {
			panic(err)
		}
		all := transitions(loc, 1970, 2037)
		same := func(other changingZone) bool { return slices.Equal(all, other.transitions) }
		if len(all) > 0 && !slices.ContainsFunc(zones, same) {
			zones = append(zones, changingZone{loc, all})
		}
	}
	return zones
})

// TestDailyJobRunsOncePerDay is the property that users rely on: across all changes of the clock, a daily job runs once
// for each day of the local calendar. A skipped time runs after the gap, a repeated time runs at first, and a day that
// does not exist has no run.
func TestDailyJobRunsOncePerDay(t *testing.T) {
	random, tries := rand.New(rand.NewPCG(17, 42)), 2
	if long() {
		tries = 300
	}
	forTransitions(t, func(t *testing.T, loc *time.Location, tr transition) {
		for try := range tries {
			second := random.Int64N(daySeconds)
			if try%2 == 0 { // near the change
				second = floorMod(tr.at+min(tr.before, tr.after)-1800+random.Int64N(2*3600), daySeconds)
			}
			checkDaily(t, loc, tr, second)
		}
	})
}

func checkDaily(t *testing.T, loc *time.Location, tr transition, second int64) {
	t.Helper()
	daily := cronIn(t, loc, fmt.Sprintf("%d %d %d * * *", second%60, second/60%60, second/3600))
	from, to := tr.at-3*daySeconds, tr.at+3*daySeconds
	var want []int64
	for day := floorDiv(from, daySeconds) - 2; day <= floorDiv(to, daySeconds)+2; day++ {
		at := expectedInstant(tr, day*daySeconds+second)
		if at > from && at <= to && !slices.Contains(want, at) {
			want = append(want, at)
		}
	}
	var got []int64
	for at, ok := daily.next(from * 1000); ok && at <= to*1000; at, ok = daily.next(at) {
		got = append(got, at/1000)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%v: %v at %s: daily at second %d: got %v, want %v", loc, tr, time.Unix(tr.at, 0).In(loc), second, got,
			want)
	}
	checkOncePerDate(t, loc, tr, second, got)
}

// expectedInstant returns the instant of a wall by definition, given the only change nearby.
func expectedInstant(tr transition, w wall) int64 {
	if at := w - tr.before; at < tr.at {
		return at // shown before the change, and perhaps again after it
	}
	if at := w - tr.after; at >= tr.at {
		return at
	}
	return w - tr.before // skipped: as if the clock had not changed
}

// checkOncePerDate counts runs by the date that the clock shows. Only a time that is skipped just before midnight runs
// on the following date.
func checkOncePerDate(t *testing.T, loc *time.Location, tr transition, second int64, runs []int64) {
	t.Helper()
	count := map[int64]int{}
	for _, at := range runs {
		count[floorDiv(at+periodAt(loc, at).offset, daySeconds)]++
	}
	before, after := tr.at+tr.before, tr.at+tr.after // walls at the change
	for day := floorDiv(before, daySeconds) - 1; day <= floorDiv(after, daySeconds)+1; day++ {
		want := 1
		w := day*daySeconds + second
		switch {
		case day*daySeconds >= before && (day+1)*daySeconds <= after:
			want = 0 // the day does not exist
		case w >= before && w < after && w+after-before >= (day+1)*daySeconds:
			want = 0 // skipped until after midnight
		case w-daySeconds >= before && w-daySeconds < after && after-before < daySeconds &&
			w-daySeconds+after-before >= day*daySeconds:
			want = 2 // that one, and its own
		}
		if count[day] != want {
			t.Fatalf("%v: daily at second %d: %d runs on %s, want %d", loc, second, count[day],
				time.Unix(day*daySeconds, 0).UTC().Format(time.DateOnly), want)
		}
	}
}

// cronIn returns the times of a cron expression in a zone that is loaded already.
func cronIn(t *testing.T, loc *time.Location, expression string) source {
	t.Helper()
	c := compiler{spec: &Spec{Cron: expression}, rule: &Rule{loc: loc}}
	s, err := c.source()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWildcardHoursRunOnElapsedTime checks every quarter of an hour through the changes of all zones: an instant is a
// time if and only if the clock shows a quarter.
func TestWildcardHoursRunOnElapsedTime(t *testing.T) {
	forTransitions(t, func(t *testing.T, loc *time.Location, tr transition) {
		quarters := cronIn(t, loc, "*/15 * * * *")
		got := tr.at - 4500
		for want := got + 1; want < tr.at+4500; want++ {
			offset, end := tr.before, tr.at
			if want >= tr.at {
				offset, end = tr.after, never
			}
			if want += floorMod(-(want + offset), 900); want >= end { // the next quarter
				want = end - 1
				continue
			}
			ms, _ := quarters.next(got * 1000)
			if got = ms / 1000; got != want {
				t.Fatalf("%v: got %s, want %s", loc, time.Unix(got, 0).In(loc), time.Unix(want, 0).In(loc))
			}
		}
	})
}

func TestPeriodsOfAZoneAreComplete(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe",
		"Asia/Gaza"} {
		loc := zone(t, name)
		changes := transitions(loc, 1970, 2110)
		at := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
		end := time.Date(2110, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
		for at < end {
			p := periodAt(loc, at)
			if p.end <= at || p.start > at {
				t.Fatalf("%s: %+v does not contain %d", name, p, at)
			}
			for len(changes) > 0 && changes[0].at <= at {
				changes = changes[1:]
			}
			if len(changes) > 0 && p.end > changes[0].at {
				t.Fatalf("%s: %+v passes the change at %s", name, p, time.Unix(changes[0].at, 0).In(loc))
			}
			at = p.end
		}
	}
}
