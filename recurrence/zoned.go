package recurrence

import "time"

// walls is a set of walls.
type walls interface {
	// next returns the first one at or after w, or false if there is none.
	next(w wall) (wall, bool)
}

// zoned translates walls to instants in a zone. Its fields are the policies where the clock changes; the package
// comment has the rules.
type zoned struct {
	loc   *time.Location
	walls walls
	shift bool // a wall that the zone skips has an instant: the one that would show it without the change
	both  bool // a wall that the zone shows twice has two instants, else the first
}

// next returns the first instant, in seconds since 1970, that is later than after.
func (z *zoned) next(after int64) (int64, bool) {
	for at := after + 1; ; {
		p := periodAt(z.loc, at)
		from := at + p.offset
		if !z.both && p.before > p.offset { // walls until then were shown before the clock was set back
			from = max(from, p.start+p.before)
		}
		w, more := z.walls.next(from)
		if found, ok := z.shifted(p, at); ok && (!more || found < w-p.offset) {
			return found, true
		}
		switch {
		case !more && !z.repeats(p):
			return 0, false
		case more && w-p.offset < p.end:
			return w - p.offset, true
		}
		at = p.end
	}
}

// shifted returns the first instant at or after at of a wall that was skipped at the start of p.
func (z *zoned) shifted(p period, at int64) (int64, bool) {
	if !z.shift || p.before >= p.offset || at >= p.start+p.offset-p.before {
		return 0, false
	}
	w, ok := z.walls.next(at + p.before)
	if !ok || w >= p.start+p.offset {
		return 0, false
	}
	return w - p.before, true
}

// repeats reports whether walls that p has already shown may be shown again after it.
func (z *zoned) repeats(p period) bool {
	if !z.both || p.end >= never {
		return false
	}
	_, offset := time.Unix(p.end, 0).In(z.loc).Zone()
	return int64(offset) < p.offset
}
