package delayqueue

import (
	"log"
	"time"

	"github.com/redis/go-redis/v9"
)

// Publisher only sends messages. Its methods are safe for concurrent use.
type Publisher struct {
	inner *DelayQueue
}

// NewPublisher0 returns a Publisher that uses Redis through cli. See NewQueue0.
func NewPublisher0(name string, cli RedisCli, opts ...interface{}) *Publisher {
	return &Publisher{inner: NewQueue0(name, cli, opts...)}
}

// NewPublisher returns a Publisher of the queue with the given name. See NewQueue.
func NewPublisher(name string, cli *redis.Client, opts ...interface{}) *Publisher {
	return &Publisher{inner: NewQueue(name, cli, opts...)}
}

// WithLogger sets the logger. The default, also for nil, is the standard logger of package log.
func (p *Publisher) WithLogger(logger *log.Logger) *Publisher {
	p.inner.withStandardLogger(logger)
	return p
}

// SendScheduleMsg sends a message that is delivered at t. See DelayQueue.SendScheduleMsgV2.
func (p *Publisher) SendScheduleMsg(payload string, t time.Time, opts ...interface{}) error {
	return p.inner.SendScheduleMsg(payload, t, opts...)
}

// SendDelayMsg sends a message that is delivered after duration. See DelayQueue.SendDelayMsgV2.
func (p *Publisher) SendDelayMsg(payload string, duration time.Duration, opts ...interface{}) error {
	return p.inner.SendDelayMsg(payload, duration, opts...)
}
