package inspect

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/series"
	"github.com/laterq/later/store"
)

const (
	// FindLook is the number of messages that a Find looks at unless the caller says otherwise.
	FindLook = 50_000

	findLimit = 100 // messages that a Find returns unless the caller says otherwise
	maxNames  = 50  // of each kind
	// maxSchedules is the number of schedules that a Find reads, the first ones by name.
	maxSchedules = 1000
)

// Stage is a part of a Find.
type Stage string

// The stages of a Find, in order.
const (
	ByID      Stage = "id"      // messages with exactly the id, in any state
	ByName    Stage = "name"    // names of queues, groups and so on
	ByContent Stage = "content" // messages that match
)

// The kinds of names that a Find looks at, in order.
const (
	QueueName    = "queue"
	TopicName    = "topic"
	ScheduleName = "schedule"
	WorkerName   = "worker"
	GroupName    = "group"
	SeriesName   = "series"
)

// Name is a thing with a name that was found.
type Name struct {
	// Kind is queue, topic, schedule or worker, with all words in the name, or group or series, which have exactly the
	// name.
	Kind string
	Name string
	// Queue is the queue itself, the queue of a topic, a schedule, a group or a series, or "" for a worker.
	Queue string
}

// Counts counts messages by state.
type Counts struct{ Scheduled, Ready, Leased, Dead int64 }

func countsOf(s store.Stats) Counts { return Counts{s.Scheduled, s.Ready, s.Leased, s.Dead} }

// Total returns the number of messages in all states.
func (c Counts) Total() int64 { return c.Scheduled + c.Ready + c.Leased + c.Dead }

func (c *Counts) of(state store.State) *int64 {
	switch state {
	case store.StateScheduled:
		return &c.Scheduled
	case store.StateReady:
		return &c.Ready
	case store.StateLeased:
		return &c.Leased
	}
	return &c.Dead
}

func (c *Counts) add(o Counts) {
	c.Scheduled += o.Scheduled
	c.Ready += o.Ready
	c.Leased += o.Leased
	c.Dead += o.Dead
}

// Progress is how far a Find is.
type Progress struct {
	Stage Stage // the stage that has ended, or ByContent, which may go on
	// Conditions are the conditions of the text in words.
	Conditions string
	// Queues is the number of queues that are searched, and LeftOut the number of them that cannot be read.
	Queues, LeftOut int
	// NamesLeftOut is how many names were found after the first 50 of each kind, and of schedules after the first 1,000
	// by name, which are not looked at. Known from ByName on; 0 in a search that continues another one.
	NamesLeftOut int
	// Messages is how many messages the queues have; known from ByContent on.
	Messages Counts
	// Looked and Matched are how many messages this search has looked at, and how many of them matched.
	Looked, Matched Counts
	// Done is set if all messages were looked at. Otherwise Next, if it is not "", is the Cursor that continues.
	Done bool
	Next string
}

// Found is a result of a Find, or its progress. One of Message, Name and Progress is set.
type Found struct {
	Stage    Stage
	Message  *later.Info
	Name     *Name
	Progress *Progress
}

// FindOptions are the text and the limits of a Find.
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
	// Cursor is Progress.Next of a search that ended early, which it continues. Default: a new search.
	Cursor string
}

// find is one Find.
type find struct {
	client *later.Client
	store  store.Store
	FindOptions
	queueReader
	filter Filter
	from   findCursor
	// ids has the texts that may be the id of a message, and names the texts that may be the name of a group or series.
	// order 42 may be order-42.
	ids, names []string
	// refused says why only the text itself is looked for, as an id.
	refused  error
	progress Progress
	yield    func(*Found, error) bool
}

// errStopped says that the caller needs no more results.
var errStopped = errors.New("stopped")

