package store

import "strings"

// The names of the queues that Later keeps for itself begin with one of Reserved. A program that gives others access to
// queues by name treats these as what they belong to.
const (
	TopicPrefix    = "topic:"         // and a topic's name: its messages that are not distributed yet
	HistoryPrefix  = "topic-history:" // and a topic's name: the messages that it retains
	SchedulesQueue = "schedules:"     // all schedules, a message each
	LogoutsQueue   = "logouts:"       // logins to servers that were ended, a message each
	WorkerPrefix   = "worker:"        // alone: the live workers; and the id of one: commands to it
)

// Reserved has all of them.
var Reserved = []string{TopicPrefix, HistoryPrefix, SchedulesQueue, LogoutsQueue, WorkerPrefix}

// CutReserved returns the beginning of a queue's name that is one of Reserved, and the rest. It returns "" and the whole
// name for any other queue.
func CutReserved(queue string) (prefix, rest string) {
	for _, prefix := range Reserved {
		if rest, ok := strings.CutPrefix(queue, prefix); ok {
			return prefix, rest
		}
	}
	return "", queue
}
