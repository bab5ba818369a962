package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// workOptions are the flags of later work.
type workOptions struct {
	set         *pflag.FlagSet
	command     string
	concurrency int
	lease       time.Duration
	timeout     time.Duration
	drain       time.Duration
	max         int
}

func (m *Main) workCommand() *cobra.Command {
	o := workOptions{lease: 30 * time.Second, drain: 30 * time.Second}
	cmd := &cobra.Command{
		Use:   "work QUEUE... [--exec COMMAND]",
		Short: "Print messages as they fall due, or run a command for each",
		Long: fmt.Sprintf(`Work takes messages from queues as they fall due, until it is stopped. Without --exec it prints each
message's payload as a line (with --json an object with all of the message) and acknowledges it; a message
that could not be printed is given back.

With --exec it runs sh -c COMMAND for each message, up to --concurrency of them at a time. The payload is on
the command's standard input, and its environment has

  LATER_ID, LATER_QUEUE                the message
  LATER_ATTEMPT, LATER_MAX_ATTEMPTS    1 at first, and the attempts it has
  LATER_DUE                            when it fell due, in RFC 3339 with milliseconds
  LATER_HEADER_<NAME>                  a header: its name in capitals, with a _ for what is no letter or digit.
                                       a-b and a_b are both LATER_HEADER_A_B; one of them wins

Its output goes where that of later work goes. How it ends decides:

  exit 0      the message is done
  else        it is tried again after the backoff, which counts as an attempt; the failure is logged
  exit %d     the same, but without a log line (EX_TEMPFAIL of sysexits.h)

The end of the command's standard error is kept as the reason. After the last attempt the message is dead (see
later dead). The backoff grows from a second to ten minutes, with jitter.

An embedded store is open in one process at a time, so while work runs on one, other commands are refused there; on a
Redis any number of workers and commands go together.

The command is one process group. When its time limit has passed, when the message is cancelled, or when its
lease is lost because the store could not be reached, the group gets SIGTERM, and SIGKILL %s later.
On Windows, where --exec needs an sh as that of Git, it is killed with all that it began.

While a command runs its lease is extended; if later work dies, the message comes again after --lease. So a
message can be handled twice: commands should bear it. A store that fails is tried again, forever.

Signals:

  SIGINT (Ctrl-C), SIGTERM,   drain: claim no more, let commands finish for up to --drain, then stop them and
  SIGHUP                      give their messages back, uncounted; a second one kills at once
  SIGTSTP (Ctrl-Z)            claim no more until SIGCONT
  SIGUSR2                     drain, then execute the program again with the same arguments: a deploy. When the
                              program is not there, or cannot be executed, the work goes on

Windows has the first of them only: Ctrl-C, Ctrl-Break, and the end of the console or of the session.`,
			exitTempFail, killGrace),
		Example: `  later work mail
  later work orders refunds --json
  later work mail --exec 'curl -fsS --data-binary @- https://mail.example/send' --concurrency 20 --timeout 10s
  later work jobs --exec ./one-job.sh --max 1`,
		Args:              arguments(1, unlimited),
		RunE:              run(func(ctx context.Context, args []string) error { return m.work(ctx, args, o) }),
		ValidArgsFunction: m.queueNames(true),
	}
	o.set = cmd.Flags()
	flags := o.set
	flags.StringVar(&o.command, "exec", "", "run `COMMAND` with sh for each message")
	flags.IntVar(&o.concurrency, "concurrency", 0, "handle `N` messages at a time (default: 1, which keeps the order; with --exec one a CPU)")
	durationFlag(flags, &o.lease, "lease", "when this process dies its messages come again after so long")
	durationFlag(flags, &o.timeout, "timeout", "time limit for one message (default: none); a message's own comes before it")
	durationFlag(flags, &o.drain, "drain", "how long commands may go on after a stop")
	flags.IntVar(&o.max, "max", 0, "stop after `N` messages; 0 for no limit, the default")
	return cmd
}

// worker is later work at work.
type worker struct {
	main     *Main
	log      *slog.Logger
	commands commands
	later    *later.Worker
	stop     context.CancelCauseFunc // begins the drain
}

// work works until it is stopped. To restart is to be executed again; when that fails it works on.
func (m *Main) work(ctx context.Context, queues []string, o workOptions) error {
	if err := o.check(queues); err != nil {
		return err
	}
	for {
		again, err := m.workOnce(ctx, queues, o)
		if err != nil || !again {
			return err
		}
		// Everything is drained and closed by now.
		m.logger().Error("cannot restart, and goes on", "error", restart(m.Env))
	}
}

