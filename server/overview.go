package server

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	// maxOverviewQueues is how many queues an overview reads.
	maxOverviewQueues = 1000
	// maxOverviewRuns is how many runs of schedules it has, and maxUpcoming among how many it looks for them.
	maxOverviewRuns = 200
	maxUpcoming     = 1000
)

func registerOverview(s *Server) {
	const path, tag = "/v1/overview", "overview"
	const about = "Internal queues, which hold schedules and histories of topics, are left out unless they " +
		"are named. At most 1,000 queues are read, the first ones by name; queues_left_out counts the others. " +
		"Lateness and history are samples: the events of the last five minutes that this server has received since " +
		"an overview was first requested."
	route(s, access.Look, on("GET "+path, tag, "getOverview",
		"Count the messages of all queues that are due, to come and dead", s.fewReads,
		says(about)), s.overview)
	route(s, access.Look, on("GET "+path+"/watch", tag, "watchOverview", "Watch the overview live",
		says("A stream of server-sent events (text/event-stream). An event overview has an overview as its "+
			"data. It comes at most twice a second, and less often if reading takes long. Each has the counts of all "+
			"queues. With more than 100 queues, the rates and bands of 100 of them are new, first of queues with "+
			"changed counts. An event problems has the first problems of the store, as listProblems lists them, up to 20 "+
			"and 5 of one kind. It comes first, and when they change. An event problem has a problem as its data. It "+
			"comes when the store cannot be read, and every 5 s until it can. All clients with the same parameters "+
			"share one reading. With changes=true the first event is an overview, as is one after more than 1,000 queues "+
			"were deleted. The others are events changes: at most 800 bytes a second on average, compressed, after the "+
			"first 16 KiB, but one every 3 s if the queues change all the time, one every 2 s if none does, and one at "+
			"once after a change through this server. Sending a message does not count as a change. If the first reading "+
			"takes more than 60 ms, these events have the queues that are read so far, and queues_read is their number. "+
			about),
		sends("Overviews", s.streamOf(eventsType, typeOf[Overview]()))), s.watchOverview)
}

// Overview shows the messages of several queues that are due, to come and dead.
type Overview struct {
	Time          string           `json:"time" doc:"The store's clock, from which the bands count"`
	Counts        wire.StateCounts `json:"counts"`
	NextDue       string           `json:"next_due,omitempty" doc:"When the next message falls due"`
	OldestDue     string           `json:"oldest_due,omitempty" doc:"When the message fell due that has been ready for longest"`
	Bands         []OverviewBand   `json:"bands" doc:"Scheduled and ready messages by due time, each in one band. Without from and to: overdue, the next minute, the rest of the hour, of the day and of 31 days, and later"`
	Queues        []OverviewQueue  `json:"queues" doc:"In order of name"`
	QueueCount    int              `json:"queue_count" doc:"How many queues there are"`
	QueuesLeftOut int              `json:"queues_left_out" doc:"How many of them are not in this overview"`
	QueuesRead    int              `json:"queues_read,omitempty" doc:"Only while a stream with changes=true reads the queues for the first time: how many it has read so far. Queues, counts and bands are of these, and the bands and rates can lack some of them"`
	Workers       int              `json:"workers" doc:"Live workers"`
	Runs          []OverviewRun    `json:"runs" doc:"The next runs of schedules, in order of due time, 200 at most. An event changes has them only if they have changed"`
	Gone          []string         `json:"gone,omitempty" doc:"Only in an event changes: the names of queues that are no longer listed, also of queues that came and went since the event before"`
	Took          wire.Duration    `json:"took" doc:"How long it took to read this"`
}

// OverviewBand counts the messages that fall due in each part of a time.
type OverviewBand struct {
	Name   string        `json:"name" enum:"overdue,minute,hour,day,month,later,range"`
	From   string        `json:"from,omitempty" doc:"overdue has none"`
	To     string        `json:"to,omitempty" doc:"later has none"`
	Step   wire.Duration `json:"step,omitempty" doc:"Parts begin at from and then at multiples of this since 1970-01-01T00:00:00Z, so that the first and the last can be shorter. Without a step they are equal"`
	Counts []int64       `json:"counts" doc:"Messages in each part"`
}

// OverviewQueue is a queue of an overview.
type OverviewQueue struct {
	wire.QueueStats
	OldestDue        string        `json:"oldest_due,omitempty" doc:"When the message fell due that has been ready for longest"`
	SentPerSecond    float64       `json:"sent_per_second" doc:"In the last minute"`
	HandledPerSecond float64       `json:"handled_per_second" doc:"Acked and forwarded"`
	FailedPerSecond  float64       `json:"failed_per_second" doc:"Nacked, buried and expired"`
	LatenessP50      wire.Duration `json:"lateness_p50" doc:"Of the deliveries in the sample"`
	LatenessP99      wire.Duration `json:"lateness_p99"`
	LatenessSamples  int           `json:"lateness_samples" doc:"Deliveries in the sample, up to 256"`
	History          *History      `json:"history,omitempty" doc:"60 parts of 5 s each, the current one last; none if nothing happened in them"`
	Events           int64         `json:"events,omitempty" doc:"How many events of the queue there were in the sample so far, of all kinds, such as edited and rescheduled: its messages are the same while this and the counts are. It can begin again at 0"`

	minute historyEntry // the events behind the rates
}

