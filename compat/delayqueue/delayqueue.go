package delayqueue

import (
	"cmp"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// The defaults of the original.
const (
	defaultMaxConsumeDuration = 5 * time.Second
	defaultRetryCount         = 3
	defaultFetchInterval      = time.Second
)

// DelayQueue sends the messages of a queue and handles them. Create it with NewQueue, NewQueueOnCluster or NewQueue0.
// Its methods are safe for concurrent use.
type DelayQueue struct {
	name   string
	rdb    redis.UniversalClient
	prefix string // of the keys

	listener atomic.Pointer[EventListener]
	report   *reporter

	mu       sync.Mutex // guards the fields below
	logger   Logger
	settings settings
	client   *later.Client // of everything but consuming; nil until it is needed
	running  *consumer     // nil unless consuming
}

// settings are the options of StartConsume and of the sends.
type settings struct {
	callback            CallbackFunc
	maxConsumeDuration  time.Duration
	retryCount          uint
	fetchInterval       time.Duration
	fetchLimit          uint
	concurrent          uint
	nackRedeliveryDelay time.Duration
}

// Logger receives the log messages of a queue. A *log.Logger is one.
type Logger interface {
	Printf(format string, v ...interface{})
}

// CallbackFunc handles a message. It returns true if the message is done, and false to have it delivered again.
type CallbackFunc = func(string) bool

type hashTagOption struct{}

type prefixOption string

// UseHashTagKey returns an option that has no effect, because the keys of a queue of Later always share a hash tag.
func UseHashTagKey() interface{} { return hashTagOption{} }

// UseCustomPrefix returns an option for NewQueue, NewPublisher and NewMonitor that replaces the prefix of the queue's
// keys, which is "later:", by prefix and a colon. The later command finds the queue with ?prefix=PREFIX: in the URL of
// its store. A prefix with its colon has up to 64 bytes without control characters and braces.
func UseCustomPrefix(prefix string) interface{} { return prefixOption(prefix) }

// NewQueue returns the queue with the given name in cli's server. The options are a CallbackFunc, UseHashTagKey and
// UseCustomPrefix; others are reported to the standard logger and have no effect. It does not connect.
func NewQueue(name string, cli *redis.Client, opts ...interface{}) *DelayQueue {
	if cli == nil {
		return newQueue(name, nil, opts)
	}
	return newQueue(name, cli, opts)
}

// NewQueueOnCluster returns a queue in a Redis Cluster. See NewQueue.
func NewQueueOnCluster(name string, cli *redis.ClusterClient, opts ...interface{}) *DelayQueue {
	if cli == nil {
		return newQueue(name, nil, opts)
	}
	return newQueue(name, cli, opts)
}

// NewQueue0 returns a queue that uses Redis through cli. See NewQueue.
//
// All of Later's commands go through cli's Eval, EvalSha, ScriptLoad, Publish and Subscribe; its other methods are not
// used. They must pass on arguments and results as they are, which may be any bytes.
func NewQueue0(name string, cli RedisCli, opts ...interface{}) *DelayQueue {
	if cli == nil {
		return newQueue(name, nil, opts)
	}
	return newQueue(name, bridged(cli), opts)
}

func newQueue(name string, rdb redis.UniversalClient, opts []interface{}) *DelayQueue {
	if name == "" {
		panic("name is required")
	}
	if rdb == nil {
		panic("cli is required")
	}
	q := &DelayQueue{
		name:   name,
		rdb:    rdb,
		prefix: redisstore.DefaultPrefix,
		logger: log.Default(),
		settings: settings{
			maxConsumeDuration: defaultMaxConsumeDuration,
			retryCount:         defaultRetryCount,
			fetchInterval:      defaultFetchInterval,
			concurrent:         1,
		},
	}
	q.report = newReporter(q)
	for _, opt := range opts {
		switch o := opt.(type) {
		case hashTagOption, nil:
		case prefixOption:
			q.prefix = string(o) + ":"
		case CallbackFunc:
			q.settings.callback = o
		default:
			q.logger.Printf("delayqueue: an option of type %T of queue %q is unknown and has no effect", opt, name)
		}
	}
	return q
}

// queue returns the queue of a client that lasts as long as q. It holds no connection and runs no goroutine, so it need
// not be closed.
func (q *DelayQueue) queue() (*later.Queue, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.client == nil {
		client, _, err := q.open()
		if err != nil {
			return nil, err
		}
		q.client = client
	}
	return q.client.Queue(q.name), nil
}

// open makes a client and the store that it uses. q.mu is held.
func (q *DelayQueue) open() (*later.Client, *redisstore.Store, error) {
	logger := slogTo(q.logger)
	s := redisstore.New(q.rdb, redisstore.Prefix(q.prefix), redisstore.WithLogger(logger))
	client, err := later.New(s, later.WithLogger(logger), later.WithObserver(q.observe))
	if err != nil {
		return nil, nil, fmt.Errorf("queue %q: %w", q.name, err)
	}
	return client, s, nil
}

// change changes the settings. Settings of consumers take effect at the next StartConsume.
func (q *DelayQueue) change(set func(*settings)) *DelayQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	set(&q.settings)
	return q
}

