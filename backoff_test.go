package later

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/laterq/later/internal/outcome"
	"github.com/laterq/later/store"
)

func TestBackoffConstant(t *testing.T) {
	b := ConstantBackoff(time.Minute)
	for attempt := range 100 {
		if d := b(attempt+1, nil); d != time.Minute {
			t.Fatalf("attempt %d: %v", attempt+1, d)
		}
	}
}

func TestBackoffGeometricGrowsOrShrinks(t *testing.T) {
	for _, c := range []struct {
		factor  float64
		attempt int
		want    time.Duration
	}{
		{2, 1, time.Second}, {2, 2, 2 * time.Second}, {2, 4, 8 * time.Second}, {2, 5, 10 * time.Second},
		{2, 100_000, 10 * time.Second}, {2, 0, time.Second},
		{0.5, 1, time.Second}, {0.5, 3, time.Second / 4}, {0.5, 100_000, 0}, {1, 7, time.Second},
	} {
		b, err := GeometricBackoff(time.Second, c.factor, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if d := b(c.attempt, nil); d != c.want {
			t.Errorf("factor %v, attempt %d: %v, want %v", c.factor, c.attempt, d, c.want)
		}
	}
}

func TestBackoffExponentialHasFullJitter(t *testing.T) {
	b := ExponentialBackoff(time.Second, time.Minute)
	for attempt, ceiling := range map[int]time.Duration{
		1: time.Second, 3: 4 * time.Second, 7: time.Minute, 65535: time.Minute,
	} {
		low, high := ceiling, time.Duration(0)
		for range 1000 {
			d := b(attempt, nil)
			if d < 0 || d > ceiling {
				t.Fatalf("attempt %d: delay is %v; want 0 to %v", attempt, d, ceiling)
			}
			low, high = min(low, d), max(high, d)
		}
		if low > ceiling/10 || high < ceiling*9/10 {
			t.Errorf("attempt %d: delays are %v to %v; want them spread over 0 to %v", attempt, low, high, ceiling)
		}
	}
	if d := ExponentialBackoff(0, 0)(5, nil); d != 0 {
		t.Errorf("zero backoff: %v", d)
	}
}

func TestBackoffBelowZeroMeansAtOnce(t *testing.T) {
	geometric, err := GeometricBackoff(-1, 2, -1)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range []Backoff{geometric, ConstantBackoff(-1), ExponentialBackoff(-1, 1), ExponentialBackoff(1, -1)} {
		if d := b(1, nil); d > 0 {
			t.Errorf("case %d: %v", i, d)
		}
	}
}

func TestBackoffGeometricRefusesFactors(t *testing.T) {
	for _, factor := range []float64{0, -2, math.NaN(), math.Inf(1)} {
		if b, err := GeometricBackoff(1, factor, 1); b != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("factor %v: %v", factor, err)
		}
	}
}

func TestWorkerFindsWrappedHandlerResults(t *testing.T) {
	fail := errors.New("fail")
	backoff := func(attempt int, err error) time.Duration {
		if attempt != 3 || !errors.Is(err, fail) {
			t.Errorf("backoff called with attempt %d, %v", attempt, err)
		}
		return time.Minute
	}
	for name, c := range map[string]struct {
		err  error
		want outcome.Result
	}{
		"nil":   {nil, outcome.Result{Action: store.Ack}},
		"error": {fail, outcome.Result{Action: store.Nack, Delay: time.Minute, Reason: "fail"}},
		"retry": {RetryIn(time.Second), outcome.Result{Action: store.Nack, Delay: time.Second, Reason: "retry in 1s"}},
		"joined": {errors.Join(fail, RetryIn(time.Second)),
			outcome.Result{Action: store.Nack, Delay: time.Second, Reason: "fail\nretry in 1s"}},
		"past":    {RetryIn(-time.Second), outcome.Result{Action: store.Nack, Reason: "retry in -1s"}},
		"too far": {Snooze(store.MaxDelay * 2), outcome.Result{Action: store.Snooze, Delay: store.MaxDelay}},
		"snooze": {fmt.Errorf("busy: %w", Snooze(time.Second)),
			outcome.Result{Action: store.Snooze, Delay: time.Second}},
		"bury":                  {Bury(fail), outcome.Result{Action: store.Bury, Reason: "fail"}},
		"bury over give back":   {Bury(GiveBack(fail)), outcome.Result{Action: store.Bury, Reason: "fail"}},
		"snooze over give back": {errors.Join(GiveBack(fail), Snooze(1)), outcome.Result{Action: store.Snooze, Delay: 1}},
		"retry over give back": {errors.Join(GiveBack(fail), RetryIn(1)),
			outcome.Result{Action: store.Nack, Delay: 1, Reason: "fail\nretry in 1ns"}},
		"bury nil": {Bury(nil), outcome.Result{Action: store.Bury, Reason: "buried"}},
		"bury first": {errors.Join(RetryIn(1), Snooze(1), Bury(fail)),
			outcome.Result{Action: store.Bury, Reason: "retry in 1ns\nsnooze for 1ns\nfail"}},
		"then snooze": {errors.Join(RetryIn(1), Snooze(2)), outcome.Result{Action: store.Snooze, Delay: 2}},
	} {
		misfits := outcome.NewMisfits("q", time.Hour, slog.Default())
		if got := outcome.ResultOf(outcome.Attempt{Number: 3}, c.err, backoff, misfits); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if !errors.Is(Bury(fail), fail) {
		t.Error("Bury hides its error")
	}
}
