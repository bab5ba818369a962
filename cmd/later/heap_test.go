package main

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

func TestCollectSeldomLetsTheHeapGrow(t *testing.T) {
	goal := func(env ...string) uint64 {
		m := &Main{Env: env}
		end := m.collectSeldom()
		defer end()
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := goal("GOGC=100")
	if got := goal(); got < before+heapGrowth {
		t.Errorf("collects at %d bytes; without it at %d", got, before)
	}
	if got := goal("GOMEMLIMIT=1GiB"); got > before+heapGrowth {
		t.Errorf("with GOMEMLIMIT collects at %d bytes; without it at %d", got, before)
	}
}
