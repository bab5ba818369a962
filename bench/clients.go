package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/store"
)

// scriptClient is a Redis client that calls Later's scripts in its own idiomatic way. It takes script arguments as text
// and reads the whole reply.
type scriptClient interface {
	// send returns the number of duplicates.
	send(ctx context.Context, args []string) (duplicates int, err error)
	// claim returns the lease's text, the number of messages and the size of their envelopes in bytes.
	claim(ctx context.Context, args []string) (text string, messages, size int, err error)
	// ack returns the number of messages that were not held.
	ack(ctx context.Context, args []string) (refused int, err error)
	close() error
}

// clientSubjects returns the subjects of the workload clients. No other workload uses them.
func clientSubjects() []*subject {
	variant := func(
		name, title, settings string,
		connect func(ctx context.Context, addr string, calls *scriptCalls) (scriptClient, error), modules ...string,
	) *subject {
		return &subject{
			name: name, title: title, settings: settings, missing: redisInstalled, client: connect,
			versions: func() map[string]string {
				all := redisVersions(modules...)()
				all["later"] = laterVersion()
				return all
			},
			start: func(ctx context.Context) (*target, error) {
				s, err := startRedis(ctx, persistNone)
				if err != nil {
					return nil, err
				}
				return &target{server: s, close: s.close}, nil
			},
		}
	}
	const rueidisModule = "github.com/redis/rueidis"
	return []*subject{
		variant("client-go-redis", "go-redis",
			"Later's scripts by go-redis as a store URL opens it: up to 10 connections a CPU, one call at a time on each",
			connectGoRedis),
		variant("client-rueidis", "rueidis",
			"Later's scripts by rueidis with its automatic pipelining: 4 connections, which all calls share; "+
				"without retries and client-side cache, else at its defaults", connectRueidis(false), rueidisModule),
		variant("client-rueidis-pool", "rueidis, no pipelining",
			"as rueidis, with DisableAutoPipelining and BlockingPoolSize as go-redis has it: "+
				"one call at a time on each connection", connectRueidis(true), rueidisModule),
	}
}

// The operations of the workload clients.
const (
	opSend     = "send"
	opClaimAck = "claim_ack"
)

// The values of the workload clients, prefixed by the operation and "_". Values of calls are per call, where a claim
// and an ack are two calls.
const (
	callRate      = "calls_per_second"
	callMessages  = "messages_per_second"
	callClientCPU = "call_client_cpu_us"
	callServerCPU = "call_server_cpu_us"
	callMallocs   = "call_mallocs"
	callBytes     = "call_bytes"
)

func callValue(op, value string) string { return op + "_" + value }

// clientUnit encodes a case of clients: messages per batch times clientUnit, plus the number of concurrent calls.
const clientUnit = 1000

func clientCases(p *plan) (all []int) {
	for _, batch := range p.ClientBatches {
		for _, underWay := range p.ClientUnderWay {
			all = append(all, batch*clientUnit+underWay)
		}
	}
	return all
}

const (
	callTimeout = 30 * time.Second // like Later's batches
	warmRounds  = 2                // calls per caller before the measurement, to open connections
)

// runClients sends batches from several callers, each of which waits for each reply, and then claims and acks the same
// messages.
func runClients(ctx context.Context, c *cell) (err error) {
	batch, underWay := c.n/clientUnit, c.n%clientUnit
	calls, err := recordCalls(ctx, c.server.addr, batch, c.Size)
	if err != nil {
		return err
	}
	client, err := c.subject.client(ctx, c.server.addr, calls)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.close()) }()

	warm := warmRounds * underWay
	n := max(1, min(c.ClientCalls, c.ClientMessages/batch))
	l := &clientRun{calls: calls, client: client, underWay: underWay, batch: batch}
	l.prepare(warm + n)
	values := map[string]float64{sentCount: float64(n * batch)}
	for _, half := range []struct {
		op    string
		calls int // of each step
		step  func(ctx context.Context, w *caller, i int) error
	}{{opSend, 1, l.send}, {opClaimAck, 2, l.claimAndAck}} {
		if err := l.run(ctx, 0, warm, half.step); err != nil {
			return err
		}
		if err := c.measureCalls(ctx, l, half.op, warm, n, half.calls, half.step, values); err != nil {
			return err
		}
	}
	c.emit(c.n, measurement{Values: values})
	return nil
}