// workOnce works until it is stopped, and tells whether that was to restart.
func (m *Main) workOnce(ctx context.Context, queues []string, o workOptions) (again bool, err error) {
	c, err := m.open(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := &worker{main: m, log: m.logger(), stop: stop}
	w.later = later.NewWorker(c, w.config(o))
	handler := w.print
	if o.command != "" {
		handler = w.execute(o.command)
	}
	for _, queue := range queues {
		w.later.Handle(queue, handler)
	}
	signals := w.listen()
	w.log.Info("working on "+strings.Join(queues, ", "), "store", m.shownURL(), "concurrency", o.concurrency)
	err = w.later.Run(ctx)
	again = signals.stop()
	if err != nil {
		return false, err
	}
	if cause := context.Cause(ctx); cause != context.Canceled {
		return false, cause // the output is closed or full
	}
	w.log.Info("drained")
	return again, nil
}

// check refuses what the worker would not, or less clearly, and fills in defaults.
func (o *workOptions) check(queues []string) error {
	for i, queue := range queues {
		if err := store.CheckQueue(queue); err != nil {
			return err
		}
		if slices.Contains(queues[:i], queue) {
			return store.Invalid("queue %q is given twice: give it once", queue)
		}
	}
	if o.set.Changed("exec") && strings.TrimSpace(o.command) == "" {
		return store.Invalid("--exec is empty: give a command, or leave it out to print")
	}
	if o.set.Changed("concurrency") && o.concurrency < 1 {
		return store.Invalid("--concurrency is %d: give 1 or more, or leave it out", o.concurrency)
	}
	if o.max < 0 {
		return store.Invalid("--max is %d: give 1 or more, or 0 for no limit", o.max)
	}
	if store.CheckLease(o.lease) != nil {
		return store.Invalid("--lease is %s: give %s to %s", formatDuration(o.lease),
			formatDuration(store.MinLease), formatDuration(store.MaxLease))
	}
	if o.command != "" {
		if _, err := exec.LookPath("sh"); err != nil {
			return store.Invalid("--exec needs sh: %v", err)
		}
	}
	if o.concurrency == 0 {
		o.concurrency = 1
		if o.command != "" {
			o.concurrency = runtime.NumCPU()
		}
	}
	if o.max > 0 {
		o.concurrency = min(o.concurrency, o.max)
	}
	return nil
}

func (w *worker) config(o workOptions) later.WorkerConfig {
	config := later.WorkerConfig{
		Concurrency:     o.concurrency,
		Lease:           o.lease,
		Timeout:         o.timeout,
		ShutdownTimeout: o.drain,
		Logger:          w.log,
		OnDead: func(_ context.Context, info *later.Info) {
			w.log.Warn("message is dead", "id", info.ID, "reason", info.DeadReason, "attempts", info.Attempts)
		},
	}
	if o.drain == 0 {
		config.ShutdownTimeout = -1
	}
	if o.max > 0 {
		config.MaxPrefetch = -1
		config.Middleware = append(config.Middleware, w.limit(int64(o.max)))
	}
	return config
}

// limit lets so many messages through, then stops the worker.
func (w *worker) limit(n int64) func(later.HandlerFunc) later.HandlerFunc {
	var begun, ended atomic.Int64
	return func(next later.HandlerFunc) later.HandlerFunc {
		return func(ctx context.Context, msg *later.Message) error {
			switch i := begun.Add(1); {
			case i > n:
				return later.Snooze(0) // claimed before the pause: it is for others
			case i == n:
				w.later.Pause()
			}
			defer func() {
				if ended.Add(1) == n {
					w.stop(nil)
				}
			}()
			return next(ctx, msg)
		}
	}
}

// deliveryJSON is a message as it was delivered.
type deliveryJSON struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
	payloadJSON
	Headers     map[string]string `json:"headers,omitempty"`
	Due         string            `json:"due"`
	LatenessMS  float64           `json:"lateness_ms"`
	Attempt     int               `json:"attempt"`
	MaxAttempts int               `json:"max_attempts"`
	SentAt      string            `json:"sent_at,omitempty"`
}

// print is the handler without --exec.
func (w *worker) print(_ context.Context, msg *later.Message) (err error) {
	switch {
	case w.main.json:
		err = w.main.printJSON(deliveryJSON{
			ID:          msg.ID,
			Queue:       msg.Queue,
			payloadJSON: newPayloadJSON(msg.Payload),
			Headers:     msg.Headers,
			Due:         timeJSON(msg.Due),
			LatenessMS:  millisJSON(msg.Lateness),
			Attempt:     msg.Attempt,
			MaxAttempts: msg.MaxAttempts,
			SentAt:      timeJSON(msg.SentAt),
		})
	case isTerminal(w.main.Stdout):
		err = w.main.print("%s\n", printable(string(msg.Payload)))
	default:
		err = w.main.print("%s\n", msg.Payload)
	}
	if err == nil {
		return nil
	}
	w.stop(err)
	if !errors.Is(err, errOutputClosed) {
		w.log.Error("message cannot be printed and is given back", "id", msg.ID, "error", err)
	}
	return later.Snooze(0) // not its fault
}
