package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/quota"
)

// subject is a queue with its settings.
type subject struct {
	subjectInfo
	workloads []string     // that it runs
	missing   func() error // returns why it cannot be measured on this machine; nil means that it always can
	// start starts the subject with its own server, a Redis under a command if there is one.
	start func(ctx context.Context, under []string) (*target, error)
	// connect connects to a running subject from another process. It is nil if that is impossible.
	connect connector
	// settled makes the clock of a drain stop when the worker has settled all messages and returned. For other subjects
	// it stops when the last handler has started, because their shutdown takes time of its own.
	settled bool
	// wholeSeconds is set if the subject does not support shorter delays.
	wholeSeconds bool
	// atMost limits the sizes of workloads that would take too long.
	atMost map[string]int
}

// takesPart reports whether the subject runs a workload or has a reason why not.
func (s *subject) takesPart(workload string) bool {
	return slices.Contains(s.workloads, workload) || s.Cannot[workload] != ""
}

// target is a running subject.
type target struct {
	*benchmark.Target
	server *server // nil for an embedded store
	close  func() error
}

// newTarget returns a target. client returns the CPU time of the client, or is nil if that is this process. server is
// nil for an embedded store in dir.
func newTarget(
	l benchmark.Load, client func() (time.Duration, error), s *server, dir string, close func() error,
) *target {
	if client == nil {
		client = func() (used time.Duration, _ error) {
			used, _ = quota.ProcessCPU()
			return used, nil
		}
	}
	t := &target{&benchmark.Target{Load: l, Handlers: handlers}, s, close}
	if s == nil {
		t.Used = func(context.Context) (int64, error) { return benchmark.DirectorySize(dir) }
		t.CPU = func(context.Context) (used, server time.Duration, err error) {
			used, err = client()
			return used, 0, err
		}
		return t
	}
	t.Used = func(ctx context.Context) (int64, error) {
		u, err := s.usage(ctx)
		return u.Memory, err
	}
	t.CPU = func(ctx context.Context) (used, server time.Duration, err error) {
		u, err := s.usage(ctx)
		used, failed := client()
		return used, u.CPU, errors.Join(err, failed)
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
		names = append(names, s.Name)
	}
	return names
}

// findSubject returns a subject by its name, or nil.
func findSubject(name string) *subject {
	if i := slices.Index(subjectNames(), name); i >= 0 {
		return subjects[i]
	}
	return nil
}

// connector connects to a running subject.
type connector func(ctx context.Context, addr string) (q benchmark.Queue, closeQueue func() error, err error)

// overRedis starts a subject on its own redis-server.
func overRedis(persist []string, connect connector) func(context.Context, []string) (*target, error) {
	return func(ctx context.Context, under []string) (*target, error) {
		s, err := startRedis(under, persist...)
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
	stop := func() error { return errors.Join(closeQueue(), s.stop()) }
	return newTarget(benchmark.Local{Queue: q}, nil, s, "", stop), nil
}

// Arguments of redis-server for the ways to persist.
var (
	persistNone     = []string{"--appendonly", "no"}
	persistEverysec = []string{"--appendfsync", "everysec"}
	persistAlways   = []string{"--appendfsync", "always"}
)

var redisInstalled = installed("redis-server", "apt-get install redis-server, or brew install redis")

// versions returns the versions of everything that is measured.
func versions() map[string]string {
	_, redisVersion, _ := strings.Cut(versionOf("redis-server", "--version"), "v=")
	redisVersion, _, _ = strings.Cut(redisVersion, " ")
	all := map[string]string{
		"redis-server": redisVersion, "beanstalkd": versionOf("beanstalkd", "-v"),
		"node":  versionOf("node", "--version"),
		"later": versionOf("git", "describe", "--always", "--tags", "--dirty"),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			name := strings.TrimPrefix(m.Path, "github.com/")
			if strings.Contains("redis/go-redis/v9 cockroachdb/pebble/v2 hibiken/asynq beanstalkd/go-beanstalk", name) {
				all[name] = m.Version
			}
		}
	}
	text, _ := bullmqFiles.ReadFile("bullmq/package.json")
	var p struct{ Dependencies map[string]string }
	json.Unmarshal(text, &p)
	maps.Copy(all, p.Dependencies)
	return all
}
