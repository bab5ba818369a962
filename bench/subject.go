package main

import (
	"context"
	"errors"
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
	connect connector
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
	*benchmark.Target
	server *server // nil for an embedded store
	close  func() error
}

// newTarget returns a target whose client is this process. server is nil for an embedded store in dir.
func newTarget(l benchmark.Load, s *server, dir string, close func() error) *target {
	t := &target{&benchmark.Target{Load: l, Handlers: handlers}, s, close}
	t.CPU = t.cpu(func(context.Context) (time.Duration, error) {
		used, _ := benchmark.ProcessCPU()
		return used, nil
	})
	t.Used = func(ctx context.Context) (int64, error) {
		if s == nil {
			return benchmark.DirectorySize(dir)
		}
		return s.memory(ctx)
	}
	if s == nil || s.redis == nil {
		return t
	}
	t.Redis = s.redis
	t.Pinger = func(ctx context.Context) (func() (time.Duration, error), error) {
		cmd, err := self("ping", s.addr)
		if err = errors.Join(err, s.logSlowCalls(ctx)); err != nil {
			return nil, err
		}
		return benchmark.StartPinger(cmd)
	}
	return t
}

// cpu returns a function that returns the CPU time used by the client and by the server.
func (t *target) cpu(
	client func(ctx context.Context) (time.Duration, error),
) func(ctx context.Context) (client, server time.Duration, err error) {
	return func(ctx context.Context) (used, server time.Duration, err error) {
		if t.server != nil {
			server, err = t.server.cpuTime(ctx)
		}
		used, failed := client(ctx)
		return used, server, errors.Join(err, failed)
	}
}

// batches reports whether a target can send in batches.
func (t *target) batches() bool {
	l, ok := t.Load.(benchmark.Local)
	if !ok {
		return true // BullMQ can
	}
	_, ok = l.Queue.(benchmark.BatchQueue)
	return ok
}

const (
	queueName = "bench"
	handlers  = 32 // per worker
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

// connector connects to a running subject.
type connector func(ctx context.Context, addr string) (q benchmark.Queue, closeQueue func() error, err error)

// overRedis starts a subject on its own redis-server.
func overRedis(persist []string, connect connector) func(context.Context) (*target, error) {
	return func(ctx context.Context) (*target, error) {
		s, err := startRedis(persist...)
		if err != nil {
			return nil, err
		}
		return onServer(ctx, s, connect)
	}
}

func onServer(ctx context.Context, s *server, connect connector) (*target, error) {
	q, closeQueue, err := connect(ctx, s.addr)
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return newTarget(benchmark.Local{Queue: q}, s, "", func() error { return errors.Join(closeQueue(), s.stop()) }), nil
}

// Arguments of redis-server for the ways to persist.
var (
	persistNone     = []string{"--appendonly", "no"}
	persistEverysec = []string{"--appendfsync", "everysec"}
	persistAlways   = []string{"--appendfsync", "always"}
)

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
