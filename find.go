package later

import (
	"context"
	"iter"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/inspect"
)

// ParseFilter returns the filter that a text states, without State, From and To. All of its conditions must be met:
//
//	refund                       a word that is in the id, the group, the key or the payload, whatever its case
//	"out of stock"               a word with spaces; a backslash escapes a quote
//	id:order-17  payload:refund  this is in the id, in the payload
//	error:timeout                this is in the error of a failed attempt
//	header:kind=mail             a header with this value
//	group:customer-9             messages of a group
//	pattern:"HTTP #"             the ErrorPattern of the last error
//	attempts>=3                  the number of failed attempts
//	order.total>=100             a value in a JSON payload; see JSONCondition
//
// It returns ErrInvalid for another comparison of attempts, for a second condition of the same name, for conditions on
// two values of the payload, and for more than 16 words or 4,096 bytes.
func ParseFilter(text string) (Filter, error) {
	f, err := inspect.ParseQuery(text)
	return Filter(f), err
}

// FindOptions are the text and the limits of a Client.Find.
type FindOptions struct {
	// Text is an id, a name, or words and conditions as ParseFilter reads them.
	Text string
	// Queue is the only queue to search. Default: all but Later's internal queues.
	Queue string
	// Visible reports whether the results may show a queue. Later's own queues stand for topics (topic:NAME) and for
	// schedules (schedules:). A worker is visible if one of its queues is. It is called from several goroutines at the
	// same time. Default: all are visible.
	Visible func(queue string) bool
	// NamesOnly is Filter.NamesOnly.
	NamesOnly bool
	// Limit is how many messages end the search by content. Default: 100.
	Limit int
	// Look is how many messages the search by content looks at, however few match. Default: 50,000.
	Look int
	// Cursor is FindProgress.Next of a search that ended early, which it continues. Default: a new search.
	Cursor string
}

// FindStage is a part of a Client.Find.
type FindStage = inspect.Stage

// The stages of a Find, in order.
const (
	FindByID      = inspect.ByID      // messages with exactly the id, in any state
	FindByName    = inspect.ByName    // names of queues, groups and so on
	FindByContent = inspect.ByContent // messages that match
)

// FoundName is a thing with a name that was found.
type FoundName struct {
	// Kind is queue, topic, schedule or worker, with all words in the name, or group or series, which have exactly the
	// name.
	Kind string
	Name string
	// Queue is the queue itself, the queue of a topic, a schedule, a group or a series, or "" for a worker.
	Queue string
}

// StateCounts counts messages by state.
type StateCounts = inspect.Counts

// FindProgress is how far a Find is.
type FindProgress struct {
	Stage FindStage // the stage that has ended, or FindByContent, which may go on
	// Conditions are the conditions of the text in words.
	Conditions string
	// Queues is the number of queues that are searched, and LeftOut the number of them that cannot be read.
	Queues, LeftOut int
	// NamesLeftOut is how many names were found after the first 50 of each kind, and of schedules after the first 1,000
	// by name, which are not looked at. Known from FindByName on; 0 in a search that continues another one.
	NamesLeftOut int
	// Messages is how many messages the queues have; known from FindByContent on.
	Messages StateCounts
	// Looked and Matched are how many messages this search has looked at, and how many of them matched.
	Looked, Matched StateCounts
	// Done is set if all messages were looked at. Otherwise Next, if it is not "", is the Cursor that continues.
	Done bool
	Next string
}

// Found is a result of a Find, or its progress. One of Message, Name and Progress is set.
type Found struct {
	Stage    FindStage
	Message  *Info
	Name     *FoundName
	Progress *FindProgress
}

// Find returns an iterator over everything that a text finds in the store, in three stages: messages with exactly the
// id, names, and messages that match. Find looks up ids and the names of groups and series, so that they take little
// time however many messages there are; order 42 may also stand for order-42. Each stage ends with its progress, and
// the last one has progress after each few thousand messages. The last progress is Done or has a Next. A message that
// changes its state during the search may be missed or found twice. A message that an earlier stage has found is not
// found again. If the text is an id and no filter, such as attempts=0, Find looks for that id before it returns the
// error.
//
// The iterator ends after an error: ErrInvalid names the option, for other errors see Queue.Get.
func (c *Client) Find(ctx context.Context, o FindOptions) iter.Seq2[*Found, error] {
	finder := &inspect.Finder{Store: c.store, Queues: c.Queues, Schedules: c.Schedules().List,
		Workers: func(ctx context.Context) ([]fleet.Info, error) { return c.fleet.List(ctx) }}
	return func(yield func(*Found, error) bool) {
		if err := c.begin(); err != nil {
			yield(nil, err)
			return
		}
		calling := true
		defer func() {
			if calling {
				c.calls.Done()
			}
		}()
		for found, err := range finder.Find(ctx, inspect.FindOptions(o)) {
			c.calls.Done() // so that Close need not wait for the loop
			calling = false
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(newFound(found), nil) {
				return
			}
			if err := c.begin(); err != nil {
				yield(nil, err)
				return
			}
			calling = true
		}
	}
}

func newFound(f *inspect.Found) *Found {
	out := &Found{Stage: f.Stage, Name: (*FoundName)(f.Name), Progress: (*FindProgress)(f.Progress)}
	if f.Message != nil {
		out.Message = newInfo(f.Queue, *f.Message)
	}
	return out
}
