// Package activity has the shared code of engines to keep counts of events and to pass events on to watchers: Ring for
// the counts, Hub for the watchers within a process, and Buffer for the events that a watcher has not read. It may
// import package store only.
package activity

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// Span is a window of time that is counted in Slots buckets of WidthMS. One more than the window needs is kept, because
// the current one is not complete.
type Span struct {
	Letter  byte
	WidthMS int64
	Slots   int64
}

// Spans are the windows: the last minute, hour and day.
var Spans = [3]Span{
	{'m', 10_000, 7},
	{'h', 300_000, 13},
	{'d', 3_600_000, 25},
}

// MaxBuckets is how many buckets a Ring has at most.
const MaxBuckets = 7 + 13 + 25

// KeepFor is the time after its last change for which a Ring has counts to show.
const KeepFor = 25 * time.Hour

// Ring counts events by kind in buckets of time. A bucket has the name of its place, such as "m3". A later one replaces
// it there, so the size is bounded. The zero value is empty. It is not safe for concurrent use.
type Ring struct {
	buckets map[string]bucket
}

type bucket struct {
	number int64 // its start by its width
	counts map[store.EventKind]int64
}

// place returns the number of the bucket of a time, and its name.
func (s Span) place(ms int64) (number int64, name string) {
	number = ms / s.WidthMS
	return number, string(s.Letter) + strconv.FormatInt(number%s.Slots, 10)
}

// Add counts events that happened at now, in ms since 1970.
func (r *Ring) Add(now int64, counts map[store.EventKind]int64) {
	if r.buckets == nil {
		r.buckets = map[string]bucket{}
	}
	for _, span := range Spans {
		number, name := span.place(now)
		b := r.buckets[name]
		if b.number != number || b.counts == nil {
			b = bucket{number, map[store.EventKind]int64{}}
			r.buckets[name] = b
		}
		for kind, n := range counts {
			if n != 0 {
				b.counts[kind] += n
			}
		}
	}
}

// At returns the windows that end at now. Buckets that a clock has put into the future do not count.
func (r *Ring) At(now time.Time) store.Activity {
	a := store.Activity{Now: now}
	windows := [len(Spans)]*store.ActivityWindow{&a.Minute, &a.Hour, &a.Day}
	for i, span := range Spans {
		last, _ := span.place(now.UnixMilli())
		first := last - span.Slots + 1
		w := windows[i]
		w.From, w.Step = time.UnixMilli(first*span.WidthMS), time.Duration(span.WidthMS)*time.Millisecond
		w.Counts, w.Parts = map[store.EventKind]int64{}, make([]map[store.EventKind]int64, span.Slots)
		for name, b := range r.buckets {
			if name[0] != span.Letter || b.number < first || b.number > last {
				continue
			}
			w.Parts[b.number-first] = maps.Clone(b.counts) // r goes on counting
			for kind, n := range b.counts {
				w.Counts[kind] += n
			}
		}
	}
	return a
}

// Empty reports whether nothing was counted.
func (r *Ring) Empty() bool { return len(r.buckets) == 0 }

// Append appends the text of r to dst: a line for each bucket, which has its name and the text for Set.
func (r *Ring) Append(dst []byte) []byte {
	for _, name := range slices.Sorted(maps.Keys(r.buckets)) {
		b := r.buckets[name]
		dst = append(dst, name...)
		dst = strconv.AppendInt(append(dst, ' '), b.number, 10)
		for _, kind := range slices.Sorted(maps.Keys(b.counts)) {
			dst = append(append(dst, ' '), kind...)
			dst = strconv.AppendInt(append(dst, ' '), b.counts[kind], 10)
		}
		dst = append(dst, '\n')
	}
	return dst
}

// Parse returns the Ring of a text that Append made.
func Parse(text string) (Ring, error) {
	var r Ring
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if err := r.Set(name, rest); err != nil {
			return Ring{}, err
		}
	}
	return r, nil
}

// Set sets the bucket of a name to a text: its number, then kinds, each with its count.
func (r *Ring) Set(name, text string) error {
	words := strings.Fields(text)
	if len(words)%2 == 0 || !knownPlace(name) {
		return fmt.Errorf("bucket %.40q of the activity is %.100q: %w", name, text, store.ErrCorrupt)
	}
	b := bucket{counts: map[store.EventKind]int64{}}
	var err error
	if b.number, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return fmt.Errorf("bucket %q of the activity is %.100q: %w", name, text, store.ErrCorrupt)
	}
	for pair := range slices.Chunk(words[1:], 2) {
		n, err := strconv.ParseInt(pair[1], 10, 64)
		if err != nil {
			return fmt.Errorf("bucket %q of the activity is %.100q: %w", name, text, store.ErrCorrupt)
		}
		b.counts[store.EventKind(pair[0])] = n
	}
	if r.buckets == nil {
		r.buckets = map[string]bucket{}
	}
	r.buckets[name] = b
	return nil
}

func knownPlace(name string) bool {
	for _, span := range Spans {
		if len(name) > 1 && name[0] == span.Letter {
			slot, err := strconv.ParseInt(name[1:], 10, 64)
			return err == nil && slot >= 0 && slot < span.Slots
		}
	}
	return false
}
