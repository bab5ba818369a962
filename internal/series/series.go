// Package series computes reminder series: messages with the same payload at several distances from one moment. It says
// which messages a series has, when they are due and which headers they carry, and reads the headers back.
//
// It works without a store, and imports package store only. Start reading at Series.
package series

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/laterq/later/store"
)

// Series is a reminder series. The root package documents the fields.
type Series struct {
	Until   time.Time
	Offsets []time.Duration
	Past    Past
}

// Past is the treatment of a message of a series when its time has passed.
type Past uint8

// The treatments of messages that are past their time.
const (
	Skip Past = iota
	Send
)

const (
	// MaxID is the maximum length of the id of a series, in bytes.
	MaxID = 96
	// GroupPrefix and the id of a series are the group of its messages.
	GroupPrefix = "series:"
	// Window is the dedup window of a message of a series, unless its sender set one.
	Window = 24 * time.Hour
)

// The headers of a message of a series.
const (
	idHeader     = "series"
	untilHeader  = "series-until"
	offsetHeader = "series-offset"
	indexHeader  = "series-index"
	countHeader  = "series-count"
)

// Check returns an error for a series that is not allowed. Its id may be empty.
func (s *Series) Check(id string) error {
	switch {
	case s.Until.IsZero():
		return store.Invalid("the moment of the series is the zero time: give a time in Until")
	case len(s.Offsets) == 0:
		return store.Invalid("the series has no offsets: give 1 to %d", store.MaxBatch)
	case len(s.Offsets) > store.MaxBatch:
		return store.TooLarge("the series has %d offsets: the limit is %d", len(s.Offsets), store.MaxBatch)
	}
	seen := map[time.Duration]bool{}
	for _, d := range s.Offsets {
		switch {
		case d.Abs() > store.MaxDelay:
			return store.Invalid("offset %v: the limit is %v before or after the moment", d, store.MaxDelay)
		case d%time.Millisecond != 0:
			return store.Invalid("offset %v: give whole milliseconds", d)
		case seen[d]:
			return store.Invalid("offset %v is given twice: give it once", d)
		}
		seen[d] = true
	}
	if err := s.Past.Check(); err != nil {
		return err
	}
	if id == "" {
		return nil
	}
	return cmp.Or(CheckID(id), store.CheckNew("id of the series", id))
}

// Check returns an ErrInvalid for an unknown treatment.
func (p Past) Check() error {
	if p > Send {
		return store.Invalid("past is %d: give SkipPast or SendPast", p)
	}
	return nil
}

// CheckID returns an ErrInvalid unless a series can have an id.
func CheckID(id string) error {
	switch {
	case id == "":
		return store.Field("id", store.Invalid("id of the series is empty: give the one that it was sent with"))
	case len(id) > MaxID:
		return store.Field("id", store.Invalid("id of the series is %d bytes long: the limit is %d", len(id), MaxID))
	}
	return store.CheckID(id)
}

// Message is the part of a message that the series decides.
type Message struct {
	ID      string
	Due     time.Time
	Headers [][2]string // names and values
}

// Messages returns the messages of a series that are to be sent at now.
func (s *Series) Messages(id string, now time.Time) (msgs []Message) {
	until := store.Time(store.UnixMillis(s.Until))
	for i, d := range slices.Sorted(slices.Values(s.Offsets)) {
		due := until.Add(d)
		if s.Past == Skip && !due.After(now) {
			continue
		}
		msgs = append(msgs, Message{id + "/" + offsetText(d), due, [][2]string{
			{idHeader, id},
			{untilHeader, until.UTC().Format(time.RFC3339Nano)},
			{offsetHeader, offsetText(d)},
			{indexHeader, strconv.Itoa(i + 1)},
			{countHeader, strconv.Itoa(len(s.Offsets))},
		}})
	}
	return msgs
}

// offsetText returns an offset with its sign, as time.ParseDuration reads it.
func offsetText(d time.Duration) string {
	if d < 0 {
		return d.String()
	}
	return "+" + d.String()
}

// Part says which message of which series a message is.
type Part struct {
	ID           string
	Until        time.Time
	Offset       time.Duration
	Index, Count int
}

// PartOf returns the Part that the headers describe, for a message with that due time and number of failed attempts.
func PartOf(headers map[string]string, due time.Time, failed int) (Part, bool) {
	p := Part{ID: headers[idHeader]}
	if p.ID == "" {
		return Part{}, false
	}
	var errs [4]error
	p.Until, errs[0] = time.Parse(time.RFC3339Nano, headers[untilHeader])
	p.Offset, errs[1] = time.ParseDuration(headers[offsetHeader])
	p.Index, errs[2] = strconv.Atoi(headers[indexHeader])
	p.Count, errs[3] = strconv.Atoi(headers[countHeader])
	if errors.Join(errs[:]...) != nil {
		return Part{}, false
	}
	if failed == 0 && !due.IsZero() {
		p.Until = due.Add(-p.Offset).In(p.Until.Location())
	}
	return p, true
}
