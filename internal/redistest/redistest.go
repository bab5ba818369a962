// Package redistest starts real Redis servers for tests: one alone, a Cluster, or a primary under Sentinel.
// Each server has its own free ports and its own directory, which are gone when the test ends.
//
// A package that uses it hands over its TestMain:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// It imports no other package of Later.
package redistest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// startLimit bounds how long a server may take until it serves, and a Cluster or Sentinel until it agrees.
// It is far beyond what they need, since a busy machine must not fail a test.
const startLimit = time.Minute

// leakChecks is how often Main looks for goroutines, about 0.4 s each time. Closed go-redis pools that could
// not dial notice it only at their next try, up to a second later.
const leakChecks = 10

var (
	sharedServer  shared[*Server]
	sharedValkey  shared[*Server]
	sharedCluster shared[*Cluster]
	underMain     bool
)

// Main runs the tests of a package, stops the shared servers, fails if a goroutine is left, and ends the
// process. Call it from TestMain.
func Main(m *testing.M, opts ...goleak.Option) {
	underMain = true
	code := m.Run()
	sharedServer.stop()
	sharedValkey.stop()
	sharedCluster.stop()
	if code == 0 {
		if err := findLeaks(opts); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines are left after the tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

func findLeaks(opts []goleak.Option) (err error) {
	for range leakChecks {
		if err = goleak.Find(opts...); err == nil {
			return nil
		}
	}
	return err
}

// Shared gives the one server that the tests of a package share, started when it is first asked for. Tests
// that share it keep apart by key prefix or queue name, and do not stop, fill or reconfigure it.
func Shared(t testing.TB) *Server {
	t.Helper()
	return sharedServer.get(t, func() (*Server, error) { return start(config{}) })
}

// SharedValkey is Shared of a valkey-server. It skips the test where that is not installed.
func SharedValkey(t testing.TB) *Server {
	t.Helper()
	valkey := Valkey(t)
	return sharedValkey.get(t, func() (*Server, error) {
		var c config
		valkey(&c)
		return start(c)
	})
}

// SharedCluster gives the one Cluster that the tests of a package share, under the same rules as Shared.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	return sharedCluster.get(t, func() (*Cluster, error) { return startCluster(config{cluster: true}) })
}

// shared is something that is started at most once and stopped by Main.
type shared[T interface{ remove() }] struct {
	once  sync.Once
	value T
	err   error
	used  bool
}

func (s *shared[T]) get(t testing.TB, start func() (T, error)) T {
	t.Helper()
	if !underMain {
		t.Fatal("a shared Redis needs redistest.Main in the package's TestMain, which stops it")
	}
	s.once.Do(func() {
		s.value, s.err = start()
		s.used = s.err == nil
	})
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.value
}

func (s *shared[T]) stop() {
	if s.used {
		s.value.remove()
	}
}

// eventually asks again and again, at most every 10 ms, until check gives nil. Servers that must agree among
// themselves announce it nowhere. It gives the last error when startLimit is over.
func eventually(what string, check func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s did not happen within %v: %w", what, startLimit, err)
		}
	}
}
