package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestFlowsThatAreNotAllowedAreRefusedWithTheirFieldAndLimit(t *testing.T) {
	rate := func(n int, per time.Duration, burst int) store.Flow {
		return store.Flow{Rate: store.Rate{N: n, Per: per, Burst: burst}}
	}
	for _, c := range []struct {
		flow        store.Flow
		field, want string
	}{
		{store.Flow{Concurrency: -1}, "concurrency", "concurrency is -1: must be 1 to 1000000, or 0 for no limit"},
		{store.Flow{Concurrency: 1_000_001}, "concurrency",
			"concurrency is 1000001: must be 1 to 1000000, or 0 for no limit"},
		{rate(0, time.Second, 0), "rate.n",
			"rate is 0 messages: must be 1 to 1000000, or have no period and burst for no limit"},
		{rate(0, 0, 1), "rate.n",
			"rate is 0 messages: must be 1 to 1000000, or have no period and burst for no limit"},
		{rate(-1, time.Second, 0), "rate.n",
			"rate is -1 messages: must be 1 to 1000000, or have no period and burst for no limit"},
		{rate(1_000_001, time.Second, 0), "rate.n",
			"rate is 1000001 messages: must be 1 to 1000000, or have no period and burst for no limit"},
		{rate(10, 0, 0), "rate.per", "period of the rate is 0s: must be 10µs, which is 1µs a message, to 8784h0m0s"},
		{rate(10, 9*time.Microsecond, 0), "rate.per",
			"period of the rate is 9µs: must be 10µs, which is 1µs a message, to 8784h0m0s"},
		{rate(1, store.MaxPeriod+time.Microsecond, 0), "rate.per",
			"period of the rate is 8784h0m0.000001s: must be 1µs, which is 1µs a message, to 8784h0m0s"},
		{rate(1, 1500*time.Nanosecond, 0), "rate.per", "period of the rate is 1.5µs: must be whole microseconds"},
		{rate(1, time.Second, -1), "rate.burst", "burst of the rate is -1: must be 1 to 1000000, or 0 for 1"},
		{rate(1, time.Second, 1_000_001), "rate.burst",
			"burst of the rate is 1000001: must be 1 to 1000000, or 0 for 1"},
		{rate(1, 24*time.Hour, 367), "rate.burst",
			"burst of the rate is 367: must be 1 to 366, which gather in 8784h0m0s"},
	} {
		err := c.flow.Check()
		if !errors.Is(err, store.ErrInvalid) || err.Error() != c.want || store.FieldOf(err) != c.field {
			t.Errorf("%+v: %v about %q, want %s about %q", c.flow, err, store.FieldOf(err), c.want, c.field)
		}
		if other := store.CheckFlow("q", c.flow); other == nil || other.Error() != c.want {
			t.Errorf("CheckFlow of %+v: %v", c.flow, other)
		}
	}
	for _, queue := range []string{"topic:", "topic:news", "topic-history:news", "schedules:", "logouts:", "worker:1"} {
		want := `queue "` + queue + `" is one of Later's own, which have no limits: give another queue`
		err := store.CheckFlow(queue, store.Flow{})
		if !errors.Is(err, store.ErrInvalid) || err.Error() != want || store.FieldOf(err) != "queue" {
			t.Errorf("%s: %v, want %s", queue, err, want)
		}
	}
}

func TestFlowsAreAllowedUpToTheirLimits(t *testing.T) {
	for _, f := range []store.Flow{
		{}, {Concurrency: 1}, {Concurrency: store.MaxConcurrency},
		{Rate: store.Rate{N: 1, Per: time.Microsecond}}, {Rate: store.Rate{N: store.MaxRate, Per: time.Second}},
		{Rate: store.Rate{N: 1, Per: store.MaxPeriod}}, {Rate: store.Rate{N: 1, Per: 24 * time.Hour, Burst: 366}},
		{Rate: store.Rate{N: store.MaxRate, Per: store.MaxPeriod, Burst: store.MaxRate}},
		{Rate: store.Rate{N: 7, Per: store.MaxPeriod, Burst: 7}},
	} {
		if err := store.CheckFlow("q", f); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestRatesAreTexts(t *testing.T) {
	for text, r := range map[string]store.Rate{
		"": {}, "100/1s": {N: 100, Per: time.Second}, "1/1h": {N: 1, Per: time.Hour, Burst: 1},
		"5/1m": {N: 5, Per: time.Minute}, "5/1m30s": {N: 5, Per: 90 * time.Second},
		"5/1h5m": {N: 5, Per: 65 * time.Minute}, "10/10ms burst 20": {N: 10, Per: 10 * time.Millisecond, Burst: 20},
		"1/8784h": {N: 1, Per: store.MaxPeriod}, "5/10m": {N: 5, Per: 10 * time.Minute},
		"5/10h": {N: 5, Per: 10 * time.Hour},
	} {
		if got := r.String(); got != text {
			t.Errorf("%+v is %q, want %q", r, got, text)
		}
	}
}

func TestVersionsOfFlowsDiffer(t *testing.T) {
	seen := map[string]store.Flow{}
	for _, f := range []store.Flow{
		{}, {Concurrency: 1}, {Concurrency: 2}, {Rate: store.Rate{N: 1, Per: time.Second}},
		{Rate: store.Rate{N: 1, Per: time.Second, Burst: 2}}, {Rate: store.Rate{N: 2, Per: time.Second}},
		{Concurrency: 1, Rate: store.Rate{N: 1, Per: time.Second}}, {Rate: store.Rate{N: 1, Per: time.Minute}},
	} {
		if other, ok := seen[f.Version()]; ok {
			t.Errorf("%+v and %+v have the version %s", f, other, f.Version())
		}
		seen[f.Version()] = f
		if n := f.Normal(); n.Version() != f.Version() || n.Normal() != n {
			t.Errorf("%+v is normally %+v", f, n)
		}
	}
}
