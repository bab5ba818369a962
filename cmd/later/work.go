package main

import (
	"cmp"
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
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/view"
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
	name        string
}

func (m *Main) workCommand() *cobra.Command {
	o := workOptions{lease: 30 * time.Second, drain: 30 * time.Second}
	cmd := m.command("work QUEUE... [--exec COMMAND]", "Print messages as they fall due, or run a command for each",
		fmt.Sprintf(`Work takes messages from queues as they fall due, until it is stopped. Without --exec it prints
each message's payload on a line, or the whole message as an object with --json, and acks it. A message that cannot be
printed is released.

With --exec it runs sh -c COMMAND for each message, at most --concurrency at a time. The command reads the payload from
its standard input. Its environment has

  LATER_ID, LATER_QUEUE                the message
  LATER_ATTEMPT, LATER_MAX_ATTEMPTS    number of this attempt, starting at 1, and the maximum
  LATER_DUE                            when the message fell due, in RFC 3339 with milliseconds
  %s
                                       options of the message, if it was sent with them
  LATER_HEADER_<NAME>                  a header: its name in capitals, with _ for anything but letters and digits.
                                       a-b and a_b are both LATER_HEADER_A_B; one of them wins

and the worker's own, without LATER_TOKEN, and without a LATER_STORE that has a password: senders of messages must not
get at the rights of the worker. Give it secrets of its own if it needs some.

The command writes to the standard output and standard error of later work. Its exit code decides:

  exit 0      the message is acked
  other       the attempt failed: it is logged, and the message is retried after the backoff
  exit %d     the same, but without a log line (EX_TEMPFAIL of sysexits.h)

The end of the command's standard error is kept as the last error. After its last attempt the message is dead (see
later dead). The backoff grows from a second to ten minutes, with jitter.

Work also distributes the messages of topics that its queues are subscribed to (see later topic). It warns of queues
that do not exist yet, and waits for their first messages.

Any number of workers and other commands can use the store at once.

The command runs in its own process group. The group gets SIGTERM, and SIGKILL %s later, when the time limit has passed,
when the message is cancelled, or when the lease is lost because the store could not be reached. On Windows, where
--exec needs an sh such as that of Git, the command is killed together with its child processes.

Work extends the lease while a command runs. If later work dies, the message is delivered again after --lease. So a
message can be handled twice: make commands idempotent. If the store fails, work retries forever.

Signals:

  SIGINT (Ctrl-C), SIGTERM,   drain: claim no more, let commands finish for up to --drain, then stop them and release
  SIGHUP                      their messages, which does not count as an attempt; a second signal kills at once, but
                              not a second SIGTERM within 2 s, which timeout(1) sends
  SIGTSTP (Ctrl-Z)            claim no more until SIGCONT
  SIGUSR2                     drain, then execute the program again with the same arguments, to deploy a new version.
                              If the program is missing or cannot be executed, the work continues

Windows supports only the first: Ctrl-C, Ctrl-Break, and the end of the console or of the session. Later workers drains,
pauses, resumes and restarts from any machine.

As a service of systemd with Type=notify-reload, work reports when it is ready, drains and restarts when it is reloaded
(SIGHUP), and feeds the watchdog while it is not stuck; deploy/systemd/later-work.service is an example.`,
			strings.Join(optionVariables(), ", "), exitTempFail, killGrace),
		`  later work mail
  later work orders refunds --json
  later work mail --exec 'curl -fsS --data-binary @- https://mail.example/send' --concurrency 20 --timeout 10s
  later work jobs --exec ./one-job.sh --max 1`,
		run(func(ctx context.Context, args []string) error { return m.work(ctx, args, o) }))
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if n := cmd.ArgsLenAtDash(); n >= 0 && n < len(args) {
			return fmt.Errorf("%q after -- is no queue: give a command as one argument of --exec", args[n])
		}
		return arguments(1, unlimited)(cmd, args)
	}
	o.set = cmd.Flags()
	flags := o.set
	flags.StringVar(&o.command, "exec", "", "run `COMMAND` with sh for each message")
	flags.IntVar(&o.concurrency, "concurrency", 0,
		"handle `N` messages at a time (default: 1, which keeps the order; with --exec one per CPU)")
	durationFlag(flags, &o.lease, "lease", "if this process dies, its messages are delivered again after this time")
	durationFlag(flags, &o.timeout, "timeout",
		"time limit per message (default: none); a message's own limit takes precedence")
	durationFlag(flags, &o.drain, "drain", "how long commands may continue after a stop")
	nameFlag(flags, &o.name)
	flags.IntVar(&o.max, "max", 0, "stop after `N` messages; 0 for no limit, the default")
	return cmd
}

// nameFlag adds --name of later work and later forward.
func nameFlag(flags *pflag.FlagSet, name *string) {
	flags.StringVar(name, "name", "", "`NAME` in later workers (default: this machine's name and the process id)")
}

