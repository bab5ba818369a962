package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/laterq/later/store"
)

// ProblemKind is the kind of a Problem, a stable word.
type ProblemKind string

// The kinds of problems; the ones that stop most messages come first. docs/monitoring.md has their thresholds.
const (
	StoreFull         ProblemKind = "full"
	Unreadable        ProblemKind = "unreadable"
	ShardDown         ProblemKind = "shard_down"
	NoLiveWorker      ProblemKind = "no_worker"
	WorkersPaused     ProblemKind = "workers_paused"
	KeyHalted         ProblemKind = "key_halted"
	GivesBack         ProblemKind = "given_back"
	WorkersBusy       ProblemKind = "workers_busy"
	QueueLimited      ProblemKind = "limited"
	KeyLimited        ProblemKind = "key_limited"
	Overdue           ProblemKind = "overdue"
	TopicUnsubscribed ProblemKind = "topic_unsubscribed"
	TopicDrops        ProblemKind = "topic_drops"
	TopicWaits        ProblemKind = "topic_waits"
	ScheduleLate      ProblemKind = "schedule_late"
	ScheduleFailed    ProblemKind = "schedule_failed"
	ScheduleMissed    ProblemKind = "schedule_missed"
	DeadLetters       ProblemKind = "dead"
	QueuePaused       ProblemKind = "paused"
	ShardsStuck       ProblemKind = "shards_stuck"
)

// ProblemKinds returns all kinds of problems. Problems of the same severity are listed in this order of their kinds.
func ProblemKinds() []ProblemKind { return slices.Clone(problemKinds) }

var problemKinds = []ProblemKind{
	StoreFull, Unreadable, ShardDown, NoLiveWorker, WorkersPaused, KeyHalted, GivesBack, WorkersBusy, QueueLimited,
	KeyLimited, Overdue, TopicUnsubscribed, TopicDrops, TopicWaits, ScheduleLate, ScheduleFailed, ScheduleMissed,
	DeadLetters, QueuePaused, ShardsStuck,
}

// ProblemSeverity says whether a problem needs a person now.
type ProblemSeverity string

// The severities.
const (
	Act   ProblemSeverity = "act"   // messages are stopped or lost, and go on only when a person acts
	Watch ProblemSeverity = "watch" // it may pass by itself, or is meant so
)

// Problem is a condition of the store that needs a person, such as a queue without a worker. All times are of the
// store's clock.
type Problem struct {
	Kind     ProblemKind
	Severity ProblemSeverity
	// Queue, Topic, Schedule, Key, Shard and Message are the subject of the problem, as far as they fit: a problem of a
	// key has a Queue, too, and a problem of a schedule the Queue of its runs. Shards is the number of shards of the
	// queue, or the number to which it changes, and 0 if the problem has nothing to do with shards. Shard, from 0, is set
	// for one that does not answer or has used up its share of a limit.
	Queue    string
	Topic    string
	Schedule string
	Key      string
	Shard    int
	Shards   int
	Message  string
	// Worker is the name of the only worker that the problem is about, "" if there are several. Workers is their number.
	// Paused has the names of the paused workers of WorkersPaused, unless they are more than 5. Workers that drain are
	// not among them.
	Worker  string
	Workers int
	Paused  []string
	// By is who paused a queue: the sender of a request to a server, the user and machine of the command, or the machine
	// and process of a program; "" if that is not known.
	By string
	// Count is how many messages are concerned: they are due, given back or dead. It is the number of halted keys, or of
	// runs for the problem of a schedule.
	Count int64
	// Used and Limit are the messages in flight and the limit that lets no more start. Rate is set instead if it is a
	// rate. Used is also the number of busy handlers, and of messages that died in the last hour, 100 for more.
	Used, Limit int64
	Rate        store.Rate
	// Since is when it began: when the first message fell due or died, a queue was paused, a handler was called or a run
	// was due. It is zero if that is not known.
	Since time.Time
	// Error is the text of an error: why messages are given back or a queue cannot be read, or the ErrorPattern of most
	// dead messages.
	Error string
	// Now is the store's clock.
	Now time.Time
}

// age returns how long a problem lasts, in its largest unit, or "" if that is not known. The text of a problem changes
// only as often as this does.
func (p *Problem) age() string {
	if p.Since.IsZero() {
		return ""
	}
	return coarse(p.Now.Sub(p.Since))
}

