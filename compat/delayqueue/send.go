package delayqueue

import (
	"context"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

type retryCountOption int

// WithRetryCount returns an option for sends: how often the message is delivered again after its first delivery failed.
// A count below zero is zero.
func WithRetryCount(count int) interface{} { return retryCountOption(count) }

type msgTTLOption time.Duration

// WithMsgTTL returns an option for sends: a message that has not been delivered d after it fell due becomes a dead
// letter. It applies to this message only. Without it a message waits for as long as it takes. Sends return an
// ErrInvalid for a d of zero or less.
func WithMsgTTL(d time.Duration) interface{} { return msgTTLOption(d) }

// MessageInfo identifies a message that was sent, for TryIntercept.
type MessageInfo struct {
	id string
}

// ID returns the message's id, which Later and its command use too.
func (msg *MessageInfo) ID() string { return msg.id }

// SendScheduleMsgV2 sends a message that is delivered at t, by the clock of the Redis server. A time in the past means
// at once.
//
// The errors are the same as of later.Queue.Send. After a later.ErrUnavailable the message may or may not have been
// sent.
func (q *DelayQueue) SendScheduleMsgV2(payload string, t time.Time, opts ...interface{}) (*MessageInfo, error) {
	when := later.In(0)
	if t.After(time.UnixMilli(0)) {
		when = later.At(t)
	}
	return q.send(payload, when, opts)
}

// SendDelayMsgV2 sends a message that is delivered after duration, by the clock of the Redis server. See
// SendScheduleMsgV2.
func (q *DelayQueue) SendDelayMsgV2(payload string, duration time.Duration, opts ...interface{}) (*MessageInfo, error) {
	return q.send(payload, later.In(duration), opts)
}

// SendScheduleMsg is SendScheduleMsgV2 without the MessageInfo.
func (q *DelayQueue) SendScheduleMsg(payload string, t time.Time, opts ...interface{}) error {
	_, err := q.SendScheduleMsgV2(payload, t, opts...)
	return err
}

// SendDelayMsg is SendDelayMsgV2 without the MessageInfo.
func (q *DelayQueue) SendDelayMsg(payload string, duration time.Duration, opts ...interface{}) error {
	_, err := q.SendDelayMsgV2(payload, duration, opts...)
	return err
}

func (q *DelayQueue) send(payload string, when later.When, opts []interface{}) (*MessageInfo, error) {
	queue, err := q.queue()
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	retries, logger := q.settings.retryCount, q.logger
	q.mu.Unlock()
	sendOpts := []later.SendOption{when}
	for _, opt := range opts {
		switch o := opt.(type) {
		case nil:
		case retryCountOption:
			retries = uint(max(0, o))
		case msgTTLOption:
			sendOpts = append(sendOpts, later.ExpireAfter(time.Duration(o)))
		default:
			logger.Printf("delayqueue: an option of type %T of a send to queue %q is unknown and has no effect",
				opt, q.name)
		}
	}
	sendOpts = append(sendOpts, later.MaxAttempts(int(min(retries, store.MaxAttempts-1))+1))
	id, err := queue.Send(context.Background(), []byte(payload), sendOpts...)
	if err != nil {
		return nil, err
	}
	return &MessageInfo{id: id}, nil
}

func (q *DelayQueue) count(of func(later.Stats) int64) (int64, error) {
	queue, err := q.queue()
	if err != nil {
		return 0, err
	}
	stats, err := queue.Stats(context.Background())
	return of(stats), err
}
