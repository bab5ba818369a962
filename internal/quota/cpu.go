package quota

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// CPU is a quota of places for work that takes milliseconds of a CPU, such as decoding a large body: one for each CPU
// but one, which is left to requests that take microseconds.
type CPU[K comparable] struct{ *Quota[K] }

// NewCPU returns the places.
func NewCPU[K comparable]() CPU[K] {
	return CPU[K]{New[K](int64(max(1, runtime.GOMAXPROCS(0)-1)))}
}

// maxRest is the longest time that a place stays free after work.
const maxRest = 100 * time.Millisecond

// Work waits for a place until ctx ends. The caller calls done after its work, and must not wait for another place
// before. The place then stays free for as long as the work took, 100 ms at most, which leaves half of these CPUs to
// the garbage collector and to work that takes no place.
func (c CPU[K]) Work(ctx context.Context, who K) (done func(), why Refusal) {
	if why := c.Wait(ctx, who, 1); why != None {
		return nil, why
	}
	begin := time.Now()
	return sync.OnceFunc(func() {
		time.AfterFunc(min(time.Since(begin), maxRest), func() { c.Give(who, 1) })
	}), None
}
