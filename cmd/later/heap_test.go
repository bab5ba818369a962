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
	// Goroutines of earlier tests may use and free memory meanwhile.
	before, with, limited, after := goal("GOGC=100"), goal(), goal("GOMEMLIMIT=1GiB"), goal("GOGC=100")
	if with < min(before, after)+heapGrowth {
		t.Errorf("collects at %d bytes; without it at %d, then %d", with, before, after)
	}
	if limited > max(before, after)+heapGrowth {
		t.Errorf("with GOMEMLIMIT collects at %d bytes; without it at %d, then %d", limited, before, after)
	}
}
