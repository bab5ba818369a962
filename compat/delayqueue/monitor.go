package delayqueue

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscribeTimeout is how long ListenEvent waits for Redis to confirm the subscription.
const subscribeTimeout = 10 * time.Second

// Monitor counts the messages of a queue and listens to the events of all of its processes. Its methods are safe for
// concurrent use.
type Monitor struct {
	inner *DelayQueue
}

// NewMonitor0 returns a Monitor that uses Redis through cli. See NewQueue0.
func NewMonitor0(name string, cli RedisCli, opts ...interface{}) *Monitor {
	return &Monitor{inner: NewQueue0(name, cli, opts...)}
}

// NewMonitor returns a Monitor of the queue with the given name. See NewQueue.
func NewMonitor(name string, cli *redis.Client, opts ...interface{}) *Monitor {
	return &Monitor{inner: NewQueue(name, cli, opts...)}
}

// NewMonitorOnCluster returns a Monitor of a queue in a Redis Cluster. See NewQueue.
func NewMonitorOnCluster(name string, cli *redis.ClusterClient, opts ...interface{}) *Monitor {
	return &Monitor{inner: NewQueueOnCluster(name, cli, opts...)}
}

// WithLogger sets the logger. The default, also for nil, is the standard logger of package log.
func (m *Monitor) WithLogger(logger *log.Logger) *Monitor {
	m.inner.withStandardLogger(logger)
	return m
}

// GetPendingCount returns the number of messages that are not yet due, including messages that wait for a retry.
func (m *Monitor) GetPendingCount() (int64, error) { return m.inner.GetPendingCount() }

// GetReadyCount returns the number of messages that are due and held by no consumer.
func (m *Monitor) GetReadyCount() (int64, error) { return m.inner.GetReadyCount() }

// GetProcessingCount returns the number of messages that consumers hold.
func (m *Monitor) GetProcessingCount() (int64, error) { return m.inner.GetProcessingCount() }

// ListenEvent has listener called for the events of all processes that have called EnableReport, from its return until
// the returned function is called. Events are best-effort: events of an outage, and events that a listener is too slow
// for, are lost.
func (m *Monitor) ListenEvent(listener EventListener) (func(), error) {
	ctx, cancel := context.WithTimeout(context.Background(), subscribeTimeout)
	defer cancel()
	sub := m.inner.rdb.Subscribe(ctx, reportChannel(m.inner.name))
	if _, err := sub.Receive(ctx); err != nil {
		sub.Close()
		return nil, fmt.Errorf("listen to the events of queue %q: %w", m.inner.name, err)
	}
	events := sub.Channel()
	go func() {
		for msg := range events {
			event, err := decodeEvent(msg.Payload)
			if err != nil {
				m.inner.log("delayqueue: events of queue %q: %v", m.inner.name, err)
				continue
			}
			listener.OnEvent(event)
		}
	}()
	return func() { sub.Close() }, nil
}
