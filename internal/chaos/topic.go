//go:build unix

package chaos

import (
	"context"
	"fmt"
	"strings"
)

// addTopics has the producers publish to topics. Two queues are subscribed to each: the queue of the consumers, and one
// that a forwarder moves to a list. Workers and the forwarder distribute the messages.
func (r *run) addTopics(ctx context.Context) error {
	target := fmt.Sprint(subscribedQueue, r.cfg.Seed)
	r.away, r.list = fmt.Sprint("away-", r.cfg.Seed), fmt.Sprint("list-", r.cfg.Seed)
	r.awayLeft = map[string]bool{}
	for _, queue := range r.queues {
		for _, subscribed := range []string{target, r.away} {
			if err := r.client.Topic(queue[len(topicQueue):]).Subscribe(ctx, subscribed); err != nil {
				return err
			}
		}
	}
	for _, c := range r.children {
		if c.role.Kind != "producer" && c.role.Kind != "laggard" {
			c.role.Queues = []string{target}
		}
	}
	f := r.consumer("forwarder", "forwarder", r.servers.url)
	f.To = map[string]string{r.away: "list:" + r.list}
	r.add(f)
	r.queues = append(r.queues, target, r.away)
	return nil
}

const (
	topicQueue      = "topic:"      // begins the names of topics' queues
	subscribedQueue = "subscribed-" // begins the name of the consumers' queue
)

// disruptTopics kills processes that distribute messages, loses replies or delays requests.
func disruptTopics(ctx context.Context, r *run) error {
	switch r.injected % 4 {
	case 2:
		return loseReplies(ctx, r)
	case 3:
		return delayRequests(ctx, r)
	}
	c := r.pick("forwarder", "worker")
	r.kill(c)
	return c.start()
}

// checkCopies checks that a message that reached the consumers' queue is in the list exactly once too.
func (ck *checker) checkCopies(m *message, violate violator) {
	n := ck.inList(m)
	for _, s := range m.sends {
		if m.resent() || s.mayRecreate() {
			return // another message, or one that may have been accepted twice
		}
	}
	if n > 1 {
		violate("doubled", "is in the list %d times", n)
	}
	if n == 0 && strings.HasPrefix(m.queue(), subscribedQueue) && !ck.awayLeft[m.id] {
		violate("lost", "was claimed, but is not in the list")
	}
}