// measureCalls runs n steps of several calls each, starting at number first, and records their cost.
func (c *cell) measureCalls(
	ctx context.Context, l *clientRun, op string, first, n, calls int,
	step func(context.Context, *caller, int) error, values map[string]float64,
) error {
	runtime.GC()
	end, err := c.cost(ctx)
	if err != nil {
		return err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	if err := l.run(ctx, first, first+n, step); err != nil {
		return err
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	cost := map[string]float64{}
	if err := end(n*calls, cost); err != nil {
		return err
	}
	made := float64(n * calls)
	for value, v := range map[string]float64{
		callRate: made / took.Seconds(), callMessages: float64(n*l.batch) / took.Seconds(),
		callClientCPU: cost[clientCPU], callServerCPU: cost[serverCPU],
		callMallocs: float64(after.Mallocs-before.Mallocs) / made,
		callBytes:   float64(after.TotalAlloc-before.TotalAlloc) / made,
	} {
		values[callValue(op, value)] = v
	}
	return nil
}

// clientRun holds the data of the calls, prepared before the measurement.
type clientRun struct {
	calls    *scriptCalls
	client   scriptClient
	underWay int
	batch    int
	ids      []string // of each send, in batches
	numbers  []string // of each send, then of each claim and its ack; ascending
	leases   []string // of each claim
}

func (l *clientRun) prepare(steps int) {
	l.ids, l.numbers, l.leases = make([]string, steps*l.batch), make([]string, 3*steps), make([]string, steps)
	for i := range l.ids {
		l.ids[i] = store.NewID()
	}
	base := time.Now().UnixMicro()
	for i := range l.numbers {
		l.numbers[i] = strconv.FormatInt(base+int64(i), 10)
	}
	for i := range steps {
		l.leases[i] = fmt.Sprintf("%012d", i)
	}
}

// caller makes one call after the other. It reuses its argument buffers.
type caller struct {
	name string
	args []string
	held []string
}

// run executes the steps from first to end, underWay at a time. It stops at the first error.
func (l *clientRun) run(ctx context.Context, first, end int, step func(context.Context, *caller, int) error) error {
	var next atomic.Int64
	next.Store(int64(first))
	failures := make(chan error, l.underWay)
	var callers sync.WaitGroup
	for k := range l.underWay {
		callers.Go(func() {
			w := &caller{name: fmt.Sprintf("bench:%d", k)}
			for {
				i := int(next.Add(1)) - 1
				if i >= end {
					return
				}
				err := step(ctx, w, i)
				if err == nil {
					err = context.Cause(ctx)
				}
				if err != nil {
					failures <- err
					next.Store(int64(end))
					return
				}
			}
		})
	}
	callers.Wait()
	close(failures)
	return <-failures
}

// callContext returns the context of one call. As in Later's batches, it has a timeout and does not end with its
// caller.
func callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
}

func (l *clientRun) send(ctx context.Context, w *caller, i int) error {
	w.args = l.calls.sendArgs(w.args[:0], w.name, l.numbers[i], l.ids[i*l.batch:(i+1)*l.batch])
	ctx, cancel := callContext(ctx)
	defer cancel()
	duplicates, err := l.client.send(ctx, w.args)
	if err == nil && duplicates > 0 {
		err = fmt.Errorf("%d of %d messages were duplicates", duplicates, l.batch)
	}
	return err
}

func (l *clientRun) claimAndAck(ctx context.Context, w *caller, i int) error {
	lease := l.leases[i]
	claim := len(l.leases) + 2*i
	w.args = l.calls.claimArgs(w.args[:0], w.name, l.numbers[claim], lease)
	text, err := l.claimOnce(ctx, w.args)
	if err != nil {
		return err
	}
	w.held = heldIDs(w.held[:0], text)
	if len(w.held) != l.batch {
		return fmt.Errorf("a lease of %d messages lists %d", l.batch, len(w.held))
	}
	w.args = ackArgs(w.args[:0], w.name, l.numbers[claim+1], lease, text, w.held)
	ctx, cancel := callContext(ctx)
	defer cancel()
	refused, err := l.client.ack(ctx, w.args)
	if err == nil && refused > 0 {
		err = fmt.Errorf("%d of %d acks were refused", refused, l.batch)
	}
	return err
}

func (l *clientRun) claimOnce(ctx context.Context, args []string) (text string, err error) {
	ctx, cancel := callContext(ctx)
	defer cancel()
	text, messages, size, err := l.client.claim(ctx, args)
	if err == nil && (messages != l.batch || size < messages*benchmark.MinSize) {
		err = fmt.Errorf("claimed %d messages of %d, with %d bytes", messages, l.batch, size)
	}
	return text, err
}
