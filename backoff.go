package later

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/laterq/later/store"
)

// Backoff returns how long a message waits after an attempt failed with err. The first attempt is 1. A
// result below zero means at once, and one above store.MaxDelay means store.MaxDelay. A Backoff must be
// safe for concurrent use.
type Backoff func(attempt int, err error) time.Duration

// ConstantBackoff returns a Backoff that waits d after every failure. A d below zero means at once.
func ConstantBackoff(d time.Duration) Backoff {
	return func(int, error) time.Duration { return d }
}

// ExponentialBackoff returns a Backoff of a random time between zero and base·2^(attempt-1), at most limit.
// This "full jitter" spreads messages that failed together (Marc Brooker, "Exponential Backoff And Jitter",
// AWS Architecture Blog, 2015). A base or limit below zero means at once.
func ExponentialBackoff(base, limit time.Duration) Backoff {
	ceiling := geometric(base, 2, limit)
	return func(attempt int, err error) time.Duration {
		return time.Duration(rand.Int64N(int64(ceiling(attempt, err)) + 1))
	}
}

// GeometricBackoff returns a Backoff of first·factor^(attempt-1), at most limit and without jitter. Delays
// grow with a factor above 1 and shrink with one below 1. A first or limit below zero means at once.
// GeometricBackoff returns ErrInvalid when factor is not a finite number above zero.
func GeometricBackoff(first time.Duration, factor float64, limit time.Duration) (Backoff, error) {
	if !(factor > 0) || math.IsInf(factor, 1) {
		return nil, store.Invalid("backoff's factor is %v: give a finite number above 0", factor)
	}
	return geometric(first, factor, limit), nil
}

func geometric(first time.Duration, factor float64, limit time.Duration) Backoff {
	first, limit = max(0, first), max(0, limit)
	return func(attempt int, _ error) time.Duration {
		// Compare as floats: the product may overflow a Duration.
		d := float64(first) * math.Pow(factor, float64(max(attempt, 1)-1))
		if d >= float64(limit) {
			return limit
		}
		return time.Duration(d)
	}
}

// defaultBackoff spreads the default 20 attempts over about an hour.
var defaultBackoff = ExponentialBackoff(time.Second, 10*time.Minute)
