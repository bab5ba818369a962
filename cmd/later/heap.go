package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// heapGrowth is by how much the heap of a server grows at least before the garbage is collected.
	heapGrowth = 32 << 20
	// memoryLimit is how much memory a server takes before the garbage is collected more often: what callers have in
	// flight is bounded to leave it below 512 MiB. It does not count messages of a store in this process, for which the
	// limit grows.
	memoryLimit = 448 << 20
)

// collectSeldom has the garbage collector run only when the heap has grown by heapGrowth and as much again as it keeps,
// until end is called, and more often from memoryLimit on. What a server keeps is often so little that Go would collect
// at 4 MiB, many times a second. GOGC and GOMEMLIMIT, which say what the user wants, turn this off.
func (m *Main) collectSeldom() (end func()) {
	if m.getenv("GOGC") != "" || m.getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	// Go collects when the heap is twice as large as what was left of it. This is never written to, and so takes no
	// memory of the machine.
	untouched := make([]byte, heapGrowth)
	ended := make(chan struct{})
	limitMemory(ended)
	return func() {
		close(ended)
		debug.SetMemoryLimit(math.MaxInt64)
		runtime.KeepAlive(untouched)
	}
}

// limitMemory sets the limit after each collection: what a store in this process keeps must not have Go collect all the
// time.
func limitMemory(ended <-chan struct{}) {
	select {
	case <-ended:
		return
	default:
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetMemoryLimit(heapGrowth + max(memoryLimit, int64(live[0].Value.Uint64())*3/2))
	runtime.AddCleanup(new(*byte), limitMemory, ended)
}
