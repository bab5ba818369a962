package benchmark

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/laterq/later/internal/calls"
)

// Load runs workloads: Local in this process, and others in a process of their own.
type Load interface {
	Send(ctx context.Context, cfg SendConfig) (Sent, error)
	FillLater(ctx context.Context, messages, size int) error
	Drain(ctx context.Context, cfg DrainConfig) (Drained, error)
	Lateness(ctx context.Context, cfg LatenessConfig) (Delivered, error)
}

// Local is a Load that runs in this process.
type Local struct{ Queue }

// FillLater sends messages that are due in more than an hour.
func (l Local) FillLater(ctx context.Context, messages, size int) error {
	return Fill(ctx, l.Queue, messages, size, InAnHour)
}

// Target is a queue, or another Load, that is measured. Its methods run a workload and return its figures.
type Target struct {
	Load
	Size, Handlers int
	Limit          time.Duration // how long to wait for messages that are due
	Settled        bool          // the clock of a drain stops when all is settled, not when the last handler starts
	Redis          *Redis        // nil for a queue without one
	// CPU returns the CPU time that client and server have used so far. The server's is 0 if there is none.
	CPU func(ctx context.Context) (client, server time.Duration, err error)
	// Used returns the bytes that the messages take.
	Used func(ctx context.Context) (int64, error)
	// Pinger starts to ping the Redis from another process. worst stops that and returns the longest wait.
	Pinger func(ctx context.Context) (worst func() (time.Duration, error), err error)
}

// cost starts to measure the CPU time. end returns it per message and per second.
func (t *Target) cost(ctx context.Context) (end func(messages int, v Values) error, err error) {
	client, server, err := t.CPU(ctx)
	begin := time.Now()
	return func(messages int, v Values) error {
		took := time.Since(begin).Seconds()
		clientNow, serverNow, err := t.CPU(ctx)
		if err != nil || messages == 0 {
			return err
		}
		v[ClientCPU], v[ClientCPUs] = Micros(clientNow-client)/float64(messages), (clientNow-client).Seconds()/took
		if serverNow > 0 {
			v[ServerCPU], v[ServerCPUs] = Micros(serverNow-server)/float64(messages), (serverNow-server).Seconds()/took
		}
		return nil
	}, err
}

