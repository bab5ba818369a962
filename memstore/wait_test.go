package memstore

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/store"
)

// setClock is a system clock that can be set forward. Its timers run by the time that has passed.
type setClock struct {
	systemClock
	ahead atomic.Int64
}

func (c *setClock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *setClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	return c.systemClock.Alarm(t.Add(-time.Duration(c.ahead.Load())))
}

func TestWaitSeesWithinSecondsThatTheClockWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &setClock{}
		s := New(WithClock(clock))
		defer s.Close()
		m := store.Outgoing{Message: store.Message{ID: "m"}, Due: store.Due{Delay: time.Hour}}
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- s.Wait(t.Context(), "q") }()
		time.Sleep(time.Minute)
		clock.ahead.Store(int64(2 * time.Hour)) // as by NTP, or after the machine was suspended
		set := time.Now()
		err := <-waited
		if after := time.Since(set); err != nil || after > maxSleep {
			t.Errorf("Wait returned %v %v after the message fell due, want nil within %v", err, after, maxSleep)
		}
	})
}

// countingClock is a clock that cannot be set, and counts its alarms.
type countingClock struct{ alarms int }

func (c *countingClock) Now() time.Time { return time.Now() }

func (c *countingClock) Alarm(t time.Time) (<-chan time.Time, func()) {
	c.alarms++
	return time.After(time.Until(t)), func() {}
}

// TestWaitAsksTheClockOnce leaves to the clock how often it must be looked at.
func TestWaitAsksTheClockOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &countingClock{}
		s := New(WithClock(clock))
		defer s.Close()
		begun := time.Now()
		m := store.Outgoing{Message: store.Message{ID: "m"}, Due: store.Due{Delay: 30 * 24 * time.Hour}}
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(t.Context(), "q"); err != nil || time.Since(begun) != 30*24*time.Hour || clock.alarms != 1 {
			t.Errorf("Wait returned %v after %v and %d alarms", err, time.Since(begun), clock.alarms)
		}
	})
}