// forAge returns a text followed by how long a problem lasts, if that is known.
func (p *Problem) forAge(text string) string {
	if age := p.age(); age != "" {
		return text + " for " + age
	}
	return text
}

// coarse returns a duration in its largest unit, such as "12 min" or "3 days".
func coarse(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(0, d/time.Second))
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// verb returns a number of messages with the form of a verb, such as "1 message waits" and "2 messages wait".
func verb(n int64, singular, many string) string {
	if n == 1 {
		return "1 message " + singular
	}
	return plural(n, "message") + " " + many
}

// waits returns that messages are due, and for how long the first of them has been.
func (p *Problem) waits() string {
	text := verb(p.Count, "is due", "are due")
	if age := p.age(); age != "" {
		text += ", the first for " + age
	}
	return text
}

// because returns the error of a problem after a colon, or "" if it has none, or if it is hidden.
func (p *Problem) because() string {
	if p.Error == "" {
		return ""
	}
	return ": " + p.error()
}

// error returns the error of a problem, cut to maxErrorShown characters.
func (p *Problem) error() string {
	if utf8.RuneCountInString(p.Error) <= maxErrorShown {
		return p.Error
	}
	return string([]rune(p.Error)[:maxErrorShown-1]) + "…"
}

// maxErrorShown is how many characters of an error are in the text of a problem, so that it fits on a line or two.
const maxErrorShown = 160

// Text returns the problem as one sentence that names its subject, without a full stop.
func (p Problem) Text() string {
	switch p.Kind {
	case StoreFull:
		return "the store has no room, so it refuses sends" + p.because()
	case Unreadable:
		return fmt.Sprintf("queue %s cannot be read%s", p.Queue, p.because())
	case ShardDown:
		return fmt.Sprintf("shard %d of queue %s does not answer%s", p.Shard, p.Queue, p.because())
	case NoLiveWorker:
		return fmt.Sprintf("queue %s has no worker: %s", p.Queue, p.waits())
	case WorkersPaused:
		return fmt.Sprintf("all workers of queue %s are paused or draining: %s", p.Queue, p.waits())
	case KeyHalted:
		text := fmt.Sprintf("key %s of queue %s is halted by the dead message %s", p.Key, p.Queue, p.Message)
		if p.Count > 1 {
			text += fmt.Sprintf(", and %d keys are in all", p.Count)
		}
		return text
	case GivesBack:
		return fmt.Sprintf("workers of queue %s give %s back, since they cannot handle %s%s", p.Queue,
			plural(p.Count, "message"), itThem(p.Count), p.because())
	case WorkersBusy:
		return p.busyText()
	case QueueLimited:
		return p.limitedText()
	case KeyLimited:
		return p.keyText()
	case Overdue:
		return fmt.Sprintf("workers of queue %s are late: %s", p.Queue, p.waits())
	case TopicUnsubscribed:
		return fmt.Sprintf("topic %s has no subscription: %s", p.Topic, p.forAge(verb(p.Count, "waits", "wait")))
	case TopicDrops:
		return fmt.Sprintf("topic %s dropped %s in the last hour, since no queue was subscribed", p.Topic,
			p.atLeast("message"))
	case TopicWaits:
		if p.Queue != "" {
			return fmt.Sprintf("queue %s, which is subscribed to topic %s, cannot be written: %s", p.Queue, p.Topic,
				verb(p.Count, "waits for it", "wait for it"))
		}
		if p.Severity == Watch {
			return fmt.Sprintf("workers distribute topic %s late: %s", p.Topic, p.waits())
		}
		return fmt.Sprintf("topic %s is not distributed, since no worker of a subscribed queue does it: %s", p.Topic,
			p.waits())
	}
	return p.otherText()
}

