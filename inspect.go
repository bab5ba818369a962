package later

import (
	"context"
	"time"

	"github.com/laterq/later/internal/inspect"
	"github.com/laterq/later/store"
)

// Filter selects messages of a queue. State or Group is required; a message matches if it matches all that is set. The
// store finds State, Group, From and To by itself; for the rest, Search reads the messages and looks.
type Filter struct {
	State    State     // scheduled, ready, leased or dead; not together with Group
	Group    string    // in any state
	From, To time.Time // due in [From, To), or for dead messages died; not together with Group

	ID      string // contained in the id
	Payload string // contained in the payload
	Error   string // contained in the text of a failed attempt
	// ErrorPattern is the result of the function ErrorPattern for the last error; see Queue.DeadErrors.
	ErrorPattern string
	// Headers are headers that the message has, with these values.
	Headers map[string]string
	// MinAttempts and MaxAttempts limit the number of failed attempts. 0 for MaxAttempts means no limit.
	MinAttempts, MaxAttempts int
	// JSON compares a value in a payload that is JSON.
	JSON *JSONCondition
	// Words are each contained in the id, the group, the key or the payload, whatever their case. There are up to 16.
	Words []string
	// NamesOnly is set if Words are not looked for in payloads.
	NamesOnly bool
}

// JSONCondition compares a value in a payload that is JSON. With a wildcard in the path, one of the values must match.
// The operator != matches where = does not: also payloads that are not JSON, that are nested more than 64 deep, or that
// do not have the value.
//
// Path names the value by a subset of JSONPath (RFC 9535): names, indices and one wildcard, such as
// $.order.items[0].price, or order.items[*].sku for any item. A name with other characters than letters, digits and _
// is in quotes: order['unit price'].
//
// Op is =, !=, <, <=, > or >=, or ~ for a text that contains another. Value is a number if it is one, or else text.
// true and false compare with booleans.
type JSONCondition = inspect.Condition

// ParseJSONCondition returns the condition that text states with a path, an operator and a value, such as
// order.total >= 100 or name ~ Ann. It returns ErrInvalid for any other text, with the position of the error in the
// path.
func ParseJSONCondition(text string) (*JSONCondition, error) { return inspect.ParseCondition(text) }

// Check returns an ErrInvalid unless the filter is allowed.
func (f *Filter) Check() error { return (*inspect.Filter)(f).Check() }

// Matches reports whether a message that is in the state or group of the filter, and in its range, matches the rest.
func (f *Filter) Matches(m *Info) bool { return (*inspect.Filter)(f).Matches(m.stored()) }

// SearchOptions limit a Search.
type SearchOptions struct {
	// Limit is how many messages end a page, 1 to store.MaxBatch. One that was looked at together with the last ones is
	// in the page, too, so that a page can have up to store.MaxBatch - 1 more. Default: 100.
	Limit int
	// Look is how many messages to look at before the page ends, however few matched. Default: 10,000.
	Look int
	// Bytes ends a page before a message that would make the page longer than this as JSON, about. A page has at least
	// one message if any matches. Default: no limit.
	Bytes int
	// Cursor is SearchPage.Next of the page before. Default: the first page.
	Cursor string
}

// SearchPage is one page of a Search.
type SearchPage struct {
	Messages []*Info
	Looked   int    // how many messages were looked at for this page
	Next     string // Cursor of the next page; "" when all were looked at
	// Truncated is set when SearchOptions.Bytes ended the page.
	Truncated bool
}

// Search returns a page of the messages that match a filter, in the order of List. It looks at a bounded number of
// messages, so a page may be empty although a later one is not: go on with Next. The guarantees of List for messages
// that change between pages hold for Search.
func (q *Queue) Search(ctx context.Context, f Filter, o SearchOptions) (SearchPage, error) {
	found, err := inspect.Search(ctx, q.list, inspect.Filter(f), inspect.Options(o))
	page := SearchPage{Looked: found.Looked, Next: found.Next, Truncated: found.Truncated}
	for i := range found.Messages {
		page.Messages = append(page.Messages, newInfo(q.name, found.Messages[i]))
	}
	return page, err
}

