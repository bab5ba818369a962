package main

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"testing"
)

// heapTestEnv is set in the process of TestCollectSeldomLetsTheHeapGrow.
const heapTestEnv = "LATER_TEST_HEAP"

// TestCollectSeldomLetsTheHeapGrow runs in a process of its own: the other tests leave hundreds of megabytes, because
// cobra keeps the flags of each command tree, and the limit of the memory would be reached.
func TestCollectSeldomLetsTheHeapGrow(t *testing.T) {
	if os.Getenv(heapTestEnv) == "" {
		alone := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
		alone.Env = append(os.Environ(), heapTestEnv+"=1")
		if text, err := alone.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return
	}
	goal := func(env ...string) uint64 {
		m := &Main{Env: env}
		end := m.collectSeldom()
		defer end()
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before, with, limited, after := goal("GOGC=100"), goal(), goal("GOMEMLIMIT=1GiB"), goal("GOGC=100")
	if with < min(before, after)+heapGrowth {
		t.Errorf("collects at %d bytes; without it at %d, then %d", with, before, after)
	}
	if limited > max(before, after)+heapGrowth {
		t.Errorf("with GOMEMLIMIT collects at %d bytes; without it at %d, then %d", limited, before, after)
	}
}
