package redistest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { Main(m) }

func set(t *testing.T, rdb redis.Cmdable, key string) {
	t.Helper()
	if err := rdb.Set(t.Context(), key, "here", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func wantKey(t *testing.T, rdb redis.Cmdable, key string) {
	t.Helper()
	if got, err := rdb.Get(t.Context(), key).Result(); got != "here" || err != nil {
		t.Fatalf("GET %s = %q, %v", key, got, err)
	}
}

func TestServersAreIndependent(t *testing.T) {
	t.Parallel()
	a, b := Start(t), Start(t)
	set(t, a.Client(t), "key")
	if n, err := b.Client(t).Exists(t.Context(), "key").Result(); n != 0 || err != nil {
		t.Fatalf("the other server has the key: %d, %v", n, err)
	}
}

func TestServerKeepsDataAcrossKillAndStop(t *testing.T) {
	t.Parallel()
	s := Start(t, Args("--appendfsync", "always"))
	addr := s.Addr()
	for _, end := range []struct {
		name string
		with func()
	}{{"kill", s.Kill}, {"stop", s.Stop}, {"restart", func() {}}} {
		set(t, s.Client(t), end.name)
		end.with()
		s.Restart(t)
		if s.Addr() != addr {
			t.Fatalf("address changed from %s to %s", addr, s.Addr())
		}
		wantKey(t, s.Client(t), end.name)
	}
}

func TestKilledServerIsGone(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Kill()
	err := s.Client(t).Ping(t.Context()).Err()
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("PING of a killed server returned %v", err)
	}
}

func TestServerArgs(t *testing.T) {
	t.Parallel()
	s := Start(t, Args("--requirepass", "secret", "--unixsocket", "s.sock"))
	rdb := redis.NewClient(&redis.Options{Addr: filepath.Join(s.Dir(), "s.sock"), Password: "secret"})
	defer rdb.Close()
	set(t, rdb, "key")
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := Start(t, TLS(t))
	set(t, s.Client(t), "key")
	plain := redis.NewClient(s.options())
	defer plain.Close()
	if err := plain.Ping(t.Context()).Err(); err == nil {
		t.Fatal("the server accepted a client without TLS")
	}
}

func TestValkey(t *testing.T) {
	t.Parallel()
	s := Start(t, Valkey(t))
	info, err := s.Client(t).Info(t.Context(), "server").Result()
	if err != nil || !strings.Contains(info, "valkey") {
		t.Fatalf("INFO = %q, %v", info, err)
	}
}

func TestServerStartFailureExplainsItself(t *testing.T) {
	t.Parallel()
	if _, err := start(config{args: []string{"--no-such-option", "1"}}); err == nil ||
		!strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("start with a bad option returned %v", err)
	}
	if _, err := start(config{binary: "no-such-server"}); err == nil || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("start of a missing program returned %v", err)
	}
}

func TestServerStartDetectsTakenPort(t *testing.T) {
	t.Parallel()
	a := Start(t)
	b := &Server{config: config{binary: "redis-server"}, host: a.host, port: a.port, dir: t.TempDir()}
	if err := b.launch(); !errors.Is(err, errPortTaken) {
		t.Fatalf("second server on one port returned %v", err)
	}
}

func TestServerKeepsItsPortWhileDown(t *testing.T) {
	t.Parallel()
	a := Start(t)
	a.Stop()
	path := a.ports[0].lock.Name()
	if f, err := createLock(path); !errors.Is(err, errLocked) {
		t.Fatalf("locking the port again returned %v, %v", f, err)
	}
	a.remove()
	f, err := createLock(path)
	if err != nil {
		t.Fatalf("locking a released port returned %v", err)
	}
	unlock(f)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock file was not removed: %v", err)
	}
}

func TestSharedReturnsOneServer(t *testing.T) {
	t.Parallel()
	s := Shared(t)
	if Shared(t) != s {
		t.Fatal("Shared returned two servers")
	}
	set(t, s.Client(t), "key")
}

func TestClusterServesAllSlots(t *testing.T) {
	t.Parallel()
	c := SharedCluster(t)
	rdb := c.Client(t)
	nodes := map[*Server]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		set(t, rdb, key)
		wantKey(t, rdb, key)
		nodes[c.Node(t, key)] = true
	}
	if len(nodes) != clusterNodes {
		t.Fatalf("six keys are on %d nodes", len(nodes))
	}
}

func TestClusterNodeComesBack(t *testing.T) {
	t.Parallel()
	c := StartCluster(t)
	node := c.Node(t, "key")
	// By default the server may lose writes that it acknowledged while an fsync was in progress.
	if err := node.Client(t).ConfigSet(t.Context(), "appendfsync", "always").Err(); err != nil {
		t.Fatal(err)
	}
	set(t, c.Client(t), "key")
	node.Kill()
	node.Restart(t)
	rdb := c.Client(t)
	err := eventually("return of the node", func(ctx context.Context) error { return rdb.Get(ctx, "key").Err() })
	if err != nil {
		t.Fatal(err)
	}
	wantKey(t, rdb, "key")
}

func TestSentinelPromotesTheReplica(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t)
	primary := s.Primary.Client(t)
	set(t, primary, "key")
	if n, err := primary.Wait(t.Context(), 1, startLimit).Result(); n != 1 || err != nil {
		t.Fatalf("WAIT = %d, %v", n, err)
	}
	s.Primary.Kill()
	s.WaitForPrimary(t, s.Replica)
	set(t, s.Replica.Client(t), "other")
	wantKey(t, s.Replica.Client(t), "key")
}

func TestReplicaSyncsAndFreezes(t *testing.T) {
	t.Parallel()
	primary := Start(t)
	replica := StartReplica(t, primary)
	rdb := primary.Client(t)
	set(t, rdb, "key")
	if n, err := rdb.Wait(t.Context(), 1, startLimit).Result(); n != 1 || err != nil {
		t.Fatalf("WAIT = %d, %v", n, err)
	}
	wantKey(t, replica.Client(t), "key")
	replica.Freeze(t)
	set(t, rdb, "other")
	if n, err := rdb.Wait(t.Context(), 1, time.Millisecond).Result(); n != 0 || err != nil {
		t.Fatalf("WAIT for a frozen replica returned %d, %v", n, err)
	}
	replica.Thaw(t)
	if n, err := rdb.Wait(t.Context(), 1, startLimit).Result(); n != 1 || err != nil {
		t.Fatalf("WAIT after Thaw returned %d, %v", n, err)
	}
}