// setRates sets the rates of the events of a minute, which has so many seconds.
func (q *OverviewQueue) setRates(seconds float64) {
	q.SentPerSecond, q.HandledPerSecond = float64(q.minute.Sent)/seconds, float64(q.minute.Handled)/seconds
	q.FailedPerSecond = float64(q.minute.Failed) / seconds
}

// historyEntry counts the events of a queue in 5 s.
type historyEntry struct{ Sent, Handled, Failed int64 }

// History counts the events of a queue in each part of a time.
type History struct {
	Sent    []int64 `json:"sent"`
	Handled []int64 `json:"handled"`
	Failed  []int64 `json:"failed"`
}

// OverviewRun is a run of a schedule that is to come.
type OverviewRun struct {
	Schedule string `json:"schedule"`
	Queue    string `json:"queue"`
	Due      string `json:"due"`
}

// OverviewQuery selects the content of an overview.
type OverviewQuery struct {
	Queues  []string  `query:"queue,explode" maxItems:"200" doc:"Only these queues. Default: all but internal ones"`
	List    string    `query:"list" enum:"summed,all" doc:"all lists the other queues, too, which the counts and bands leave out. Default: summed"`
	From    time.Time `query:"from" doc:"Count messages that fall due from this time on, in a single band, range; together with to"`
	To      time.Time `query:"to" doc:"Count messages that fall due before this time"`
	Buckets int       `query:"buckets" minimum:"1" maximum:"500" doc:"Parts of the range. Default: 120"`
}

type watchInput struct {
	OverviewQuery
	Changes bool `query:"changes" doc:"After the first event, send events changes: overviews with only the queues that have changed since the event before"`
}

// overviewRequest selects the content of an overview.
type overviewRequest struct {
	who        access.Identity
	controlled bool
	queues     []string // sorted; none for all
	listAll    bool     // list other queues, too
	from, to   time.Time
	buckets    int // 0 for the bands from now on
}

func newOverviewRequest(ctx context.Context, in *OverviewQuery) (*overviewRequest, error) {
	if err := checkQueues(ctx, in.Queues); err != nil {
		return nil, err
	}
	r := &overviewRequest{queues: sortedSet(in.Queues), listAll: in.List == "all",
		from: in.From, to: in.To, buckets: in.Buckets}
	r.who, r.controlled = access.FromContext(ctx)
	switch ranged := !in.From.IsZero() && !in.To.IsZero(); {
	case in.From.IsZero() != in.To.IsZero():
		return nil, field("query.from", store.Invalid("from and to belong together: give both, or neither"))
	case !ranged && in.Buckets > 0:
		return nil, field("query.buckets", store.Invalid("buckets are parts of a range: give from and to, too"))
	case !ranged:
		return r, nil
	}
	if r.buckets == 0 {
		r.buckets = 120
	}
	return r, field("query.from", store.CheckHistogram(r.from, r.to, r.buckets))
}

// checkQueues returns an error unless the sender of a request may look at the queues.
func checkQueues(ctx context.Context, queues []string) error {
	for _, queue := range queues {
		if err := store.CheckQueue(queue); err != nil {
			return field("query.queue", err)
		}
		if err := may(ctx, access.Look, queue); err != nil {
			return field("query.queue", err)
		}
	}
	return nil
}

func sortedSet(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// key is equal for requests that show the same.
func (r *overviewRequest) key() string {
	limits := "all"
	if r.controlled && r.who.Queues != nil { // one of them may be called all
		limits = "only\x00" + strings.Join(sortedSet(r.who.Queues), "\x00")
	}
	return strings.Join([]string{limits, strings.Join(r.queues, "\x00"), wire.FormatTime(r.from), wire.FormatTime(r.to),
		strconv.Itoa(r.buckets), strconv.FormatBool(r.listAll), strconv.FormatBool(r.who.HidePayloads)}, "\x01")
}

// sums reports whether a queue is in the counts and bands.
func (r *overviewRequest) sums(queue string) bool {
	return len(r.queues) == 0 || slices.Contains(r.queues, queue)
}

// context returns a context of the sender of the request.
func (r *overviewRequest) context(ctx context.Context) context.Context {
	if r.controlled {
		return access.NewContext(ctx, r.who)
	}
	return ctx
}

func (s *Server) overview(ctx context.Context, in *OverviewQuery) (*output[*Overview], error) {
	r, err := newOverviewRequest(ctx, in)
	if err != nil {
		return nil, err
	}
	o, err := s.readOverview(ctx, r, &keptDetails{}, nil)
	return outputOf(o), err
}
