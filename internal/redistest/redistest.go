// Package redistest starts real Redis servers for tests: a standalone server, a Cluster, or a primary under Sentinel.
// Each server has its own ports and directory, which are released when the test ends. ServerVariable names another
// program than redis-server.
//
// A package that uses it must call Main from its TestMain:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// Of Later, it imports tlstest only.
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

// startLimit limits how long a server may take to serve, and a Cluster or Sentinels to agree. It is generous, because a
// busy machine must not fail a test.
const startLimit = time.Minute

// leakChecks is how often Main looks for leaked goroutines, about 0.4 s each time. A closed go-redis pool that could
// not dial only stops at its next attempt, up to a second later.
const leakChecks = 10

var (
	sharedServer  shared[*Server]
	sharedValkey  shared[*Server]
	sharedCluster shared[*Cluster]
	underMain     bool
)

// Main runs a package's tests, stops the shared servers, reports leaked goroutines as a failure, and exits. Call it
// from TestMain.
func Main(m *testing.M, opts ...goleak.Option) {
	underMain = true
	code := m.Run()
	sharedServer.stop()
	sharedValkey.stop()
	sharedCluster.stop()
	if code == 0 {
		if err := findLeaks(opts); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines leaked: %v\n", err)
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

// Shared returns the server shared by the tests of a package, and starts it on first use. Tests must use distinct key
// prefixes or queue names, and must not stop, fill or reconfigure the server.
func Shared(t testing.TB) *Server {
	t.Helper()
	return sharedServer.get(t, func() (*Server, error) { return start(config{}) })
}

// SharedValkey is like Shared for a valkey-server. It skips the test if valkey-server is not installed.
func SharedValkey(t testing.TB) *Server {
	t.Helper()
	valkey := Valkey(t)
	return sharedValkey.get(t, func() (*Server, error) {
		var c config
		valkey(&c)
		return start(c)
	})
}

// SharedCluster returns the Cluster shared by the tests of a package, under the same rules as Shared.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	return sharedCluster.get(t, func() (*Cluster, error) { return startCluster(config{cluster: true}) })
}

// shared is a resource that is started at most once and stopped by Main.
type shared[T interface{ remove() }] struct {
	once  sync.Once
	value T
	err   error
	used  bool
}

func (s *shared[T]) get(t testing.TB, start func() (T, error)) T {
	t.Helper()
	if !underMain {
		t.Fatal("a shared Redis needs redistest.Main in the package's TestMain")
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

// eventually calls check at most every 10 ms until it returns nil, because servers do not announce that they agree.
// When startLimit has passed, it returns the last error.
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
