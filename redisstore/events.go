package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/store"
)

// The counts of a queue's events are in one hash, which lua/report.lua keeps small: internal/activity says how. The
// events themselves are published on a channel of the queue and stored nowhere. The reply to a publish says how many
// watchers there are, so processes learn of a watcher without asking.

// reportPart is how many reports are in one request.
const reportPart = 100

// activityWindows describes the windows for lua/report.lua.
var activityWindows = func() string {
	var all []string
	for _, span := range activity.Spans {
		all = append(all, fmt.Sprintf("%c %d %d", span.Letter, span.WidthMS, span.Slots))
	}
	return strings.Join(all, ";")
}()

// Report implements store.Store. It is not retried: a repetition would count twice.
func (s *Store) Report(ctx context.Context, reports []store.Report) ([]store.ReportResult, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	results := make([]store.ReportResult, 0, len(reports))
	for len(reports) > 0 {
		n := min(len(reports), reportPart)
		results = append(results, s.reportTogether(ctx, reports[:n])...)
		reports = reports[n:]
	}
	return results, nil
}

// reportTogether makes several reports in one request.
func (s *Store) reportTogether(ctx context.Context, reports []store.Report) []store.ReportResult {
	calls := make([]*call, len(reports))
	for i := range reports {
		calls[i] = s.reportCall(&reports[i])
	}
	replies, errs := s.together(ctx, calls)
	results := make([]store.ReportResult, len(reports))
	for i, reply := range replies {
		err := errs[i]
		watchers, ok := reply.(int64)
		switch {
		case err != nil:
			kind, _ := classify(err)
			results[i].Err = fmt.Errorf("report on queue %q: %w", reports[i].Queue, wrap(kind, err))
		case !ok:
			results[i].Err = fmt.Errorf("report on queue %q: reply is %v: %w", reports[i].Queue, reply,
				store.ErrCorrupt)
		case watchers == replyNewer:
			results[i].Err = s.formatError(ctx, reports[i].Queue)
		case watchers == replyGone:
			results[i].Err = &store.Moved{Name: reports[i].Queue}
		case watchers < 0:
			s.warnSilent()
		default:
			results[i].Watchers = int(watchers)
		}
	}
	return results
}

func (s *Store) reportCall(r *store.Report) *call {
	c := s.newCall("report", r.Queue, 7+2*len(r.Counts))
	c.addKey(s.keys.key(r.Queue, activityKey))
	publish, channel := "PUBLISH", s.eventChannel(r.Queue)
	if s.isCluster() {
		publish = "SPUBLISH"
		c.addKey(channel)
	}
	var payload []byte
	if r.Number > 0 {
		payload = strconv.AppendInt(make([]byte, 0, len(r.Events)+8), int64(r.Number), 10)
		payload = append(append(payload, ' '), r.Events...)
	}
	c.add(publish, channel, payload, activity.KeepFor.Milliseconds(), activityWindows)
	for kind, n := range r.Counts {
		if n > 0 {
			c.add(string(kind), n)
		}
	}
	return c
}

// warnSilent logs once that this process may not publish, unless that is known from its notifications.
func (s *Store) warnSilent() {
	if !s.silent.Swap(true) && s.mute.Load() == 0 {
		s.log.Warn("later: the Redis user may not publish to channels, so the events of this process cannot be " +
			"watched: " + channelsHelp + s.keys.prefix + "*")
	}
}

// isCluster reports whether the server is a Cluster, in which channels of events belong to the slots of queues.
func (s *Store) isCluster() bool {
	_, cluster := s.rdb.(*redis.ClusterClient)
	return cluster
}

// eventChannel returns the channel of a queue's events. All databases of a server share its channels, so the name has
// the number of the database. The channel of a sub-queue without a salt is that of the queue, so that watchers need not
// know the generation.
func (s *Store) eventChannel(queue string) string {
	if of, _, salt, sub := store.CutSubQueue(queue); sub && salt == "" {
		queue = of
	}
	name := s.keys.key(queue, "events")
	if rdb, ok := s.rdb.(*redis.Client); ok && rdb.Options().DB != 0 {
		name += ":" + strconv.Itoa(rdb.Options().DB)
	}
	return name
}

// Activity implements store.Store.
func (s *Store) Activity(ctx context.Context, queue string) (store.Activity, error) {
	c := s.newCall("activity", queue, 1)
	c.addKey(s.keys.key(queue, activityKey))
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return store.Activity{}, err
	}
	r := reply.([]any)
	var ring activity.Ring
	fields := r[2].([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		if err := ring.Set(fields[i].(string), fields[i+1].(string)); err != nil {
			return store.Activity{}, fmt.Errorf("queue %q: %w", queue, err)
		}
	}
	a := ring.At(time.UnixMicro(r[0].(int64)))
	a.Exists = r[1].(int64) == 1
	return a, nil
}