// otherText returns the text of problems of schedules, dead messages, pauses and changes of shards.
func (p *Problem) otherText() string {
	switch p.Kind {
	case ScheduleLate:
		return fmt.Sprintf("schedule %s has been late for %s, since no worker sends its run", p.Schedule, p.age())
	case ScheduleFailed:
		if p.Message == "" {
			return "a schedule does not run, since it cannot be read" + p.because()
		}
		return fmt.Sprintf("the last run of schedule %s failed and is dead%s", p.Schedule, p.because())
	case ScheduleMissed:
		return fmt.Sprintf("schedule %s has left out %s, since no worker ran when they were due; the last was due %s "+
			"ago", p.Schedule, plural(p.Count, "run"), p.age())
	case DeadLetters:
		return p.deadText()
	case QueuePaused:
		text := fmt.Sprintf("queue %s is paused", p.Queue)
		if p.Topic != "" {
			text = fmt.Sprintf("topic %s is paused", p.Topic)
		}
		if p.Now.Sub(p.Since) >= time.Minute {
			text = p.forAge(text)
		}
		if p.By != "" {
			text += " by " + p.By
		}
		if p.Count == 0 {
			return text
		}
		return text + ": " + verb(p.Count, "is due", "are due")
	case ShardsStuck:
		text := p.forAge(fmt.Sprintf("queue %s changes to %s", p.Queue, plural(int64(p.Shards), "shard")))
		if p.Count > 0 {
			text += ", and starts no message until those that are due have moved: " + verb(p.Count, "is due", "are due")
		}
		return text
	}
	return string(p.Kind)
}

func itThem(n int64) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// atLeast returns the number of a noun, when only the first maxRecentDead were counted.
func (p *Problem) atLeast(noun string) string {
	if p.Used >= maxRecentDead {
		return fmt.Sprintf("%d or more %ss", p.Used, noun)
	}
	return plural(p.Used, noun)
}

func (p *Problem) deadText() string {
	if p.Used == 0 {
		text := fmt.Sprintf("queue %s has %s", p.Queue, plural(p.Count, "dead message"))
		if p.Error != "" {
			text += ", most often: " + p.error()
		}
		return text
	}
	text := fmt.Sprintf("%s of queue %s died in the last hour", p.atLeast("message"), p.Queue)
	if p.Error != "" {
		text += ", most often: " + p.error()
	}
	if p.Count > p.Used {
		text += fmt.Sprintf(" (%d dead in all)", p.Count)
	}
	return text
}

func (p *Problem) busyText() string {
	of := "of queue " + p.Queue
	return handlersBusy(p.Used, p.Workers, p.Worker, p.age()) + ": " + verb(p.Count, of+" waits", of+" wait")
}

// handlersBusy returns that all handlers of one worker, or of several, run, and for how long unless that is "".
func handlersBusy(handlers int64, workers int, worker, age string) string {
	text, is, since := fmt.Sprintf("all %d handlers", handlers), "are", ", the first for "
	if handlers == 1 {
		text, is, since = "the handler", "is", " for "
	}
	if workers == 1 && worker != "" {
		text += " of " + worker
	} else if workers > 1 {
		text += fmt.Sprintf(" of %d workers", workers)
	}
	text += " " + is + " busy"
	if age != "" {
		text += since + age
	}
	return text
}

func (p *Problem) limitedText() string {
	of, limit := "queue "+p.Queue, "its limit"
	if p.Shards > 0 {
		of, limit = fmt.Sprintf("shard %d of %s", p.Shard, of), "its share of the limit"
	}
	if p.Limit > 0 {
		return fmt.Sprintf("%s has %d of %d messages in flight, %s: %s", of, p.Used, p.Limit, limit, p.waits())
	}
	return fmt.Sprintf("%s may start %v, %s: %s", of, p.Rate, limit, p.waits())
}

func (p *Problem) keyText() string {
	text := fmt.Sprintf("key %s of queue %s may start %v", p.Key, p.Queue, p.Rate)
	switch {
	case p.Message != "":
		text = fmt.Sprintf("key %s of queue %s waits for its message %s, which has started and is not done", p.Key,
			p.Queue, p.Message)
	case p.Limit > 0:
		text = fmt.Sprintf("key %s of queue %s has %d of %d messages in flight, its limit", p.Key, p.Queue, p.Used,
			p.Limit)
	}
	return text + ": " + p.waits()
}

// Place is where a program shows the subject of a problem: the values of the parameters of the web page's URL.
type Place struct {
	View     string // "" for queues and messages, else schedules, topics or workers
	Queue    string
	State    store.State
	Group    string // error shows dead messages by their errors
	Message  string
	Topic    string
	Schedule string
}

