// Package reserved has the names of the queues that Later keeps for itself, and the one check of a program's calls on
// them.
//
// The contract, the Go API, the server and the command ask this package. It imports nothing of the module, because
// package store imports it. Start reading at Check.
package reserved

import (
	"fmt"
	"strings"
)

// The names of Later's own queues begin with one of these.
const (
	Topic     = "topic:"         // and a topic's name: its messages that are not distributed yet
	History   = "topic-history:" // and a topic's name: the messages that it retains
	Schedules = "schedules:"     // all schedules, a message each
	Logouts   = "logouts:"       // logins to servers that were ended, a message each
	Worker    = "worker:"        // alone: the live workers; and the id of one: commands to it
	Changes   = "changes:"       // changes that were made through servers, a message each
)

// TopicIndex is a queue without messages. One of its properties changes with every subscription.
const TopicIndex = Topic

// Prefixes has all of them.
var Prefixes = [...]string{Topic, History, Schedules, Logouts, Worker, Changes}

// Cut splits the name of one of Later's own queues into its prefix and the rest. It returns "" and the whole name for
// any other queue.
func Cut(queue string) (prefix, rest string) {
	for _, prefix := range Prefixes {
		if rest, ok := strings.CutPrefix(queue, prefix); ok {
			return prefix, rest
		}
	}
	return "", queue
}

// CutTopic returns the name of the topic that has a queue's messages distributed. ok is false for any other queue.
func CutTopic(queue string) (topic string, ok bool) {
	topic, ok = strings.CutPrefix(queue, Topic)
	return topic, ok && topic != ""
}

// CutWorker returns the id of the worker that a queue has commands for. ok is false for any other queue.
func CutWorker(queue string) (id string, ok bool) {
	id, ok = strings.CutPrefix(queue, Worker)
	return id, ok && id != ""
}

// IsWorker reports whether a queue has live workers or commands to one.
func IsWorker(queue string) bool { return strings.HasPrefix(queue, Worker) }

// IsListed reports whether a queue is among the queues of a store, as programs see them.
func IsListed(queue string) bool { return queue != TopicIndex && queue != Changes && !IsWorker(queue) }

// IsIdle reports whether no program sends to a queue or receives from it, so that its messages are not work that waits.
func IsIdle(queue string) bool {
	return queue == Schedules || queue == Logouts || queue == Changes || strings.HasPrefix(queue, History)
}

// Use is an operation on a queue that is refused for some of Later's own queues.
type Use uint8

// The uses of a queue.
const (
	Open      Use = iota // access it by its name
	Change               // send to it, receive from it, and change its messages
	Handle               // have its messages handled or forwarded by a worker, or sent by a schedule
	Subscribe            // subscribe it to a topic
)

// Check returns why a use of a queue is refused, or "" if it is allowed.
func Check(queue string, use Use) string {
	prefix, _ := Cut(queue)
	switch {
	case prefix == "":
	case prefix == Worker:
		return fmt.Sprintf("queue %q begins with %q, which is kept for Later's workers: give it another name",
			queue, Worker)
	case queue == Changes:
		return fmt.Sprintf("queue %q has the list of changes: use GET /v1/changes or later changes, or another queue", queue)
	case use == Open:
	case use == Subscribe && (queue == TopicIndex || queue == Schedules || prefix == History):
		return fmt.Sprintf("queue %q is one of Later's own: subscribe another one", queue)
	case use == Handle && (prefix == Topic || prefix == History):
		return fmt.Sprintf("queue %q belongs to a topic: subscribe another queue to the topic and use that one", queue)
	case use != Subscribe && queue == Schedules:
		return fmt.Sprintf("queue %q has the schedules: use Client.Schedules or later schedule, or another queue",
			queue)
	}
	return ""
}