// worker runs later work and later forward.
type worker struct {
	main     *Main
	log      *slog.Logger
	commands commands
	later    *later.Worker
	signals  *workSignals
	systemd  *systemd
	working  string                  // its work, for people
	stop     context.CancelCauseFunc // starts the drain
}

func (m *Main) newWorker(working string, stop context.CancelCauseFunc) *worker {
	log := m.logger()
	return &worker{main: m, log: log, systemd: newSystemd(log), working: working, stop: stop}
}

// onCommand is the OnCommand of the worker's configuration.
func (w *worker) onCommand(do later.WorkerCommand) error { return w.signals.command(do) }

// work runs until it is stopped. If a restart fails, it continues.
func (m *Main) work(ctx context.Context, queues []string, o workOptions) error {
	if err := o.check(queues); err != nil {
		return err
	}
	defer m.collectSeldom()()
	return m.restartable(func() (bool, error) { return m.workOnce(ctx, queues, o) })
}

// restartable calls once, which runs until it is stopped and reports whether that was for a restart.
func (m *Main) restartable(once func() (again bool, err error)) error {
	for {
		again, err := once()
		if err != nil || !again {
			return err
		}
		// Everything is drained and closed by now.
		m.logger().Error("cannot restart, continuing", "error", restart(m.Env))
	}
}

// workOnce runs until it is stopped. It reports whether that was for a restart.
func (m *Main) workOnce(ctx context.Context, queues []string, o workOptions) (again bool, err error) {
	c, err := m.open(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := m.newWorker("working on "+strings.Join(queues, ", "), stop)
	w.later = later.NewWorker(c, w.config(o))
	handler := w.print
	if o.command != "" {
		handler = w.execute(o.command)
	}
	for _, queue := range queues {
		w.later.Handle(queue, handler)
	}
	w.signals = w.listen()
	w.log.Info(w.working, "store", m.shownURL(), "concurrency", o.concurrency)
	logAbsentQueues(ctx, c, w.log, queues)
	return w.run(ctx)
}

// run runs until it is stopped. It reports whether that was for a restart.
func (w *worker) run(ctx context.Context) (again bool, err error) {
	watching, end := context.WithCancel(context.WithoutCancel(ctx)) // also during the drain
	watched := w.systemd.watch(watching, w.later, w.working)
	err = w.later.Run(ctx)
	end()
	watched()
	again = w.signals.stop()
	if err != nil && !errors.Is(err, later.ErrRestart) {
		return false, err
	}
	if cause := context.Cause(ctx); cause != nil && cause != context.Canceled {
		return false, cause // the output is closed or full
	}
	w.log.Info("drained")
	return again, nil
}

// check rejects options that the worker would accept, or reject less clearly, and sets defaults.
func (o *workOptions) check(queues []string) error {
	for i, queue := range queues {
		if err := store.CheckQueue(queue); err != nil {
			return err
		}
		if slices.Contains(queues[:i], queue) {
			return store.Invalid("queue %q is given twice: name it once", queue)
		}
	}
	switch {
	case o.set.Changed("exec") && strings.TrimSpace(o.command) == "":
		return store.Invalid("--exec is empty: give a command, or omit it to print")
	case o.set.Changed("concurrency") && o.concurrency < 1:
		return store.Invalid("--concurrency is %d: must be 1 or more, or omitted", o.concurrency)
	case o.max < 0:
		return store.Invalid("--max is %d: must be 1 or more, or 0 for no limit", o.max)
	case store.CheckLease(o.lease) != nil:
		return store.Invalid("--lease is %s: must be %s to %s", durations.Format(o.lease),
			durations.Format(store.MinLease), durations.Format(store.MaxLease))
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
		ShutdownTimeout: cmp.Or(o.drain, -1),
		Logger:          w.log,
		Name:            o.name,
		OnCommand:       w.onCommand,
	}
	if o.max > 0 {
		config.MaxPrefetch = -1
		config.Middleware = append(config.Middleware, w.limit(int64(o.max)))
	}
	return config
}

// limit handles n messages, then stops the worker.
func (w *worker) limit(n int64) func(later.HandlerFunc) later.HandlerFunc {
	var begun, ended atomic.Int64
	return func(next later.HandlerFunc) later.HandlerFunc {
		return func(ctx context.Context, msg *later.Message) error {
			switch i := begun.Add(1); {
			case i > n:
				w.later.Pause()        // again, if later workers resume ended it
				return later.Snooze(0) // claimed before the pause
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

// print is the handler without --exec.
func (w *worker) print(_ context.Context, msg *later.Message) (err error) {
	switch {
	case w.main.json:
		err = w.main.printJSON(view.Delivery(msg))
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
		w.log.Error("message cannot be printed and is released", "id", msg.ID, "error", err)
	}
	return later.Snooze(0) // not a failed attempt
}
