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
	name     string // in -subjects
	title    string // in tables and plots
	settings string // what differs from the defaults
	versions func() map[string]string
	missing  func() error // returns why it cannot be measured on this machine; nil means that it always can
	// start starts the subject with its own server.
	start func(ctx context.Context) (*target, error)
	// connect connects to a running subject from another process. It is nil if that is impossible.
	connect func(ctx context.Context, addr string) (q benchmark.Queue, closeQueue func() error, err error)
	// settled makes the clock of a drain stop when the worker has settled all messages and returned. For other subjects it
	// stops when the last handler has started, because their shutdown takes time of its own.
	settled bool
	// cannot maps the workloads that the subject cannot run to the reasons. A reason of "" is not reported, because
	// another subject covers the workload.
	cannot map[string]string
	// wholeSeconds is set if the subject does not support shorter delays.
	wholeSeconds bool
	// atMost limits the sizes of workloads that would take too long.
	atMost map[string]int
}

// can reports whether the subject can run a workload.
func (s *subject) can(workload string) bool {
	_, cannot := s.cannot[workload]
	return !cannot
}

// takesPart reports whether the subject can run a workload or has a reason why not.
func (s *subject) takesPart(workload string) bool { return s.can(workload) || s.cannot[workload] != "" }

// target is a running subject.
type target struct {
	load
	server *server // nil for an embedded store
	dir    string  // of an embedded store
	close  func() error
	// clientCPU returns the CPU time of the client. It is nil if the client is this process.
	clientCPU func() (time.Duration, error)
}

// load runs the workloads: local in this process, bullmq in a Node process.
type load interface {
	Send(ctx context.Context, cfg benchmark.SendConfig) (benchmark.Sent, error)
	FillLater(ctx context.Context, messages, size int) error
	Drain(ctx context.Context, cfg benchmark.DrainConfig) (benchmark.Drained, error)
	Herd(ctx context.Context, cfg benchmark.DrainConfig) (benchmark.Drained, error)
	Lateness(ctx context.Context, cfg benchmark.LatenessConfig) (benchmark.Delivered, error)
}

// local is a load that runs in this process.
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

// batches reports whether a target can send in batches.
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
	handlers  = 32 // per worker
	minSize   = benchmark.MinSize
)

// subjects lists all subjects in the order of measurement, which every second round reverses.
var subjects = slices.Concat([]*subject{ceilingSubject()}, laterSubjects(), asynqSubjects(), beanstalkdSubjects(),
	[]*subject{bullmqSubject()})

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

// overRedis starts a subject on its own redis-server.
func overRedis(
	persist persistence, connect func(ctx context.Context, addr string) (benchmark.Queue, func() error, error),
) func(context.Context) (*target, error) {
	return func(ctx context.Context) (*target, error) {
		s, err := startRedis(ctx, persist)
		if err != nil {
			return nil, err
		}
		return onServer(ctx, s, connect)
	}
}

func onServer(
	ctx context.Context, s *server,
	connect func(ctx context.Context, addr string) (benchmark.Queue, func() error, error),
) (*target, error) {
	q, closeQueue, err := connect(ctx, s.addr)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return &target{load: local{q}, server: s, close: func() error { return errors.Join(closeQueue(), s.close()) }}, nil
}

var redisInstalled = installed("redis-server", "apt-get install redis-server, or brew install redis")

// moduleVersion returns the version of a module that this program is built with.
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

// redisVersions returns the versions of a subject on Redis.
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

// laterVersion returns the commit of this repository.
func laterVersion() string {
	out, err := exec.Command("git", "describe", "--always", "--tags", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// tempDir creates a directory that remove removes.
func tempDir() (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "later-bench-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}
