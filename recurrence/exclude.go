package recurrence

import (
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// A span is a time from from until before to, in milliseconds since 1970.
type span struct{ from, to int64 }

// parseExclusions returns the spans in order, without overlaps.
func parseExclusions(texts []string, loc *time.Location) ([]span, error) {
	if len(texts) > maxExclude {
		return nil, store.Invalid("exclude: %d entries: the limit is %d", len(texts), maxExclude)
	}
	spans := make([]span, 0, len(texts))
	for i, text := range texts {
		s, err := parseExclusion(text, loc)
		if err != nil {
			return nil, store.Invalid("exclude: entry %d, %q: %s", i+1, nearest.Clip(text), err)
		}
		spans = append(spans, s)
	}
	slices.SortFunc(spans, func(a, b span) int { return int(min(max(a.from-b.from, -1), 1)) })
	merged := spans[:0]
	for _, s := range spans {
		if last := len(merged) - 1; last >= 0 && s.from <= merged[last].to {
			merged[last].to = max(merged[last].to, s.to)
		} else {
			merged = append(merged, s)
		}
	}
	return merged, nil
}

func parseExclusion(text string, loc *time.Location) (span, error) {
	first, last, isRange := strings.Cut(text, "/")
	from, err := parseMoment(first, loc)
	if err != nil || !isRange {
		return from, err
	}
	to, err := parseMoment(last, loc)
	switch isDay := len(first) == len(time.DateOnly); {
	case err != nil:
		return span{}, err
	case isDay != (len(last) == len(time.DateOnly)):
		return span{}, store.Invalid("give two days or two times")
	case isDay: // the last day is included, a last time is not
		from.to = to.to
	default:
		from.to = to.from
	}
	if from.to <= from.from {
		return span{}, store.Invalid("%s is not after %s", last, first)
	}
	return from, nil
}

// parseMoment returns the span of a day or the millisecond of a time.
func parseMoment(text string, loc *time.Location) (span, error) {
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return span{startOfDay(loc, day.Unix()) * 1000, startOfDay(loc, day.Unix()+daySeconds) * 1000}, nil
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.Parse(layout, text); err == nil {
			at := instantOf(loc, t.Unix())*1000 + int64(t.Nanosecond()/1e6)
			return span{at, at + 1}, nil
		}
	}
	for _, layout := range []string{"2006-01-02T15:04Z07:00", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return span{t.UnixMilli(), t.UnixMilli() + 1}, nil
		}
	}
	return span{}, store.Invalid("give a day such as 2026-12-25, a time such as 2026-12-24T18:00, or two of " +
		"them with a / between")
}

// findSpan returns the span that contains a time.
func findSpan(spans []span, at int64) (span, bool) {
	for low, high := 0, len(spans); low < high; {
		switch mid := (low + high) / 2; {
		case at < spans[mid].from:
			high = mid
		case at >= spans[mid].to:
			low = mid + 1
		default:
			return spans[mid], true
		}
	}
	return span{}, false
}
