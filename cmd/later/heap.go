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
	// memoryLimit is the memory that a server may take before the garbage is collected more often. The limits of calls
	// in flight keep a server below 512 MiB with it. The messages of a store in this process come on top: the limit
	// grows with them.
	memoryLimit = 448 << 20
)

// collectSeldom makes garbage collections rare until end is called: one runs when the heap has grown by heapGrowth and
// as much again as the server keeps, and more often from memoryLimit on. A server often keeps so little that Go would
// collect at 4 MiB, many times a second. With GOGC or GOMEMLIMIT, the user has decided, and collectSeldom does nothing.
func (m *Main) collectSeldom() (end func()) {
	if m.getenv("GOGC") != "" || m.getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	// Go collects when the heap is twice as large as after the last collection, and this slice counts as heap. It is
	// never written to, so it takes no memory of the machine.
	untouched := make([]byte, heapGrowth)
	ended := make(chan struct{})
	limitMemory(ended)
	return func() {
		close(ended)
		debug.SetMemoryLimit(math.MaxInt64)
		runtime.KeepAlive(untouched)
	}
}

// limitMemory sets the limit after each collection. The limit grows with the live heap, because the messages of a store
// in this process would otherwise make Go collect all the time.
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