// Find returns an iterator over everything that a text finds in the store, in three stages: messages with exactly the
// id, names, and messages that match. Find looks up ids and the names of groups and series, so that they take little
// time however many messages there are; order 42 may also stand for order-42. Each stage ends with its progress, and
// the last one has progress after each few thousand messages. The last progress is Done or has a Next. A message that
// changes its state during the search may be missed or found twice. A message that an earlier stage has found is not
// found again. If the text is an id and no filter, such as attempts=0, Find looks for that id before it returns the
// error.
//
// The iterator ends after an error: ErrInvalid names the option, for other errors see later.Queue.Get.
func Find(ctx context.Context, c *later.Client, o FindOptions) iter.Seq2[*Found, error] {
	return func(yield func(*Found, error) bool) {
		r := &find{client: c, store: c.Store(), FindOptions: o, yield: yield}
		if err := r.run(ctx); err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

func (f *find) run(ctx context.Context) error {
	if err := f.prepare(); err != nil {
		return err
	}
	if err := f.chooseQueues(ctx); err != nil {
		return err
	}
	if f.refused != nil {
		if err := f.sendIDs(ctx); err != nil {
			return err
		}
		return f.refused
	}
	if f.Cursor == "" {
		for _, stage := range []func(context.Context) error{f.byID, f.byName} {
			if err := stage(ctx); err != nil {
				return err
			}
		}
	}
	return f.byContent(ctx)
}

// prepare checks the options.
func (f *find) prepare() (err error) {
	text := strings.TrimSpace(f.Text)
	if f.filter, err = ParseFilter(f.Text); err != nil {
		f.filter = Filter{}
		if f.refused = store.Field("text", err); store.CheckID(text) != nil {
			return f.refused
		}
	}
	f.filter.NamesOnly = f.NamesOnly
	f.Limit, f.Look = cmp.Or(f.Limit, findLimit), cmp.Or(f.Look, FindLook)
	switch {
	case text == "":
		return store.Field("text", store.Invalid("text is empty: give an id, a name, words or conditions"))
	case f.Limit < 1 || f.Look < 1:
		return store.Invalid("find has the limit %d and looks at %d messages: must be 1 or more", f.Limit, f.Look)
	case f.Queue != "":
		if err := store.CheckQueue(f.Queue); err != nil {
			return err
		}
	}
	f.names = []string{text}
	if f.filter.onlyWords() {
		f.names = append(f.names, strings.Join(f.filter.Words, "-"))
		for _, between := range []string{"_", ":", "/", "."} {
			f.ids = append(f.ids, strings.Join(f.filter.Words, between))
		}
	}
	f.ids = sortedSet(append(f.ids, append(f.names, f.filter.ID)...), store.CheckID)
	f.names = sortedSet(append(f.names, f.filter.Group), store.CheckGroup)
	f.progress.Conditions = f.filter.Text()
	f.from, err = parseFindCursor(f.Cursor)
	return err
}

// sortedSet returns the texts that pass a check, each once.
func sortedSet(texts []string, check func(string) error) []string {
	texts = slices.DeleteFunc(texts, func(text string) bool { return check(text) != nil })
	slices.Sort(texts)
	return slices.Compact(texts)
}

// chooseQueues lists the queues that are searched.
func (f *find) chooseQueues(ctx context.Context) error {
	if f.Queue != "" {
		f.queues = []string{f.Queue}
	} else {
		all, err := f.client.Queues(ctx)
		if err != nil {
			return err
		}
		f.queues = slices.DeleteFunc(all, reserved.IsIdle)
	}
	f.queues = slices.DeleteFunc(f.queues, func(queue string) bool { return !f.sees(queue) })
	f.progress.Queues = len(f.queues)
	return nil
}

func (f *find) sees(queue string) bool { return f.Visible == nil || f.Visible(queue) }

// send passes a result on.
func (f *find) send(found *Found) error {
	if !f.yield(found, nil) {
		return errStopped
	}
	return nil
}

// report passes on how far the Find is.
func (f *find) report(stage Stage) error {
	f.progress.Stage = stage
	f.progress.LeftOut = f.leftOut()
	now := f.progress
	return f.send(&Found{Stage: stage, Progress: &now})
}

// among returns a function that reports whether a queue may have messages with some ids or in some groups.
func (f *find) among(ctx context.Context, ids, groups []string) (may func(i int) bool, err error) {
	prober, ok := store.As[store.Prober](f.store)
	if !ok {
		return func(int) bool { return true }, nil
	}
	has, err := prober.Probe(ctx, f.queues, ids, groups)
	return func(i int) bool { return has[i] }, err
}

// byID looks for messages with exactly the id.
func (f *find) byID(ctx context.Context) error {
	if err := f.sendIDs(ctx); err != nil {
		return err
	}
	return f.report(ByID)
}

// sendIDs passes on the messages with one of the ids. The id of a condition is one of several conditions.
func (f *find) sendIDs(ctx context.Context) error {
	found := make([][]*store.Info, len(f.queues))
	if len(f.ids) > 0 {
		may, err := f.among(ctx, f.ids, nil)
		if err != nil {
			return err
		}
		err = f.each(ctx, func(ctx context.Context, i int) (err error) {
			if may(i) {
				found[i], err = f.store.Get(ctx, f.queues[i], f.ids)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for i, infos := range found {
		for _, info := range infos {
			if info == nil || !f.isID(info) {
				continue
			}
			if err := f.send(&Found{Stage: ByID, Message: later.InfoOf(f.queues[i], *info)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// isID reports whether a message with one of the ids is found by it: the text is the id, or all conditions are met.
func (f *find) isID(m *store.Info) bool {
	return m.ID == strings.TrimSpace(f.Text) || f.filter.onlyWords() ||
		f.filter.matches(m) && (f.filter.Group == "" || m.Group == f.filter.Group)
}

// byName looks for names with all words, and for groups and reminder series of exactly the name.
func (f *find) byName(ctx context.Context) error {
	if f.Queue == "" && f.filter.onlyWords() {
		for _, names := range []func(context.Context) ([]Name, error){f.queueNames, f.scheduleNames, f.workerNames} {
			all, err := names(ctx)
			if err != nil {
				return err
			}
			if err := f.sendNames(all); err != nil {
				return err
			}
		}
	}
	groups, err := f.groups(ctx)
	if err != nil {
		return err
	}
	if err := f.sendNames(groups); err != nil {
		return err
	}
	return f.report(ByName)
}

func (f *find) sendNames(names []Name) error {
	sent := map[string]int{}
	for i := range names {
		if sent[names[i].Kind]++; sent[names[i].Kind] > maxNames {
			f.progress.NamesLeftOut++
			continue
		}
		if err := f.send(&Found{Stage: ByName, Name: &names[i]}); err != nil {
			return err
		}
	}
	return nil
}

// hasAll reports whether a name has all words.
func (f *find) hasAll(name string) bool {
	return !slices.ContainsFunc(f.filter.Words, func(word string) bool { return !hasFold(name, word) })
}

// queueNames returns the names of queues and topics, shortest first: the name itself comes before longer names.
func (f *find) queueNames(context.Context) (names []Name, err error) {
	for _, queue := range f.queues {
		topic, ok := reserved.CutTopic(queue)
		switch {
		case !ok && f.hasAll(queue):
			names = append(names, Name{QueueName, queue, queue})
		case ok && f.hasAll(topic):
			names = append(names, Name{TopicName, topic, queue})
		}
	}
	slices.SortStableFunc(names, func(a, b Name) int { return cmp.Compare(len(a.Name), len(b.Name)) })
	return names, nil
}

func (f *find) scheduleNames(ctx context.Context) (names []Name, err error) {
	if !f.sees(reserved.Schedules) {
		return nil, nil
	}
	cursor := ""
	for read := 0; read < maxSchedules; read += store.MaxBatch {
		page, err := f.client.Schedules().List(ctx, cursor, store.MaxBatch)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Schedules {
			if f.sees(s.Queue) && f.hasAll(s.Name) {
				names = append(names, Name{ScheduleName, s.Name, s.Queue})
			}
		}
		if cursor = page.Next; cursor == "" {
			return names, nil
		}
	}
	stats, err := f.store.Stats(ctx, reserved.Schedules)
	f.progress.NamesLeftOut += max(1, int(countsOf(stats).Total())-maxSchedules)
	return names, err
}

// workerNames returns the workers with a name or a host that has all words, of queues that the caller sees.
func (f *find) workerNames(ctx context.Context) (names []Name, err error) {
	live, err := f.client.Workers(ctx)
	for _, w := range live {
		if (f.hasAll(w.Name) || f.hasAll(w.Host) || f.hasAll(w.ID)) && (f.Visible == nil ||
			slices.ContainsFunc(w.Queues, f.Visible)) {
			names = append(names, Name{Kind: WorkerName, Name: w.Name})
		}
	}
	return slices.Compact(names), err // several workers can have a name; they are sorted by it
}

// groups returns the groups and series of all queues with exactly the name.
func (f *find) groups(ctx context.Context) (names []Name, err error) {
	type want struct {
		name  Name
		group string
	}
	var wants []want
	for _, name := range f.names {
		wants = append(wants, want{Name{Kind: GroupName, Name: name}, name})
		if series.CheckID(name) == nil {
			wants = append(wants, want{Name{Kind: SeriesName, Name: name}, series.GroupPrefix + name})
		}
	}
	if len(wants) == 0 {
		return nil, nil
	}
	all := make([]string, len(wants))
	for i := range wants {
		all[i] = wants[i].group
	}
	may, err := f.among(ctx, nil, all)
	if err != nil {
		return nil, err
	}
	has := make([][]bool, len(f.queues))
	err = f.each(ctx, func(ctx context.Context, i int) error {
		if !may(i) {
			return nil
		}
		has[i] = make([]bool, len(wants))
		for j, w := range wants {
			page, err := f.store.List(ctx, f.queues[i], store.ListRequest{Group: w.group, Limit: 1, IDsOnly: true})
			if err != nil {
				return err
			}
			has[i][j] = len(page.Messages) > 0
		}
		return nil
	})
	for j, w := range wants {
		for i := range has {
			if has[i] != nil && has[i][j] {
				w.name.Queue = f.queues[i]
				names = append(names, w.name)
			}
		}
	}
	return names, err
}