// Timed calls f n times, and records the time and the server's CPU per call.
func (t *Target) Timed(ctx context.Context, n int, v Values, took, cpu string, f func(i int) error) error {
	end, err := t.cost(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	for i := range n {
		if err := f(i); err != nil {
			return err
		}
	}
	v[took] = Micros(time.Since(begin)) / float64(n)
	cost := Values{}
	err = end(n, cost)
	if used, ok := cost[ServerCPU]; ok {
		v[cpu] = used
	}
	return err
}

// MeasureSend runs Send.
func (t *Target) MeasureSend(ctx context.Context, cfg SendConfig) (Values, error) {
	end, err := t.cost(ctx)
	if err != nil {
		return nil, err
	}
	cfg.Size = t.Size
	sent, err := t.Send(ctx, cfg)
	if err != nil {
		return nil, err
	}
	v := Values{PerSecond: sent.PerSecond(), Messages: float64(sent.Messages), TookMS: Millis(sent.Took)}
	return v, end(sent.Messages, v)
}

// MeasureDrain runs a drain, or a herd while another process pings the Redis. Its cost is that of the worker.
func (t *Target) MeasureDrain(ctx context.Context, messages int, herd bool) (Values, error) {
	var end func(int, Values) error
	var worst func() (time.Duration, error)
	var begun error
	d, err := t.Drain(ctx, DrainConfig{
		Messages: messages, Herd: herd, Size: t.Size, Handlers: t.Handlers, Limit: t.Limit,
		OnFilled: func() {
			if herd && t.Redis != nil {
				worst, begun = t.Pinger(ctx)
			}
			var err error
			end, err = t.cost(ctx)
			begun = errors.Join(begun, err)
		},
	})
	v := Values{
		Messages: float64(d.Messages), Handled: float64(d.Handled), Doubles: float64(d.Doubles),
		Early: float64(d.Early), Unfinished: float64(d.Left), Lost: float64(d.Messages - d.Handled - d.Left),
	}
	if err = errors.Join(err, begun); err == nil {
		err = end(d.Handled, v)
	}
	if worst != nil {
		longest, failed := worst()
		v[WorstPing], err = Millis(longest), errors.Join(err, failed)
	}
	took := d.Took
	if t.Settled {
		took = d.Settled
	}
	if took > 0 { // otherwise the whole herd was early
		v[PerSecond], v[TookMS] = float64(d.Handled)/took.Seconds(), Millis(took)
	}
	return v, err
}

// MeasureLateness runs Lateness. It also returns the sorted latenesses.
func (t *Target) MeasureLateness(ctx context.Context, cfg LatenessConfig) (Values, []time.Duration, error) {
	end, err := t.cost(ctx)
	if err != nil {
		return nil, nil, err
	}
	cfg.Size, cfg.Handlers, cfg.Limit = t.Size, t.Handlers, t.Limit
	d, err := t.Lateness(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	v := Values{
		Messages: float64(d.Sent), Handled: float64(len(d.Samples)), PerSecond: float64(d.Sent) / d.Took.Seconds(),
		Early: float64(d.Early), Unfinished: float64(d.Missing), Doubles: float64(d.Doubles),
	}
	for name, p := range map[string]float64{MinMS: 0, P50: 0.5, P99: 0.99, P999: 0.999, MaxMS: 1} {
		if len(d.Samples) > 0 {
			v[name] = Millis(Quantile(d.Samples, p))
		}
	}
	return v, d.Samples, end(len(d.Samples), v)
}

// MeasureMemory measures the bytes that n messages take in addition to their payloads.
func (t *Target) MeasureMemory(ctx context.Context, n, size int) (Values, error) {
	var used [2]int64
	for i, messages := range []int{1, n} { // the first message creates the queue's fixed keys
		err := t.FillLater(ctx, messages, size)
		if err == nil {
			used[i], err = t.Used(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return Values{
		Messages: float64(n), BytesAbove: float64(used[1]-used[0])/float64(n) - float64(size),
	}, nil
}

// MeasureIdle measures a worker in this process. Its queue has one message, due in an hour. requests, unless it is nil,
// counts the worker's requests.
func (t *Target) MeasureIdle(
	ctx context.Context, q Queue, settle, d time.Duration, requests func() int64,
) (v Values, err error) {
	if err := t.FillLater(ctx, 1, t.Size); err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	worked := make(chan error, 1)
	go func() { worked <- q.Work(working, t.Handlers, func([]byte) {}) }()
	defer func() {
		stop()
		err = errors.Join(err, <-worked)
	}()
	return t.MeasureQuiet(ctx, settle, d, requests)
}

// MeasureQuiet measures the CPU time of workers that have nothing to do, after a while in which they settle.
func (t *Target) MeasureQuiet(
	ctx context.Context, settle, d time.Duration, requests func() int64,
) (v Values, err error) {
	if err := calls.Sleep(ctx, settle); err != nil {
		return nil, err
	}
	v = Values{}
	if requests != nil {
		v[CommandRate] = -float64(requests()) / d.Seconds()
	}
	end, err := t.cost(ctx)
	if err = errors.Join(err, calls.Sleep(ctx, d)); err != nil {
		return nil, err
	}
	cost := Values{}
	err = end(1, cost)
	if requests != nil {
		v[CommandRate] += float64(requests()) / d.Seconds()
	}
	v[ClientLoad] = 1000 * cost[ClientCPUs]
	if server, ok := cost[ServerCPUs]; ok {
		v[ServerLoad] = 1000 * server
	}
	return v, err
}

// Curve returns the distribution of sorted samples as pairs of milliseconds and the fraction of the sent messages that
// are at most that late. Half of the points are in its last hundredth.
func Curve(sorted []time.Duration, sent float64) (curve [][2]float64) {
	if len(sorted) == 0 {
		return nil
	}
	part := float64(len(sorted)) / sent
	add := func(p float64) { curve = append(curve, [2]float64{Millis(Quantile(sorted, p)), p * part}) }
	for i := range 100 {
		add(float64(i) / 100 * 0.99)
	}
	for i := range 101 {
		add(0.99 + float64(i)/10_000)
	}
	return curve
}

// Millis returns a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Micros returns a duration in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// DirectorySize returns the size of the files in a directory. Files may be removed while it looks.
func DirectorySize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				size += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return size, err
}
