package later

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Backoff says how long a message waits after its attempt (1 at first) failed with err. Any func of this
// shape is one. A result below zero means at once, one above store.MaxDelay means store.MaxDelay. It may be
// called by many goroutines at once.
type Backoff func(attempt int, err error) time.Duration

// ConstantBackoff waits d after every failure. It panics when d is below zero.
func ConstantBackoff(d time.Duration) Backoff {
	checkBackoff("delay", d)
	return func(int, error) time.Duration { return d }
}

// ExponentialBackoff waits a random time between zero and base·2^(attempt-1), at most limit ("full jitter",
// after Marc Brooker's "Exponential Backoff And Jitter", AWS Architecture Blog, 2015): messages that failed
// together do not come back together. It panics when base or limit is below zero.
func ExponentialBackoff(base, limit time.Duration) Backoff {
	checkBackoff("base", base)
	ceiling := GeometricBackoff(base, 2, limit)
	return func(attempt int, err error) time.Duration {
		return time.Duration(rand.Int64N(int64(ceiling(attempt, err)) + 1))
	}
}

// GeometricBackoff waits first·factor^(attempt-1), at most limit and without jitter. A factor above 1 makes
// the delays grow, one below 1 makes them shrink. It panics when first or limit is below zero, or factor is
// not above zero.
func GeometricBackoff(first time.Duration, factor float64, limit time.Duration) Backoff {
	checkBackoff("first delay", first)
	checkBackoff("limit", limit)
	if !(factor > 0) || math.IsInf(factor, 1) {
		panic(fmt.Sprintf("later: backoff: factor is %v: give a number above 0", factor))
	}
	return func(attempt int, _ error) time.Duration {
		// Compared as a float: the product may be beyond every duration.
		d := float64(first) * math.Pow(factor, float64(max(attempt, 1)-1))
		if d >= float64(limit) {
			return limit
		}
		return time.Duration(d)
	}
}

func checkBackoff(name string, d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("later: backoff: %s is %v: give 0 or more", name, d))
	}
}

// defaultBackoff spreads the default of 20 attempts over about an hour.
var defaultBackoff = ExponentialBackoff(time.Second, 10*time.Minute)
