//go:build unix

package chaos

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// sighting is an event of a message as a watcher received it.
type sighting struct {
	watcher string
	kind    later.EventKind
	queue   string
	attempt int64
	pid     int64
	at      int64 // when it happened, by the clock of its process
}

func newSighting(watcher string, x record) sighting {
	return sighting{watcher, later.EventKind(x.field(0)), x.field(1), x.number(2), x.number(3), x.number(4)}
}

// eventSlack is how far the times of an event and of its records may be apart where nothing orders them: an event has
// whole milliseconds.
const eventSlack = int64(1000)

// checkSightings checks that each event that a watcher received happened: the process that it names made a call for the
// message that the event follows, and the call was answered accordingly.
func (ck *checker) checkSightings(m *message, result *Result, violate violator) {
	for _, s := range m.sightings {
		actors := ck.pids[s.pid]
		if len(actors) == 0 {
			violate("untrue", "%s was told of %q by process %d, which is unknown", s.watcher, s.kind, s.pid)
			continue
		}
		if !ck.happened(m, s, func(actor string) bool { return slices.Contains(actors, actor) }) {
			violate("untrue", "%s was told of %q, attempt %d, of queue %s by %s at %d, which did not happen",
				s.watcher, s.kind, s.attempt, s.queue, strings.Join(actors, " or "), s.at)
		}
		result.EventsSeen++
	}
}

// settleOf is the settle that an event follows.
var settleOf = map[later.EventKind]store.Action{
	later.EventAcked: store.Ack, later.EventNacked: store.Nack, later.EventSnoozed: store.Snooze,
	later.EventGivenBack: store.GiveBack,
	later.EventBuried:    store.Bury, later.EventReleased: store.Release,
}

// happened reports whether the records of a process explain an event.
func (ck *checker) happened(m *message, s sighting, by func(actor string) bool) bool {
	// made reports whether one of the processes made the call, it was answered so, and the event came after its begin.
	made := func(c *call, outcomes ...string) bool {
		return by(c.actor) && c.at <= s.at+eventSlack && (c.ret == 0 || c.known(outcomes...))
	}
	if action, ok := settleOf[s.kind]; ok {
		return slices.ContainsFunc(m.deliveries, func(d *delivery) bool {
			return d.attempt == s.attempt && d.queue == s.queue && slices.ContainsFunc(d.settles, func(t *settle) bool {
				return t.action == action.String() && made(&t.call, outcomeOK)
			})
		})
	}
	switch s.kind {
	case later.EventSent:
		return slices.ContainsFunc(m.sends, func(c *send) bool { return made(&c.call, outcomeOK) })
	case later.EventDuplicate:
		return slices.ContainsFunc(m.sends, func(c *send) bool { return made(&c.call, outcomeDuplicate) })
	case later.EventClaimed, later.EventLeaseLost, later.EventUnsettled:
		return slices.ContainsFunc(m.deliveries, func(d *delivery) bool {
			return by(d.actor) && d.attempt == s.attempt && d.queue == s.queue && d.call <= s.at+eventSlack
		})
	case later.EventCancelled:
		return slices.ContainsFunc(m.cancels, func(c *call) bool {
			return by(c.actor) && c.at <= s.at+eventSlack && !c.known(outcomeNotFound)
		})
	case later.EventRescheduled:
		return slices.ContainsFunc(m.reschedules, func(c *send) bool { return made(&c.call, outcomeOK) })
	case later.EventExpired:
		return len(m.sends) > 0 && m.sends[0].has(flagExpires)
	case later.EventDied:
		return ck.left[m.id] != nil && ck.left[m.id].State == later.StateDead || m.cancelled() || m.resent()
	}
	return false // the load causes no other events
}

// stream has the events that a watcher received from a process about a queue, between two gaps.
type stream struct {
	watcher, queue string
	pid            int64
	first, last    int64 // times of its events
	missed         int64 // events that were reported to it as missing
	happened       int64 // claims and acks in between, by the journals
	unseen         int64 // of happened: not received
}

// streamKey identifies the streams between gaps of one watcher.
type streamKey struct {
	watcher, queue string
	pid            int64
}

// addSighting adds an event. They come in the order of their receipt by a watcher.
func (ck *checker) addSighting(watcher string, x record) {
	s := newSighting(watcher, x)
	key := streamKey{watcher, s.queue, s.pid}
	t := ck.open[key]
	if t == nil {
		t = &stream{watcher: watcher, queue: s.queue, pid: s.pid, first: s.at}
		ck.open[key] = t
		ck.streams = append(ck.streams, t)
	}
	t.first, t.last = min(t.first, s.at), max(t.last, s.at)
}

