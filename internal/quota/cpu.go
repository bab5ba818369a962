package quota

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// CPU is a quota of places for work that takes milliseconds of a CPU, such as decoding a large body: one for each CPU
// but one, which is left to requests that take microseconds.
type CPU[K comparable] struct {
	*Quota[K]
	used func() (time.Duration, bool)
}

// NewCPU returns the places. used returns the CPU time that this process has used; it reports false if the system does
// not tell.
func NewCPU[K comparable](used func() (time.Duration, bool)) CPU[K] {
	return CPU[K]{New[K](int64(max(1, runtime.GOMAXPROCS(0)-1))), used}
}

// maxRest is the longest time that a place stays free after work.
const maxRest = 100 * time.Millisecond

// Work waits for a place until ctx ends. The caller calls done after its work, and must not wait for another place
// before. The place then stays free for as long as the work took, less if this process used less CPU time meanwhile, as
// it does while it waits for a store, and 100 ms at most. So half of these CPUs are left to the garbage collector and
// to work that takes no place.
func (c CPU[K]) Work(ctx context.Context, who K) (done func(), why Refusal) {
	if why := c.Wait(ctx, who, 1); why != None {
		return nil, why
	}
	begin := time.Now()
	before, _ := c.used()
	return sync.OnceFunc(func() {
		rest := min(time.Since(begin), maxRest)
		if used, ok := c.used(); ok {
			rest = min(rest, used-before)
		}
		time.AfterFunc(rest, func() { c.Give(who, 1) })
	}), None
}
