package main

import "runtime"

// heapGrowth is by how much the heap of a server grows at least before the garbage is collected.
const heapGrowth = 32 << 20

// collectSeldom has the garbage collector run only when the heap has grown by heapGrowth and as much again as it keeps,
// until end is called. What a server keeps is often so little that Go would collect at 4 MiB, many times a second. GOGC
// and GOMEMLIMIT, which say what the user wants, turn this off.
func (m *Main) collectSeldom() (end func()) {
	if m.getenv("GOGC") != "" || m.getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	// Go collects when the heap is twice as large as what was left of it. This is never written to, and so takes no
	// memory of the machine.
	untouched := make([]byte, heapGrowth)
	return func() { runtime.KeepAlive(untouched) }
}
