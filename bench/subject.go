package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/benchmark"
)

// subject is a queue with its settings.
type subject struct {
	name     string // of -subjects
	title    string // in tables and plots
	settings string // in words: what differs from the defaults
	versions func() map[string]string
	missing  func() error // why it cannot be measured on this machine; nil: it always can
	// start starts it with a server of its own.
	start func(ctx context.Context) (*target, error)
	// connect reaches a running one, from a process of its own; nil when that cannot be.
	connect func(ctx context.Context, addr string) (q benchmark.Queue, closeQueue func() error, err error)
	// settled: the clock of a drain stops when the worker has settled all and returned. For the others it stops
	// earlier, when the last handler has begun, since their shutdown takes its own time.
	settled bool
	// cannot names the workloads that it cannot do, and why; "" is no reason to be told: it has been measured as another subject.
	cannot map[string]string
	// client connects to call the scripts of the workload clients, which alone such a subject does; nil of all others.
	client func(ctx context.Context, addr string, calls *scriptCalls) (scriptClient, error)
	// wholeSeconds: it knows no shorter delays.
	wholeSeconds bool
	// atMost bounds the sizes of workloads that would take it too long.
	atMost map[string]int
}

// can tells whether it does a workload.
func (s *subject) can(workload string) bool {
	_, cannot := s.cannot[workload]
	return !cannot && (workload == "clients") == (s.client != nil)
}

// takesPart: it does a workload, or there is a word about why not.
func (s *subject) takesPart(workload string) bool { return s.can(workload) || s.cannot[workload] != "" }

// target is a subject at work.
type target struct {
	load
	server *server // nil of an embedded one
	dir    string  // of an embedded one
	close  func() error
	// clientCPU tells what the client has used; nil: it is this process.
	clientCPU func() (time.Duration, error)
}

// load does the workloads: local for what Go can call, bullmq by a process that is told to.
type load interface {
	Send(ctx context.Context, cfg benchmark.SendConfig) (benchmark.Sent, error)
	FillLater(ctx context.Context, messages, size int) error
	Drain(ctx context.Context, cfg benchmark.DrainConfig) (benchmark.Drained, error)
	Herd(ctx context.Context, cfg benchmark.DrainConfig) (benchmark.Drained, error)
	Lateness(ctx context.Context, cfg benchmark.LatenessConfig) (benchmark.Delivered, error)
}

// local is a load of this process.
type local struct{ benchmark.Queue }

func (l local) Send(ctx context.Context, cfg benchmark.SendConfig) (benchmark.Sent, error) {
	return benchmark.Send(ctx, l.Queue, cfg)
}

func (l local) FillLater(ctx context.Context, messages, size int) error {
	return benchmark.Fill(ctx, l.Queue, messages, size, benchmark.InAnHour)
}

func (l local) Drain(ctx context.Context, cfg benchmark.DrainConfig) (benchmark.Drained, error) {
	return benchmark.Drain(ctx, l.Queue, cfg)
}

func (l local) Herd(ctx context.Context, cfg benchmark.DrainConfig) (benchmark.Drained, error) {
	return benchmark.Herd(ctx, l.Queue, cfg)
}

func (l local) Lateness(ctx context.Context, cfg benchmark.LatenessConfig) (benchmark.Delivered, error) {
	return benchmark.Lateness(ctx, l.Queue, cfg)
}

// batches tells whether a target can send in batches.
func (t *target) batches() bool {
	l, ok := t.load.(local)
	if !ok {
		return true // BullMQ can
	}
	_, ok = l.Queue.(benchmark.BatchQueue)
	return ok
}

const (
	queueName = "bench"
	handlers  = 32 // of every worker
	minSize   = benchmark.MinSize
)

// subjects are measured in this order, and in every second round in the reverse.
var subjects = slices.Concat([]*subject{ceilingSubject()}, laterSubjects(), asynqSubjects(), beanstalkdSubjects(), []*subject{bullmqSubject()}, clientSubjects())

func subjectNames() (names []string) {
	for _, s := range subjects {
		names = append(names, s.name)
	}
	return names
}

func findSubject(name string) *subject {
	for _, s := range subjects {
		if s.name == name {
			return s
		}
	}
	return nil
}

// overRedis starts a subject on a redis-server of its own.
func overRedis(persist persistence, connect func(ctx context.Context, addr string) (benchmark.Queue, func() error, error)) func(context.Context) (*target, error) {
	return func(ctx context.Context) (*target, error) {
		s, err := startRedis(ctx, persist)
		if err != nil {
			return nil, err
		}
		return onServer(ctx, s, connect)
	}
}

func onServer(ctx context.Context, s *server, connect func(ctx context.Context, addr string) (benchmark.Queue, func() error, error)) (*target, error) {
	q, closeQueue, err := connect(ctx, s.addr)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return &target{load: local{q}, server: s, close: func() error { return errors.Join(closeQueue(), s.close()) }}, nil
}

var redisInstalled = installed("redis-server", "apt-get install redis-server, or brew install redis")

// moduleVersion gives the version of a module that this program is built of.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}

// redisVersions are those of every subject on Redis.
func redisVersions(more ...string) func() map[string]string {
	return func() map[string]string {
		_, version, _ := strings.Cut(versionOf("redis-server", "--version"), "v=")
		version, _, _ = strings.Cut(version, " ")
		all := map[string]string{"redis-server": version, "go-redis": moduleVersion("github.com/redis/go-redis/v9")}
		for _, module := range more {
			all[module] = moduleVersion(module)
		}
		return all
	}
}

// laterVersion is the commit of this repository.
func laterVersion() string {
	out, err := exec.Command("git", "describe", "--always", "--tags", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// tempDir makes a directory that its close removes.
func tempDir() (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "later-bench-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}
