//go:build unix

package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// subscriber is a queue that is subscribed to the topic for a part of the run. No consumer claims from it.
type subscriber struct {
	queue        string
	from         bool            // it was sent the history too
	subscribing  int64           // when Subscribe was called, µs
	subscribed   int64           // when Subscribe returned
	unsubscribed call            // at is 0 if the queue stayed subscribed
	unsure       bool            // a call failed, so that its effect is unknown
	received     map[string]bool // ids of the messages in the queue after the run
}

// retainAll has the topic keep more history than a run makes.
const retainAll = 1_000_000

// keepHistory has the topic of the subscribers retain its messages.
func (r *run) keepHistory(ctx context.Context) error {
	return r.subscribedTopic().Configure(ctx, later.TopicConfig{HistoryCount: retainAll})
}

// subscribedTopic is the only topic of the run, to which the subscribers subscribe.
func (r *run) subscribedTopic() *later.Topic { return r.client.Topic(r.queues[0][len(topicQueue):]) }

// disruptSubscriptions subscribes and unsubscribes queues while all calls take long, and sometimes kills a process that
// distributes messages at that time.
func disruptSubscriptions(ctx context.Context, r *run) error {
	r.log("slow-network")
	r.servers.proxies[0].set(conditions{delay: time.Millisecond + r.upTo(20*time.Millisecond)})
	const beside = 4
	all := make([]*subscriber, beside)
	var subscribing sync.WaitGroup
	for i := range all {
		s := &subscriber{queue: fmt.Sprintf("subscriber-%d-%d-%d", r.cfg.Seed, r.injected, i),
			from: r.random.IntN(2) == 0}
		all[i] = s
		before, during, stays := r.upTo(300*time.Millisecond), r.upTo(600*time.Millisecond), r.random.IntN(3) == 0
		subscribing.Go(func() { s.run(ctx, r.subscribedTopic(), before, during, stays) })
	}
	if r.injected%3 == 0 {
		c := r.pick("forwarder", "worker")
		r.kill(c)
		if err := c.start(); err != nil {
			return err
		}
	}
	subscribing.Wait()
	r.servers.proxies[0].set(conditions{})
	r.log("network-good")
	r.subscribers = append(r.subscribers, all...)
	return nil
}

// run subscribes the queue after a while, and unsubscribes it after another one unless it stays subscribed.
func (s *subscriber) run(ctx context.Context, t *later.Topic, before, during time.Duration, stays bool) {
	sleep(ctx, before)
	var opts []later.SubscribeOption
	if s.from {
		opts = append(opts, later.From(time.Unix(0, 0)))
	}
	s.subscribing = now()
	err := t.Subscribe(ctx, s.queue, opts...)
	if s.subscribed = now(); err != nil {
		s.unsure = true
	}
	sleep(ctx, during)
	if stays {
		return
	}
	s.unsubscribed.at = now()
	err = t.Unsubscribe(ctx, s.queue)
	if s.unsubscribed.ret = now(); err != nil {
		s.unsure = true
	}
}

// readSubscribers reads the queues of the subscribers.
func readSubscribers(ctx context.Context, r *run) error {
	for _, s := range r.subscribers {
		s.received = map[string]bool{}
		for cursor := ""; ; {
			page, err := r.client.Queue(s.queue).List(ctx,
				later.ListOptions{State: later.StateReady, Cursor: cursor, Limit: store.MaxBatch})
			if err != nil {
				return fmt.Errorf("list %s: %w", s.queue, err)
			}
			for _, m := range page.Messages {
				s.received[m.ID] = true
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
	}
	return nil
}

// checkSubscribed checks that the subscribers have the message if, and only if, they were subscribed when it was
// distributed. That was before its first claim from the consumers' queue, which was subscribed throughout.
func (ck *checker) checkSubscribed(m *message, result *Result, violate violator) {
	if len(ck.subscribers) == 0 || len(m.sends) == 0 || m.resent() || !strings.HasPrefix(m.queue(), subscribedQueue) {
		return
	}
	first := m.deliveries[0]
	for _, s := range ck.subscribers {
		if s.unsure {
			continue
		}
		left := s.unsubscribed.at
		before := left == 0 || first.now < left // the message was distributed before it left
		switch has := s.received[m.id]; {
		case before && !has && (s.from || s.subscribed < m.sends[0].at):
			violate("lost", "did not reach %s, subscribed from %d to %d", s.queue, s.subscribed, left)
		case has && left != 0 && m.sends[0].at > s.unsubscribed.ret:
			violate("unsubscribed", "reached %s, although it was sent %d µs after Unsubscribe had returned", s.queue,
				m.sends[0].at-s.unsubscribed.ret)
		case has && !s.from && first.ret < s.subscribing:
			violate("subscribed", "reached %s, which subscribed %d µs after it was claimed from another queue", s.queue,
				s.subscribing-first.ret)
		case has:
			result.Copied++
		}
	}
}
