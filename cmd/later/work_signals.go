package main

import (
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// wish is what a signal asks of later work.
type wish uint8

const (
	wishEnd wish = iota // also again, which kills
	wishPause
	wishResume
	wishRestart
)

// workSignals are what later work listens to.
type workSignals struct {
	worker   *worker
	received chan os.Signal
	ended    chan struct{}
	draining bool
	paused   bool
	restart  bool
}

// listen begins to listen; stop ends it.
func (w *worker) listen() *workSignals {
	s := &workSignals{worker: w, received: make(chan os.Signal, 8), ended: make(chan struct{})}
	signal.Notify(s.received, slices.AppendSeq(slices.Clone(stopSignals), maps.Keys(wishes))...)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
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

// stop tells whether the program shall be executed again.
func (s *workSignals) stop() (restart bool) {
	signal.Stop(s.received)
	close(s.received)
	<-s.ended
	return s.restart
}

func (s *workSignals) handle(received syscall.Signal) {
	w := s.worker
	switch wishes[received] {
	case wishPause:
		if !s.draining && !s.paused {
			s.paused = true
			w.later.Pause()
			w.log.Info(fmt.Sprintf("paused: no more messages are claimed; kill -CONT %d goes on", os.Getpid()))
		}
	case wishResume:
		if s.paused {
			s.paused = false
			w.later.Resume()
			w.log.Info("goes on")
		}
	case wishRestart:
		if s.draining {
			return
		}
		if _, err := program(); err != nil {
			w.log.Error("cannot restart, and goes on", "error", err)
			return
		}
		s.draining, s.restart = true, true
		w.log.Info("draining to restart; Ctrl-C to end instead")
		w.stop(nil)
	default:
		switch {
		case s.restart:
			s.restart = false
			w.log.Info("draining to end, not to restart; again to kill")
		case s.draining:
			w.commands.killAll()
			w.log.Warn("killed; messages come again when their leases end")
			os.Exit(exitBy(received))
		default:
			s.draining = true
			w.log.Info("draining; again to kill")
			w.stop(nil)
		}
	}
}
