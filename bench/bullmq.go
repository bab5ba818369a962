package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laterq/later/internal/benchmark"
)

//go:embed bullmq/bench.mjs bullmq/package.json bullmq/package-lock.json
var bullmqFiles embed.FS

func bullmqSubject() *subject {
	return &subject{
		name: "bullmq", title: "BullMQ",
		settings: "on a Redis without persistence; one Node process, a worker with concurrency 32, removeOnComplete, " +
			"batches by addBulk",
		versions: func() map[string]string {
			all := redisVersions()()
			delete(all, "go-redis")
			all["node"] = versionOf("node", "--version")
			all["bullmq"], all["ioredis"] = bullmqPackage("bullmq"), bullmqPackage("ioredis")
			return all
		},
		missing: func() error {
			if err := redisInstalled(); err != nil {
				return err
			}
			_, err := bullmqInstall()
			return err
		},
		start: func(ctx context.Context) (*target, error) {
			s, err := startRedis(persistNone...)
			if err != nil {
				return nil, err
			}
			node, err := startNode(s.addr)
			if err != nil {
				return nil, errors.Join(err, s.stop())
			}
			t := newTarget(&bullmq{node}, s, "", func() error {
				node.stop()
				return s.stop()
			})
			t.CPU = t.cpu(func(context.Context) (time.Duration, error) { return cpuTimeOf(node.cmd.Process.Pid) })
			return t, nil
		},
		cannot: map[string]string{"growth": ""},
		atMost: map[string]int{"herd": 100_000, "idle": 10}, // a Node process takes about 60 MB
	}
}

func bullmqPackage(name string) string {
	text, _ := bullmqFiles.ReadFile("bullmq/package.json")
	var p struct{ Dependencies map[string]string }
	json.Unmarshal(text, &p)
	return p.Dependencies[name]
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

func fromMillis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

func (b *bullmq) Send(ctx context.Context, cfg benchmark.SendConfig) (benchmark.Sent, error) {
	r, err := b.do(ctx, request{
		Op: "send", Messages: cfg.Messages, Senders: cfg.Goroutines, Batch: max(1, cfg.Batch), Size: cfg.Size,
		LimitMS: benchmark.Millis(cfg.Limit),
	}, nil)
	return benchmark.Sent{Messages: r.Messages, Took: fromMillis(r.TookMS)}, err
}

func (b *bullmq) FillLater(ctx context.Context, messages, size int) error {
	_, err := b.do(ctx, request{Op: "fill", Messages: messages, Size: size}, nil)
	return err
}

func (b *bullmq) Drain(ctx context.Context, cfg benchmark.DrainConfig) (benchmark.Drained, error) {
	op := "drain"
	if cfg.Herd {
		op = "herd"
	}
	r, err := b.do(ctx, request{
		Op: op, Messages: cfg.Messages, Size: cfg.Size, Handlers: cfg.Handlers, LimitMS: benchmark.Millis(cfg.Limit),
	}, cfg.OnFilled)
	return benchmark.Drained{
		Messages: cfg.Messages, Handled: r.Handled, Doubles: r.Doubles, Early: r.Early, Left: r.Left,
		Took: fromMillis(r.TookMS), Settled: fromMillis(r.SettledMS),
	}, err
}

func (b *bullmq) Lateness(ctx context.Context, cfg benchmark.LatenessConfig) (benchmark.Delivered, error) {
	r, err := b.do(ctx, request{
		Op: "lateness", Rate: cfg.Rate, ForMS: benchmark.Millis(cfg.For), Longest: benchmark.Millis(cfg.Longest),
		Size: cfg.Size, Handlers: cfg.Handlers, LimitMS: benchmark.Millis(cfg.Limit),
	}, nil)
	samples := make([]time.Duration, len(r.LateMS))
	for i, ms := range r.LateMS {
		samples[i] = fromMillis(ms)
	}
	slices.Sort(samples)
	return benchmark.Delivered{
		Samples: samples, Sent: r.Messages, Took: fromMillis(r.TookMS), Doubles: r.Doubles, Early: r.Early,
		Missing: r.Messages - len(samples),
	}, err
}
