package precise

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTimerIsNeverEarly(t *testing.T) {
	var all sync.WaitGroup
	for range 200 {
		all.Add(1)
		d := rand.N(30 * time.Millisecond)
		begin := time.Now()
		AfterFunc(d, func() {
			if took := time.Since(begin); took < d {
				t.Errorf("a timer of %v fired after %v", d, took)
			}
			all.Done()
		})
	}
	all.Wait()
}

func TestTimersFireInOrder(t *testing.T) {
	const n = 20
	fired := make(chan int, n)
	for _, i := range rand.Perm(n) {
		AfterFunc(10*time.Millisecond+time.Duration(i)*100*time.Microsecond, func() { fired <- i })
	}
	var got []int
	for range n {
		got = append(got, <-fired)
	}
	if !slices.IsSorted(got) {
		t.Errorf("fired in the order %v", got)
	}
}

func TestTimerThatIsStoppedDoesNotFire(t *testing.T) {
	start := func() (*Timer, *atomic.Bool) {
		var fired atomic.Bool
		return AfterFunc(time.Millisecond, func() { fired.Store(true) }), &fired
	}
	stopped, fired := start()
	for !stopped.Stop() { // on a slow machine it has fired
		stopped, fired = start()
	}
	if stopped.Stop() {
		t.Error("a stopped timer was stopped again")
	}
	after := make(chan struct{})
	AfterFunc(2*time.Millisecond, func() { close(after) })
	<-after
	if fired.Load() {
		t.Error("a stopped timer fired")
	}
}

func TestTimerIsResetToAnEarlierAndALaterTime(t *testing.T) {
	fired := make(chan time.Time, 10)
	timer := AfterFunc(time.Hour, func() { fired <- time.Now() })
	if !timer.Reset(time.Millisecond) {
		t.Error("the timer was not running")
	}
	<-fired
	if timer.Reset(0) {
		t.Error("a timer that has fired was running")
	}
	<-fired
	begin := time.Now()
	timer.Reset(time.Millisecond)
	if timer.Reset(5 * time.Millisecond) {
		if took := (<-fired).Sub(begin); took < 5*time.Millisecond {
			t.Errorf("reset to 5 ms, it fired after %v", took)
		}
	}
}

func TestTimerOfAVeryLongTimeDoesNotFire(t *testing.T) {
	timer := AfterFunc(1<<63-1, func() { t.Error("a timer of 292 years fired") })
	soon, _ := At(time.Now().Add(time.Millisecond))
	<-soon
	if !timer.Stop() {
		t.Error("the timer was not running")
	}
}

func TestAtFiresWhenTheClockHasReachedTheTime(t *testing.T) {
	for range 20 {
		at := time.Now().Add(2 * time.Millisecond).Truncate(time.Millisecond)
		fired, stop := At(at)
		if got := <-fired; got.Before(at) {
			t.Errorf("it fired %v early", at.Sub(got))
		}
		stop()
	}
}

func TestTimerFollowsTheTimeOfABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		fired, _ := At(begin.Add(time.Hour))
		if got := (<-fired).Sub(begin); got != time.Hour {
			t.Errorf("an hour took %v", got)
		}
	})
}

func TestKeeperHasAGoroutineOnlyWhileTimersAreUsed(t *testing.T) {
	timer := AfterFunc(time.Hour, func() {})
	timer.Stop()
	for running := true; running; runtime.Gosched() {
		keep.mu.Lock()
		running = keep.alarm != nil
		keep.mu.Unlock()
	}
	fired, _ := At(time.Now())
	<-fired // and it starts again
}

func TestTimersAreUsedConcurrently(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				fired := make(chan struct{}, 1)
				timer := AfterFunc(rand.N(200*time.Microsecond), func() { fired <- struct{}{} })
				if rand.IntN(2) == 0 && timer.Stop() {
					timer.Reset(rand.N(100 * time.Microsecond))
				}
				<-fired
			}
		})
	}
	all.Wait()
}

// BenchmarkLateness measures how late a timer of 3.3 ms is, beside one of package time.
func BenchmarkLateness(b *testing.B) {
	const d = 3300 * time.Microsecond
	measure := func(start func(f func())) func(*testing.B) {
		return func(b *testing.B) {
			var late []time.Duration
			for range b.N {
				fired := make(chan time.Time)
				begin := time.Now()
				start(func() { fired <- time.Now() })
				late = append(late, (<-fired).Sub(begin)-d)
			}
			slices.Sort(late)
			b.ReportMetric(float64(late[len(late)/2].Microseconds()), "us-p50-late")
			b.ReportMetric(float64(late[len(late)*99/100].Microseconds()), "us-p99-late")
		}
	}
	b.Run("precise", measure(func(f func()) { AfterFunc(d, f) }))
	b.Run("time", measure(func(f func()) { time.AfterFunc(d, f) }))
}

// BenchmarkStartAndStop measures the cost of a timer that is stopped before it fires.
func BenchmarkStartAndStop(b *testing.B) {
	for b.Loop() {
		AfterFunc(time.Second, func() {}).Stop()
	}
}
