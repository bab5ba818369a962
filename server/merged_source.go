package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/laterq/later"
)

// mergeSource is the messages of a queue in one state, or those of a group in a queue.
type mergeSource struct {
	queue  string
	state  later.State
	from   time.Time // earlier messages are not read
	bound  time.Time // messages that are not read yet are not earlier
	probed time.Time // where the store was asked for the first message; zero if it was not
	after  place     // of the message taken last, also by an earlier request: the ones up to it are left out
	read   []*later.Info
	at     int    // the next of read
	cursor string // of the page that read is from
	next   string // the cursor of the page after it
	done   bool   // there is none
	again  bool   // the last page has to be read again, since messages have fallen due
}

// place is the place of a message in the list of a source. Stores list messages of the same time by id, and those of a
// group by id only, without a time. The place of a leased message says nothing about others.
type place struct {
	at time.Time
	id string
}

func (p place) compare(o place) int { return cmp.Or(p.at.Compare(o.at), cmp.Compare(p.id, o.id)) }

// placeOf returns the place of a message of the source.
func (s *mergeSource) placeOf(info *later.Info) place {
	if s.state == "" {
		return place{id: info.ID}
	}
	return place{listTime(info), info.ID}
}

// compare orders sources of the same time.
func (s *mergeSource) compare(o *mergeSource) int {
	return cmp.Or(cmp.Compare(s.queue, o.queue), cmp.Compare(s.state, o.state))
}

// head returns the next message of the source, or nil if none is read.
func (s *mergeSource) head() *later.Info {
	if s.at == len(s.read) {
		return nil
	}
	return s.read[s.at]
}

// earliest returns the time of the next message of the source, or one that is not later if that is not read yet.
func (s *mergeSource) earliest() time.Time {
	if info := s.head(); info != nil {
		return listTime(info)
	}
	return s.bound
}

// listTime returns the time of a message in lists of its state.
func listTime(info *later.Info) time.Time {
	if info.State == later.StateDead {
		return info.DiedAt
	}
	return info.Due
}

// goOn has the source begin at a time, or right after it. Times of a store are whole milliseconds.
func (s *mergeSource) goOn(at time.Time, after bool) {
	if after {
		at = at.Add(time.Millisecond)
	}
	if at.After(s.from) {
		s.from = at
	}
	if at.After(s.bound) {
		s.bound = at
	}
}

// begin returns the cursor of the page to read next.
func (s *mergeSource) begin() string {
	if s.done {
		return s.cursor
	}
	return s.next
}

// skip skips the messages that were taken already.
func (s *mergeSource) skip() {
	if s.state == later.StateLeased {
		s.at = slices.IndexFunc(s.read, func(info *later.Info) bool { return info.ID == s.after.id }) + 1
		return
	}
	for s.at < len(s.read) && s.placeOf(s.read[s.at]).compare(s.after) <= 0 {
		s.at++
	}
}