// WithCallback sets the function that handles messages. Without one, StartConsume panics.
func (q *DelayQueue) WithCallback(callback CallbackFunc) *DelayQueue {
	return q.change(func(s *settings) { s.callback = callback })
}

// WithLogger sets the logger. The default, also for nil, is the standard logger of package log.
func (q *DelayQueue) WithLogger(logger Logger) *DelayQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.logger = cmp.Or[Logger](logger, log.Default())
	q.client = nil // the next one uses the logger
	return q
}

// WithFetchInterval sets how long a message waits after its callback returned false, if WithNackRedeliveryDelay does
// not. The default is a second. Consumers do not poll: they learn of a message when it falls due.
func (q *DelayQueue) WithFetchInterval(d time.Duration) *DelayQueue {
	return q.change(func(s *settings) { s.fetchInterval = d })
}

// WithScriptPreload has no effect. Later's scripts are always preloaded.
func (q *DelayQueue) WithScriptPreload(flag bool) *DelayQueue { return q }

// WithMaxConsumeDuration limits one run of the callback, and how long the messages of a process that died are held. A
// message with a callback that takes longer is delivered again at once, and a retry is used; the callback is not
// stopped, and if it returns true after all, the message is done. The default, also for zero and below, is 5 seconds;
// the limit is 24 hours.
//
// The time begins when the callback is called. Messages that wait for a free consumer are kept.
func (q *DelayQueue) WithMaxConsumeDuration(d time.Duration) *DelayQueue {
	if d <= 0 {
		d = defaultMaxConsumeDuration
	}
	return q.change(func(s *settings) { s.maxConsumeDuration = min(d, store.MaxTimeout) })
}

// WithFetchLimit limits how many messages this process holds at a time, running and waiting for a consumer. Zero, the
// default, is no limit.
func (q *DelayQueue) WithFetchLimit(limit uint) *DelayQueue {
	return q.change(func(s *settings) { s.fetchLimit = limit })
}

// WithConcurrent sets how many callbacks run at a time. The default is 1. It panics for zero and while consuming.
func (q *DelayQueue) WithConcurrent(c uint) *DelayQueue {
	if c == 0 {
		panic("concurrent cannot be 0")
	}
	q.mu.Lock()
	running := q.running != nil
	q.mu.Unlock()
	if running {
		panic("operation cannot be performed during running")
	}
	return q.change(func(s *settings) { s.concurrent = c })
}

// WithDefaultRetryCount sets how often a message is delivered again after its first delivery failed, for the messages
// that this DelayQueue sends without WithRetryCount. The default is 3.
func (q *DelayQueue) WithDefaultRetryCount(count uint) *DelayQueue {
	return q.change(func(s *settings) { s.retryCount = count })
}

// WithNackRedeliveryDelay sets how long a message waits after its callback returned false. The default is the fetch
// interval. A message does not wait if its callback exceeded WithMaxConsumeDuration.
func (q *DelayQueue) WithNackRedeliveryDelay(d time.Duration) *DelayQueue {
	return q.change(func(s *settings) { s.nackRedeliveryDelay = d })
}

// GetPendingCount returns the number of messages that are not yet due, including messages that wait for a retry.
func (q *DelayQueue) GetPendingCount() (int64, error) {
	return q.count(func(s later.Stats) int64 { return s.Scheduled })
}

// GetReadyCount returns the number of messages that are due and held by no consumer.
func (q *DelayQueue) GetReadyCount() (int64, error) {
	return q.count(func(s later.Stats) int64 { return s.Ready })
}

// GetProcessingCount returns the number of messages that consumers hold.
func (q *DelayQueue) GetProcessingCount() (int64, error) {
	return q.count(func(s later.Stats) int64 { return s.Leased })
}
