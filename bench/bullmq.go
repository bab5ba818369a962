package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/benchmark"
)

//go:embed bullmq/bench.mjs bullmq/package.json bullmq/package-lock.json
var bullmqFiles embed.FS

func bullmqSubject() *subject {
	return &subject{
		subjectInfo: subjectInfo{
			Name: "bullmq", Title: "BullMQ", Settings: "on a Redis without persistence; one Node process, a " +
				"worker with concurrency 32, removeOnComplete, batches by addBulk",
		},
		workloads: []string{"send", "drain", "lateness", "herd", "memory", "idle", "limit"},
		missing: func() error {
			if err := redisInstalled(); err != nil {
				return err
			}
			_, err := bullmqInstall()
			return err
		},
		start: func(ctx context.Context, _ []string) (*target, error) {
			s, err := startRedis(nil, persistNone...)
			if err != nil {
				return nil, err
			}
			node, err := startNode(s.addr)
			if err != nil {
				return nil, errors.Join(err, s.stop())
			}
			cpu := func() (time.Duration, error) {
				u, err := usageOf(node.cmd.Process.Pid)
				return u.CPU, err
			}
			return newTarget(&bullmq{node}, cpu, s, "", func() error {
				node.stop()
				return s.stop()
			}), nil
		},
		atMost: map[string]int{"herd": 100_000, "idle": 10}, // a Node process takes about 60 MB
	}
}

// bullmqInstall copies the script to a temporary directory and installs its packages there, once. cleanBullMQ removes
// the directory.
var bullmqInstall = sync.OnceValues(func() (dir string, err error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", fmt.Errorf("%s is not installed (https://nodejs.org)", program)
		}
	}
	if dir, err = os.MkdirTemp("", "later-bench-bullmq-"); err != nil {
		return "", err
	}
	bullmqDir = dir
	files, err := fs.Sub(bullmqFiles, "bullmq")
	if err == nil {
		err = os.CopyFS(dir, files)
	}
	if err != nil {
		return "", err
	}
	npm := exec.Command("npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci failed (%w): %s", err, npmError(out))
	}
	return dir, nil
})

var bullmqDir string

func cleanBullMQ() error {
	if bullmqDir == "" {
		return nil
	}
	return os.RemoveAll(bullmqDir)
}

// npmError returns the first line that explains the error.
func npmError(out []byte) string {
	for line := range strings.Lines(string(out)) {
		text, ok := strings.CutPrefix(line, "npm error")
		if text = strings.TrimSpace(text); ok && text != "" {
			return text
		}
	}
	return strings.TrimSpace(string(out))
}

func startNode(addr string) (*reporter, error) {
	dir, err := bullmqInstall()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("node", filepath.Join(dir, "bench.mjs"), addr)
	cmd.Dir = dir
	return startReporter(cmd)
}

// bullmq runs the workloads in a Node process.
type bullmq struct{ *reporter }

func (b *bullmq) Send(ctx context.Context, cfg benchmark.SendConfig) (s benchmark.Sent, err error) {
	err = b.do(ctx, "send", cfg, &s, nil)
	return s, err
}

func (b *bullmq) FillLater(ctx context.Context, messages, size int) error {
	return b.do(ctx, "fill", benchmark.SendConfig{Messages: messages, Size: size}, nil, nil)
}

func (b *bullmq) Drain(ctx context.Context, cfg benchmark.DrainConfig) (d benchmark.Drained, err error) {
	err = b.do(ctx, "drain", cfg, &d, cfg.OnFilled)
	return d, err
}

func (b *bullmq) Lateness(ctx context.Context, cfg benchmark.LatenessConfig) (d benchmark.Delivered, err error) {
	err = b.do(ctx, "lateness", cfg, &d, nil)
	return d, err
}
