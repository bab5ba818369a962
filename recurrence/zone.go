package recurrence

import (
	_ "embed"
	"math"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // a machine without zone files runs schedules too

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// zoneNames has one name of a zone on each line. It serves suggestions; a zone that it lacks can be used.
//
//go:embed zones.txt
var zoneNames string

// zones has the zones that were loaded, by name. There are about 600.
var zones sync.Map

// loadZone returns the zone of a name. No name means UTC, and never the zone of the machine: each process must come to
// the same times.
func loadZone(name string) (*time.Location, error) {
	switch name {
	case "":
		return time.UTC, nil
	case "Local":
		return nil, store.Invalid("time zone: \"Local\" differs between machines: give a name such as Europe/Berlin")
	}
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, store.Invalid("time zone: %q is unknown%s", nearest.Clip(name),
			nearest.DidYouMean(name, strings.Fields(zoneNames), "give a name such as Europe/Berlin"))
	}
	zones.Store(name, loc)
	return loc, nil
}

// longestChange is more than any change of a clock: Samoa moved by 24 hours in 2011.
const longestChange = 26 * 3600

const never = math.MaxInt64 / 4

// A period is a span of time with the same offset of a zone from UTC. The fields are seconds since 1970 and of offset.
// Before start the offset was before; both may be unknown if the asked instant is far from start.
type period struct {
	start, end     int64
	offset, before int64
}

// periodAt returns the period of an instant. It may end early: then the next one has the same offset.
func periodAt(loc *time.Location, at int64) period {
	t := time.Unix(at, 0).In(loc)
	_, offset := t.Zone()
	p := period{start: -never, end: never, offset: int64(offset), before: int64(offset)}
	start, end := t.ZoneBounds()
	// Package time returns an end in the past on the last day of leap years (seen in Go 1.26). No zone changes then.
	switch e := end.Unix(); {
	case end.IsZero():
	case e <= at:
		p.end = (floorDiv(at, daySeconds) + 1) * daySeconds
	default:
		p.end = e
	}
	if s := start.Unix(); !start.IsZero() && s <= at {
		p.start = s
		if at-s < longestChange {
			_, before := time.Unix(s-1, 0).In(loc).Zone()
			p.before = int64(before)
		}
	}
	return p
}

// instantOf returns the first instant when the zone shows the wall or, if it never does, the instant when it would show
// it without the change that skips it.
func instantOf(loc *time.Location, w wall) int64 {
	z := zoned{loc: loc, walls: single(w), shift: true}
	at, _ := z.next(w - longestChange)
	return at
}

// startOfDay returns the first instant of a day, given its midnight, or of the next day that exists.
func startOfDay(loc *time.Location, midnight wall) int64 {
	at := instantOf(loc, midnight)
	if p := periodAt(loc, at); at+p.offset != midnight {
		return p.start // the clock skips midnight
	}
	return at
}

// single is a set of one wall.
type single wall

func (s single) next(w wall) (wall, bool) { return wall(s), w <= wall(s) }