// ErrorPattern returns the text of an error with # in place of each number, UUID and hexadecimal number of 8 digits or
// more. So errors that differ in these only have the same pattern. That of the empty text is "no error".
func ErrorPattern(text string) string { return inspect.Pattern(text) }

// DeadErrors are dead messages with last errors of the same pattern.
type DeadErrors struct {
	// Pattern is the ErrorPattern of their last errors; see Filter.ErrorPattern.
	Pattern string
	Count   int
	// First and Last are when the first and the last of them died.
	First, Last time.Time
	// Queues counts them by queue, the largest count first.
	Queues []QueueCount
	// Hours counts the deaths in each hour from DeadErrorsPage.From on. The last hour has not ended yet.
	Hours [24]int
	// ExampleQueue, ExampleID, Error and Reason are from the message that died last.
	ExampleQueue, ExampleID string
	Error                   string
	Reason                  DeadReason
}

// QueueCount is a number of messages of a queue.
type QueueCount = inspect.QueueCount

// DeadErrorsOptions limit Client.DeadErrors and Queue.DeadErrors.
type DeadErrorsOptions struct {
	// Queues are the only queues to look at. Default: all but Later's internal queues. Queue.DeadErrors takes none.
	Queues []string
	// Visible reports whether the groups may have messages of a queue. Default: all are visible.
	Visible func(queue string) bool
	// Look is how many messages to look at, 1 or more. Default: 10,000.
	Look int
	// Cursor is DeadErrorsPage.Next of the page before. Default: the first page.
	Cursor string
}

// DeadErrorsPage is the groups of the messages that one call of DeadErrors looked at.
type DeadErrorsPage struct {
	Groups []DeadErrors // largest first; groups of the same size by pattern
	// Queues is the number of queues that are looked at, and LeftOut the number of them that cannot be read.
	Queues, LeftOut int
	// Dead is how many dead messages the queues have, and Looked how many of them were looked at for this page.
	Dead   int64
	Looked int
	// From is when the 24 hours of DeadErrors.Hours begin, by the store's clock: at a whole hour, and 23 hours before
	// the hour of the first page. It is the same in all pages.
	From time.Time
	// HoursComplete is set when all messages that died since From were looked at, for this page or pages before it.
	HoursComplete bool
	Next          string // Cursor of the next page; "" when all were looked at
}

// DeadErrors groups the dead messages of all queues by the patterns of their last errors. It looks at a bounded number
// of messages, and at fewer if their errors have many patterns: first at those that died since From, then at earlier
// ones. A pattern can be in several pages: add up the counts.
//
// A Filter with StateDead and the pattern selects exactly the messages of a group in each of its queues, for example to
// replay them. A queue that cannot be read is left out unless Queues names it. See Queue.Get for errors.
func (c *Client) DeadErrors(ctx context.Context, o DeadErrorsOptions) (DeadErrorsPage, error) {
	for _, name := range o.Queues {
		if err := c.Queue(name).invalid; err != nil {
			return DeadErrorsPage{}, err
		}
	}
	found, err := called(c, func() (inspect.DeadErrorsPage, error) {
		return inspect.GroupDead(ctx, c.store, c.Queues, inspect.DeadErrorsOptions(o))
	})
	page := DeadErrorsPage{Queues: found.Queues, LeftOut: found.LeftOut, Dead: found.Dead, Looked: found.Looked,
		From: found.From, HoursComplete: found.HoursComplete, Next: found.Next}
	for _, g := range found.Groups {
		page.Groups = append(page.Groups, DeadErrors(g))
	}
	return page, err
}

// DeadErrors is Client.DeadErrors for this queue.
func (q *Queue) DeadErrors(ctx context.Context, o DeadErrorsOptions) (DeadErrorsPage, error) {
	if len(o.Queues) > 0 {
		return DeadErrorsPage{}, store.Invalid("queues are given for the dead errors of queue %q: use Client.DeadErrors, "+
			"or give none", q.name)
	}
	o.Queues = []string{q.name}
	return q.client.DeadErrors(ctx, o)
}