// Place returns where the subject of the problem is shown.
func (p Problem) Place() Place {
	if p.Topic != "" {
		return Place{View: "topics", Topic: p.Topic}
	}
	switch p.Kind {
	case DeadLetters:
		return Place{Queue: p.Queue, State: store.StateDead, Group: "error"}
	case KeyHalted:
		return Place{Queue: p.Queue, State: store.StateDead, Message: p.Message}
	case WorkersPaused, WorkersBusy, GivesBack:
		return Place{View: "workers", Queue: p.Queue}
	case ScheduleFailed:
		if p.Message == "" {
			return Place{View: "schedules"}
		}
		return Place{Queue: p.Queue, State: store.StateDead, Message: p.Message}
	case ScheduleLate, ScheduleMissed:
		return Place{View: "schedules", Schedule: p.Schedule}
	case StoreFull:
		return Place{}
	case Unreadable, ShardDown, ShardsStuck:
		return Place{Queue: p.Queue}
	}
	return Place{Queue: p.Queue, State: store.StateReady}
}

// Action is the remedy of a problem: a word for programs that can do it, and the arguments of the command later.
type Action struct {
	// Do is resume, resume_workers, resume_key, flow, keys or show. Show means that the Place has more.
	Do      string
	Command []string
}

// Action returns the remedy of the problem.
func (p Problem) Action() Action {
	show := func(words []string, names ...string) Action { return Action{"show", command(words, names...)} }
	if p.Topic != "" {
		return show([]string{"topic", "list"}, p.Topic)
	}
	switch p.Kind {
	case StoreFull:
		return show([]string{"ping"})
	case Unreadable:
		return show([]string{"doctor"})
	case ShardDown, ShardsStuck:
		return show([]string{"shards"}, p.Queue)
	case WorkersPaused:
		if len(p.Paused) == 0 { // they drain, or are many
			return show([]string{"workers"})
		}
		return Action{"resume_workers", command([]string{"workers", "resume"}, p.Paused...)}
	case KeyHalted:
		return Action{"resume_key", command([]string{"keys", "--resume"}, p.Queue, p.Key)}
	case QueueLimited:
		return Action{"flow", command([]string{"flow"}, p.Queue)}
	case KeyLimited:
		return Action{"keys", command([]string{"keys"}, p.Queue, p.Key)}
	case ScheduleFailed:
		if p.Message != "" {
			return show([]string{"dead", "replay"}, p.Queue, p.Message)
		}
		return show([]string{"schedule", "list"})
	case ScheduleLate, ScheduleMissed:
		return show([]string{"schedule", "get"}, p.Schedule)
	case DeadLetters:
		return show([]string{"dead", "errors"}, p.Queue)
	case QueuePaused:
		return Action{"resume", command([]string{"resume"}, p.Queue)}
	case WorkersBusy, GivesBack:
		if p.Worker != "" && !slices.Contains(workerCommands, p.Worker) {
			return show([]string{"workers"}, p.Worker)
		}
		return show([]string{"workers"})
	}
	return show([]string{"stats"}, p.Queue)
}

// workerCommands are the commands of later workers, which the name of a worker is not taken for.
var workerCommands = []string{"drain", "restart", "pause", "resume", "help"}

// command returns the arguments of a command: its words and flags, and the names that it is given, behind -- if one of
// them would be read as a flag.
func command(words []string, names ...string) []string {
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "-") }) {
		words = append(words, "--")
	}
	return append(words, names...)
}

// Shell returns the command of an action as a line for a shell.
func (a Action) Shell() string {
	words := []string{"later"}
	for _, word := range a.Command {
		words = append(words, quoted(word))
	}
	return strings.Join(words, " ")
}

// quoted returns a word as shells read it. Some replace a word that begins with = by the path of a program.
func quoted(word string) string {
	plain := strings.Trim(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@,+=") == ""
	if plain && word != "" && word[0] != '=' {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// compare orders problems: those that need a person first, then by kind, the oldest first, and by subject.
func (p *Problem) compare(o *Problem) int {
	return cmp.Or(
		cmp.Compare(p.rank(), o.rank()), compareSince(p.Since, o.Since), strings.Compare(p.Queue, o.Queue),
		strings.Compare(p.Topic, o.Topic), strings.Compare(p.Schedule, o.Schedule), strings.Compare(p.Key, o.Key),
		cmp.Compare(p.Shard, o.Shard))
}

// rank is smaller for problems that come first.
func (p *Problem) rank() int {
	rank := slices.Index(problemKinds, p.Kind)
	if p.Severity != Act {
		rank += len(problemKinds)
	}
	return rank
}

// compareSince orders times, unknown ones last.
func compareSince(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}
