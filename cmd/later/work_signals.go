package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/laterq/later"
)

// signalAction is the action of later work and later forward on a signal.
type signalAction uint8

const (
	actionDrain signalAction = iota // kill on the second signal, unless it is a copy
	actionPause
	actionResume
	actionRestart
)

// restarting is the status during a drain that ends with a restart.
const restarting = "draining to restart"

// workSignals handles the signals of later work and later forward, and the commands of later workers.
type workSignals struct {
	worker   *worker
	end      func()
	requests stopRequests

	mu       sync.Mutex // guards the fields below
	draining bool
	restart  bool
}

// listen starts to handle signals, until stop is called.
func (w *worker) listen() *workSignals {
	s := &workSignals{worker: w}
	signals := slices.AppendSeq(slices.Clone(stopSignals), maps.Keys(signalActions))
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	s.end = handleSignals(s.handle, signals...)
	return s
}

// stop stops handling signals. It reports whether a restart was requested.
func (s *workSignals) stop() (restart bool) {
	s.requests.end()
	s.end()
	return s.restart
}

// actionOf returns the action on a signal. Systemd sends SIGHUP to reload a service.
func (s *workSignals) actionOf(received syscall.Signal) signalAction {
	if received == syscall.SIGHUP && s.worker.systemd.active {
		return actionRestart
	}
	return signalActions[received]
}

func (s *workSignals) handle(received syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.worker
	switch s.actionOf(received) {
	case actionPause:
		if !s.draining && !w.later.Paused() {
			w.later.Pause()
			w.log.Info(fmt.Sprintf("paused, claiming no more messages; kill -CONT %d resumes", os.Getpid()))
			w.systemd.tell(status("paused"))
		}
	case actionResume:
		if !s.draining && w.later.Paused() {
			w.later.Resume()
			w.log.Info("resumed")
			w.systemd.tell(status(w.working))
		}
	case actionRestart:
		if s.draining {
			return
		}
		if err := s.beginRestart(); err != nil {
			w.log.Error("cannot restart, continuing", "error", err)
			w.systemd.reloading(restarting)
			w.systemd.reloaded("", "cannot restart", err)
			return
		}
		w.stop(nil)
	default:
		switch {
		case s.requests.isCopy(received):
			w.log.Info("ignoring a second SIGTERM, which may be a copy; repeat to kill")
		case s.draining && !s.restart:
			w.commands.killAll()
			w.log.Warn("killed; messages are delivered again when their leases expire")
			os.Exit(exitBy(received))
		default:
			s.beginDrain()
			w.stop(nil)
		}
	}
}

// command is called before the worker obeys a command of later workers.
func (s *workSignals) command(do later.WorkerCommand) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.worker
	switch do {
	case later.CommandPause:
		w.systemd.tell(status("paused"))
	case later.CommandResume:
		w.systemd.tell(status(w.working))
	case later.CommandRestart:
		if s.draining && !s.restart {
			return errors.New("it is draining to end")
		}
		if !s.draining {
			return s.beginRestart()
		}
	case later.CommandDrain:
		if s.restart || !s.draining {
			s.beginDrain()
		}
	}
	return nil
}

// beginRestart returns an error if there is no program to execute. The lock is held.
func (s *workSignals) beginRestart() error {
	if _, err := program(); err != nil {
		return err
	}
	s.draining, s.restart = true, true
	s.worker.log.Info("draining to restart; press Ctrl-C to end instead")
	s.worker.systemd.reloading(restarting)
	return nil
}

// beginDrain drains to end, also in place of a restart. The lock is held.
func (s *workSignals) beginDrain() {
	instead := ""
	if s.restart {
		instead = " to end instead"
	}
	s.draining, s.restart = true, false
	s.worker.log.Info("draining" + instead + "; repeat to kill")
	s.worker.systemd.tell(daemon.SdNotifyStopping, status("draining"))
}