// Why is the reason why a message has not been handled yet.
type Why = inspect.Why

// The reasons of an Explanation.
const (
	WhyScheduled = inspect.Scheduled // it is not due yet
	WhyPaused    = inspect.Paused    // it is due, and its queue is paused
	WhyNoWorker  = inspect.NoWorker  // it is due, and no worker of its queue is live
	WhyLimited   = inspect.Limited   // it is due, and a limit of its queue or key holds it back; see Queue.SetFlow
	WhyWaiting   = inspect.Waiting   // it is due, and no worker has claimed it yet
	WhyLeased    = inspect.Leased    // a worker holds it
	WhyFollows   = inspect.Follows   // it follows a message that a worker holds; see Follow
	WhyDead      = inspect.Dead      // it was set aside
	// Workers give it back, since they do not know its kind or cannot decode its payload. It waits for its next
	// delivery, or for a worker of another version; see GiveBack.
	WhyGivenBack = inspect.GivenBack
)

// Explanation is why a message has not been handled yet. All times are of the store's clock.
type Explanation struct {
	Queue, ID string
	Reason    Why
	Due       time.Time // when it falls due, or last fell due
	Attempts  int       // failed attempts
	Paused    bool      // its queue is paused
	// Before is how many scheduled and ready messages of the queue are due earlier, for WhyWaiting and WhyLimited.
	Before int64
	// Workers is the number of live workers that may claim the message, and Running the number of these that are
	// neither paused nor draining. Programs that use ReceiveFor or the HTTP API count as workers; programs that use
	// Receive do not.
	Workers, Running int
	// Handlers is the number of handlers of the running workers, and Busy how many of them run, for WhyWaiting if all do.
	// Otherwise both are 0.
	Handlers, Busy int
	// Worker is the name of the worker that holds the message, or the one that it follows, or the only message in
	// flight of its key for WhyLimited, and HeldSince when its handler was called. If all Handlers are busy, Worker is
	// the only running worker, and HeldSince when the first of the handlers was called. They are from the workers' last
	// heartbeats, and "" and zero if none has reported it.
	Worker    string
	HeldSince time.Time
	// GivenBackAt is when it was first given back, and Error why, for WhyGivenBack. Worker is then the last one that
	// did.
	GivenBackAt time.Time
	Error       string
	// LeaseDeadline is when the lease ends unless it is extended, for WhyLeased and WhyFollows.
	LeaseDeadline time.Time
	DeadReason    DeadReason // for WhyDead
	DiedAt        time.Time
	// Flow is the limits of the queue, for WhyLimited, and for WhyWaiting if its keys take turns or it has Urgency.
	Flow FlowState
	// Shard is the shard of the message, from 0, and Shards the number of shards of the queue, for WhyLimited if a share
	// of the queue's limits holds the message back; Flow is then that of the shard. Otherwise both are 0, unless Moving
	// is set: messages of the queue that are due have to move to Shards shards before this one starts.
	Shard, Shards int
	Moving        bool
	// Key is the message's key with its limits, if the key is what the message waits for, or if the message holds the
	// key of an Order and is not leased, and else nil.
	Key *KeyState
	// Urgency is the urgency of the message, if Flow has Urgency.
	Urgency Urgency
	// Now is the store's clock.
	Now time.Time
}

// Explain returns why a message has not been handled yet. It reads the message, its queue and the live workers one
// after the other. It returns ErrNotFound when no live message has the id.
func (q *Queue) Explain(ctx context.Context, id string) (Explanation, error) {
	if err := q.begin(id); err != nil {
		return Explanation{}, err
	}
	defer q.client.calls.Done()
	e, err := inspect.Explain(ctx, &q.client.fleet, q.name, id)
	switch {
	case err != nil:
		return Explanation{}, err
	case e == nil:
		return Explanation{}, q.errorOf(id, ErrNotFound)
	}
	return Explanation(*e), nil
}

// Text returns the reason as one sentence, without a capital or a full stop, such as "due tomorrow at 09:00". Times of
// day are in the given location.
func (e Explanation) Text(in *time.Location) string { return inspect.Explanation(e).Text(in) }
