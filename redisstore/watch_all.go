package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// addAll subscribes the watcher to all queues. The channels of a Cluster belong to slots, and have no patterns.
func (w *watcher) addAll(ctx context.Context) error {
	if w.s.isCluster() {
		return fmt.Errorf("watch all queues: a Cluster has no patterns of channels: %w", store.ErrUnsupported)
	}
	w.all = true
	return w.add(ctx, []string{store.AllQueues})
}

// eventPattern returns the pattern of the channels of all queues.
func (s *Store) eventPattern() string {
	before, after := s.eventAffixes()
	return escapePattern.Replace(before) + "*" + after
}

var escapePattern = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// eventAffixes returns the parts before and after the queue in the name of its channel.
func (s *Store) eventAffixes() (before, after string) {
	before, after, _ = strings.Cut(s.eventChannel(store.AllQueues), store.AllQueues)
	return before, after
}

// queueOf returns the queue of the channel that a message came on, and whether it is watched.
func (w *watcher) queueOf(m *redis.Message) (queue string, known bool) {
	if w.all {
		before, after := w.s.eventAffixes()
		return strings.TrimSuffix(strings.TrimPrefix(m.Channel, before), after), true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[m.Channel]
	if q == nil {
		return "", false
	}
	return q.name, true
}
