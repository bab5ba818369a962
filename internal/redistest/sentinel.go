package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	sentinels    = 3
	sentinelName = "mymaster"
	// sentinelDownAfterMillis is when a primary that does not reply is considered down. It is short so that a failover
	// starts soon, yet longer than the stalls of a busy machine.
	sentinelDownAfterMillis = 2000
)

// Sentinel is a primary with one replica, monitored by three Sentinels.
type Sentinel struct {
	Primary, Replica *Server   // initial roles
	Sentinels        []*Server // two are a quorum
}

// StartSentinel starts the servers and returns when the replica is in sync and the Sentinels know each other and both
// servers. All are killed when the test ends.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	primary := Start(t)
	replica := Start(t, Args("--replicaof", primary.host+" "+fmt.Sprint(primary.port)))
	s := &Sentinel{Primary: primary, Replica: replica}
	for range sentinels {
		watcher, err := start(config{sentinel: sentinelConfig(primary)})
		if err != nil {
			t.Fatal(err)
		}
		watcher.removeAfter(t)
		s.Sentinels = append(s.Sentinels, watcher)
	}
	s.wait(t, "agreement of the Sentinels", s.knowsAll)
	return s
}

func sentinelConfig(primary *Server) string {
	return fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]d %[4]d\n"+
		"sentinel down-after-milliseconds %[1]s %[5]d\n"+
		"sentinel failover-timeout %[1]s %[6]d\n",
		sentinelName, primary.host, primary.port, sentinels/2+1,
		sentinelDownAfterMillis, 5*sentinelDownAfterMillis)
}

// WaitForPrimary waits until server is a primary and all Sentinels agree. Use it for a failover, which takes a few
// seconds:
//
//	s.Primary.Kill()
//	s.WaitForPrimary(t, s.Replica)
func (s *Sentinel) WaitForPrimary(t testing.TB, server *Server) {
	t.Helper()
	rdb := server.Client(t)
	s.wait(t, "promotion of "+server.Addr(), func(ctx context.Context, watcher *redis.SentinelClient) error {
		addr, err := watcher.GetMasterAddrByName(ctx, sentinelName).Result()
		if err != nil {
			return err
		}
		if got := strings.Join(addr, ":"); got != server.Addr() {
			return fmt.Errorf("reports %s as the primary", got)
		}
		role, err := rdb.Do(ctx, "ROLE").Slice()
		if err != nil {
			return err
		}
		if role[0] != "master" {
			return fmt.Errorf("the server reports the role %v", role[0])
		}
		return nil
	})
}

// wait waits until check returns nil for every Sentinel.
func (s *Sentinel) wait(t testing.TB, what string, check func(context.Context, *redis.SentinelClient) error) {
	t.Helper()
	var watchers []*redis.SentinelClient
	for _, server := range s.Sentinels {
		watcher := redis.NewSentinelClient(server.options())
		defer watcher.Close()
		watchers = append(watchers, watcher)
	}
	err := eventually(what, func(ctx context.Context) error {
		for i, watcher := range watchers {
			if err := check(ctx, watcher); err != nil {
				return fmt.Errorf("sentinel %s: %w", s.Sentinels[i].Addr(), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// knowsAll returns nil if a Sentinel could decide on a failover and perform it.
func (s *Sentinel) knowsAll(ctx context.Context, watcher *redis.SentinelClient) error {
	primary, err := watcher.Master(ctx, sentinelName).Result()
	if err != nil {
		return err
	}
	if primary["flags"] != "master" || primary["num-other-sentinels"] != fmt.Sprint(sentinels-1) {
		return fmt.Errorf("sees the primary as %s and %s other Sentinels", primary["flags"],
			primary["num-other-sentinels"])
	}
	replicas, err := watcher.Replicas(ctx, sentinelName).Result()
	if err != nil {
		return err
	}
	if len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok" {
		return fmt.Errorf("sees the replicas %v", replicas)
	}
	return nil
}

// URL returns a URL for later.Open that finds the primary through the Sentinels. It uses database 0.
func (s *Sentinel) URL() string {
	var addrs []string
	for _, server := range s.Sentinels {
		addrs = append(addrs, server.Addr())
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/" + sentinelName + "/0"
}