// addMissed adds a report to a watcher about missing events. If their number is not known, it is a gap, which ends all
// streams.
func (ck *checker) addMissed(watcher string, x record) {
	n, queue, pid := x.number(0), x.field(1), x.number(2)
	if ck.missed += n; n == 0 {
		ck.gaps++
	}
	for key, t := range ck.open {
		switch {
		case key.watcher != watcher || queue != allQueues && (key.queue != queue || key.pid != pid):
		case n == 0:
			delete(ck.open, key)
		default:
			t.missed += n
		}
	}
}

// streamMargin is how long before the end of a stream, and after its begin, nothing is counted: a process reports an
// event a little after its call was recorded.
const streamMargin = int64(time.Second / time.Microsecond)

// countHappened counts the claims and acks of a message that each stream must have had, and the ones that it had not.
func (ck *checker) countHappened(m *message) {
	for _, d := range m.deliveries {
		for _, t := range ck.streamsOf[streamKey{"", d.queue, ck.pidOf[d.actor]}] {
			ck.countOne(t, m, d, later.EventClaimed, d.ret)
			for _, s := range d.settles {
				if s.action == store.Ack.String() && s.known(outcomeOK) {
					ck.countOne(t, m, d, later.EventAcked, s.ret)
				}
			}
		}
	}
}

// countOne counts an event of a delivery if it happened in a stream. A process that did not run may have reported it
// late.
func (ck *checker) countOne(t *stream, m *message, d *delivery, kind later.EventKind, at int64) {
	if at <= t.first+streamMargin || at >= t.last-streamMargin || ck.starvedIn(d.actor, at, at+streamMargin) {
		return
	}
	t.happened++
	if !slices.ContainsFunc(m.sightings, func(s sighting) bool {
		return s.watcher == t.watcher && s.kind == kind && s.attempt == d.attempt && s.pid == t.pid
	}) {
		t.unseen++
	}
}

// indexStreams prepares countHappened.
func (ck *checker) indexStreams() {
	ck.streamsOf = map[streamKey][]*stream{}
	for _, t := range ck.streams {
		key := streamKey{"", t.queue, t.pid}
		ck.streamsOf[key] = append(ck.streamsOf[key], t)
	}
}

// checkStreams checks that events that a watcher did not receive between two gaps are counted as missed.
func (ck *checker) checkStreams(result *Result) {
	result.EventsMissed, result.Gaps = ck.missed, ck.gaps
	for _, t := range ck.streams {
		if t.unseen > t.missed {
			result.violate("uncounted", "-", "%s did not receive %d of %d claims and acks of queue %s by %s between "+
				"%d and %d, and was told of %d missing events", t.watcher, t.unseen, t.happened, t.queue,
				strings.Join(ck.pids[t.pid], " or "), t.first, t.last, t.missed)
		}
		if t.happened > 0 {
			result.StreamsChecked++
		}
	}
}

const (
	// longestStall is the longest time between two claims under load while a watcher is frozen. It is generous, because
	// a busy machine must not fail a run; the result reports the longest time.
	longestStall = 10 * time.Second
	// answersInStall is how many requests for its memory use, one a second, the server must have answered in that time.
	// Otherwise it was the machine that stalled.
	answersInStall = 5
)

// checkFrozenWatchers checks that deliveries go on while a watcher is frozen.
func (ck *checker) checkFrozenWatchers(result *Result) {
	var claims []int64
	for _, of := range ck.claims {
		claims = append(claims, of...)
	}
	slices.Sort(claims)
	for actor, stops := range ck.stopped {
		if ck.kinds[actor] != watcherKind {
			continue
		}
		for _, from := range stops {
			since, to := from, ck.continuedAfter(actor, from)
			for i, _ := slices.BinarySearch(claims, from); since < to; i++ {
				next := to
				if i < len(claims) {
					next = min(next, claims[i])
				}
				if next-since > longestStall.Microseconds() && ck.answers(since, next) >= answersInStall {
					result.violate("slowed", "-", "nothing was claimed for %d ms while %s was frozen",
						(next-since)/1000, actor)
				}
				since = next
			}
		}
	}
}

// answers returns how often the server answered the run in a time.
func (ck *checker) answers(from, to int64) (n int) {
	for _, u := range ck.usage["run"] {
		if u.at > from && u.at < to && u.number(0) > 0 {
			n++
		}
	}
	return n
}

// continuedAfter returns when a process continued after a stop, or when it was killed.
func (ck *checker) continuedAfter(actor string, stop int64) int64 {
	all := slices.Clone(ck.continued[actor])
	if killed := ck.killed[actor]; killed != 0 {
		all = append(all, killed)
	}
	slices.SortFunc(all, func(a, b int64) int { return cmp.Compare(a, b) })
	for _, at := range all {
		if at >= stop {
			return at
		}
	}
	return stop
}
