package main

import (
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// signalAction is what later work does on a signal.
type signalAction uint8

const (
	actionDrain signalAction = iota // kill on the second signal
	actionPause
	actionResume
	actionRestart
)

// workSignals handles the signals of later work.
type workSignals struct {
	worker   *worker
	received chan os.Signal
	ended    chan struct{}
	draining bool
	paused   bool
	restart  bool
}

// listen starts to handle signals, until stop is called.
func (w *worker) listen() *workSignals {
	s := &workSignals{worker: w, received: make(chan os.Signal, 8), ended: make(chan struct{})}
	signal.Notify(s.received, slices.AppendSeq(slices.Clone(stopSignals), maps.Keys(signalActions))...)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(s.received, syscall.SIGHUP)
	}
	go func() {
		defer close(s.ended)
		for received := range s.received {
			s.handle(received.(syscall.Signal))
		}
	}()
	return s
}

// stop stops handling signals. It reports whether a restart was requested.
func (s *workSignals) stop() (restart bool) {
	signal.Stop(s.received)
	close(s.received)
	<-s.ended
	return s.restart
}

func (s *workSignals) handle(received syscall.Signal) {
	w := s.worker
	switch signalActions[received] {
	case actionPause:
		if !s.draining && !s.paused {
			s.paused = true
			w.later.Pause()
			w.log.Info(fmt.Sprintf("paused, claiming no more messages; kill -CONT %d resumes", os.Getpid()))
		}
	case actionResume:
		if s.paused {
			s.paused = false
			w.later.Resume()
			w.log.Info("resumed")
		}
	case actionRestart:
		if s.draining {
			return
		}
		if _, err := program(); err != nil {
			w.log.Error("cannot restart, continuing", "error", err)
			return
		}
		s.draining, s.restart = true, true
		w.log.Info("draining to restart; press Ctrl-C to end instead")
		w.stop(nil)
	default:
		switch {
		case s.restart:
			s.restart = false
			w.log.Info("draining to end instead; repeat to kill")
		case s.draining:
			w.commands.killAll()
			w.log.Warn("killed; messages are delivered again when their leases expire")
			os.Exit(exitBy(received))
		default:
			s.draining = true
			w.log.Info("draining; repeat to kill")
			w.stop(nil)
		}
	}
}
