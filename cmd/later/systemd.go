package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/laterq/later"
)

// systemd reports the state of later work, later forward and later serve to systemd, as described in sd_notify(3), if
// it started the program as a service of Type=notify or notify-reload. Otherwise it does nothing.
type systemd struct {
	log    *slog.Logger
	active bool
	failed sync.Once // the first failure is logged
}

func newSystemd(log *slog.Logger) *systemd {
	return &systemd{log: log, active: os.Getenv("NOTIFY_SOCKET") != ""}
}

// tell sends lines such as "READY=1".
func (s *systemd) tell(lines ...string) {
	if !s.active {
		return
	}
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		s.failed.Do(func() { s.log.Warn("systemd cannot be told about this service", "error", err) })
	}
}

// status is shown by systemctl status.
func status(text string) string { return "STATUS=" + text }

// reloading begins a reload, which reloaded or READY=1 of a new program ends.
func (s *systemd) reloading(doing string) {
	s.tell(daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()), status(doing))
}

// reloaded ends a reload in this program: with its present work, or with the failure, such as "cannot restart", and the
// cause.
func (s *systemd) reloaded(now, failed string, err error) {
	if err != nil {
		now = failed + ": " + preview(err.Error(), 200)
	}
	s.tell(daemon.SdNotifyReady, status(now))
}

// watch reports when the worker is ready and, if systemd wants a watchdog, that it is alive, until ctx ends. The
// returned function waits for the end.
func (s *systemd) watch(ctx context.Context, w *later.Worker, working string) (wait func()) {
	if !s.active {
		return func() {}
	}
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("systemd's watchdog is not used", "error", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.keep(ctx, w, working, every/2)
	}()
	return func() { <-ended }
}

// keep is watch with the interval of the watchdog, 0 for none.
func (s *systemd) keep(ctx context.Context, w *later.Worker, working string, every time.Duration) {
	var beat <-chan time.Time
	if every > 0 {
		tick := time.NewTicker(every)
		defer tick.Stop()
		beat = tick.C
	}
	claimed, stuck := w.Claimed(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-claimed:
			claimed = nil
			s.tell(daemon.SdNotifyReady, status(working))
		case <-beat:
			err := w.Alive()
			if err == nil {
				s.tell(daemon.SdNotifyWatchdog)
			} else if !stuck {
				s.log.Error("the worker is stuck, so systemd's watchdog will end this process", "error", err)
			}
			stuck = err != nil
		}
	}
}
