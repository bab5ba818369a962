package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// sendDurably sends one message and returns its result.
func sendDurably(t *testing.T, s *Store, id string, d store.Durability) store.SendResult {
	t.Helper()
	r, err := trySendDurably(t, s, id, d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func trySendDurably(t *testing.T, s *Store, id string, d store.Durability) (store.SendResult, error) {
	t.Helper()
	r, err := s.Send(t.Context(), "q",
		[]store.Outgoing{{Message: store.Message{ID: id, SentAt: time.Now()}, Durable: d}})
	if err != nil {
		return store.SendResult{}, err
	}
	return r[0], nil
}

func wantNotDurable(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, store.ErrNotDurable) {
		t.Fatalf("error is %v, want ErrNotDurable", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

var oneReplica = store.Durability{Replicas: 1, Timeout: 20 * time.Second}

func soon(replicas int) store.Durability {
	return store.Durability{Replicas: replicas, Timeout: 100 * time.Millisecond}
}

// eachServer runs a test on Redis and, if installed, on Valkey, which has WAITAOF.
func eachServer(t *testing.T, test func(t *testing.T, opts ...redistest.Option)) {
	t.Run("redis", func(t *testing.T) { test(t) })
	t.Run("valkey", func(t *testing.T) { test(t, redistest.Valkey(t)) })
}

// A send that was not confirmed is confirmed when it is repeated, by this process or another, although it is then a
// duplicate.
func TestDurableSendIsConfirmedOrErrorStatesProgress(t *testing.T) {
	eachServer(t, func(t *testing.T, opts ...redistest.Option) {
		primary := redistest.Start(t, opts...)
		replica := redistest.StartReplica(t, primary)
		s, other := newStore(t, primary.Client(t)), newStore(t, primary.Client(t))
		if r := sendDurably(t, s, "a", oneReplica); r.Err != nil || r.Duplicate {
			t.Fatalf("with a replica in sync: %+v", r)
		}
		wantOnReplica(t, replica, "a")

		replica.Freeze(t)
		began := time.Now()
		r := sendDurably(t, s, "b", soon(1))
		wantNotDurable(t, r.Err, "0 of 1 replicas", "100ms", "memory")
		if took := time.Since(began); took < 100*time.Millisecond {
			t.Errorf("gave up after %v, want at least 100ms", took)
		}
		for _, s := range []*Store{s, other} {
			r := sendDurably(t, s, "b", soon(1))
			wantNotDurable(t, r.Err, "0 of 1 replicas")
			if !r.Duplicate {
				t.Error("the repetition is not a duplicate")
			}
			// A message that the replica had before is not confirmed either, because the replica may have lost it.
			r = sendDurably(t, s, "a", soon(1))
			wantNotDurable(t, r.Err, "0 of 1 replicas")
		}
		if r := sendDurably(t, s, "plain", store.Durability{}); r.Err != nil {
			t.Errorf("send without durability: %v", r.Err)
		}

		replica.Thaw(t)
		if r := sendDurably(t, other, "b", oneReplica); r.Err != nil || !r.Duplicate {
			t.Errorf("after the replica has returned: %+v", r)
		}
		wantOnReplica(t, replica, "b")
		if c := claim(t, s, "q", 10, time.Minute); len(c.Messages) != 3 {
			t.Errorf("%d messages claimed, want 3", len(c.Messages))
		}
	})
}

// The connection breaks while the server waits for the replica. The repeated call finds that it was executed, and waits
// as well: the new connection has written something.
func TestDurableSendRepeatedAfterBrokenWaitIsNotConfirmedByItself(t *testing.T) {
	eachServer(t, func(t *testing.T, opts ...redistest.Option) {
		primary := redistest.Start(t, opts...)
		replica := redistest.StartReplica(t, primary)
		s, rdb := newStore(t, primary.Client(t)), primary.Client(t)
		if r := sendDurably(t, s, "first", oneReplica); r.Err != nil {
			t.Fatal(r.Err)
		}
		replica.Freeze(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		sent := make(chan error, 1)
		go func() {
			d := store.Durability{Replicas: 1, Timeout: time.Hour}
			r, err := s.Send(ctx, "q",
				[]store.Outgoing{{Message: store.Message{ID: "m", SentAt: time.Now()}, Durable: d}})
			if err == nil {
				err = r[0].Err
			}
			sent <- err
		}()
		var killed string
		for {
			waiting := blockedClient(t, rdb)
			if waiting != "" && killed == "" {
				if err := rdb.ClientKillByFilter(t.Context(), "ID", waiting).Err(); err != nil {
					t.Fatal(err)
				}
				killed = waiting
			}
			if waiting != "" && waiting != killed {
				break
			}
			select {
			case err := <-sent:
				t.Fatalf("the send returned %v while the replica was frozen", err)
			default:
			}
		}
		cancel()
		wantNotDurable(t, <-sent, "0 of 1 replicas")
	})
}

// blockedClient returns the id of a client that waits for replicas, or "".
func blockedClient(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	list, err := rdb.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(list) {
		if strings.Contains(line, " cmd=wait") && strings.Contains(line, " flags=b") {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
			return id
		}
	}
	return ""
}

func wantOnReplica(t *testing.T, replica *redistest.Server, id string) {
	t.Helper()
	if ok, err := replica.Client(t).HExists(t.Context(), "later:{q}:messages", id).Result(); err != nil || !ok {
		t.Errorf("replica has %q: %v, %v", id, ok, err)
	}
}

// Neither plain sends nor durable sends to replicas that answer are delayed.
func TestWaitingDurableSendDelaysNoOtherSend(t *testing.T) {
	primary := redistest.Start(t)
	redistest.StartReplica(t, primary)
	frozen := redistest.StartReplica(t, primary)
	frozen.Freeze(t)
	opts := primary.Client(t).Options()
	opts.PoolSize = 3
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { rdb.Close() })
	s := newStore(t, rdb)
	ctx, cancel := context.WithCancelCause(t.Context())
	var waiting sync.WaitGroup
	for i := range 2 {
		waiting.Go(func() {
			r, err := s.Send(ctx, "other", []store.Outgoing{{Message: store.Message{ID: fmt.Sprint(i)},
				Durable: store.Durability{Replicas: 2, Timeout: time.Hour}}})
			if err != nil || !errors.Is(r[0].Err, store.ErrNotDurable) ||
				!strings.Contains(r[0].Err.Error(), "enough waited") ||
				!strings.Contains(r[0].Err.Error(), "1 of 2 replicas") {
				t.Errorf("canceled wait: %v %v", r, err)
			}
		})
	}
	awaitBlocked(t, primary.Client(t), 2)
	for i := range 20 {
		sendDurably(t, s, fmt.Sprint("plain ", i), store.Durability{})
		if r := sendDurably(t, s, fmt.Sprint("durable ", i), oneReplica); r.Err != nil {
			t.Error(r.Err)
		}
	}
	cancel(errors.New("enough waited"))
	waiting.Wait()
}

// awaitBlocked returns once n clients of a server are blocked, for example waiting for replicas.
func awaitBlocked(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	for waits := false; !waits; {
		info, err := rdb.Info(t.Context(), "clients").Result()
		if err != nil {
			t.Fatal(err)
		}
		waits = strings.Contains(info, fmt.Sprintf("blocked_clients:%d\r", n))
	}
}

func TestCloseEndsDurableWait(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	sent := make(chan error)
	go func() {
		r, err := trySendDurably(t, s, "m", store.Durability{Replicas: 1, Timeout: time.Hour})
		sent <- errors.Join(err, r.Err)
	}()
	awaitBlocked(t, rdb, 1)
	s.Close()
	if err := <-sent; !errors.Is(err, store.ErrClosed) {
		t.Errorf("the send returned %v", err)
	}
	if _, err := trySendDurably(t, s, "n", oneReplica); !errors.Is(err, store.ErrClosed) {
		t.Errorf("durable send after Close: %v", err)
	}
}

// The error names the setting to change, and nothing is written. After that change the send succeeds.
func TestDiskDurabilityIsRefusedIfServerCannotConfirm(t *testing.T) {
	for _, c := range []struct {
		name string
		opts []redistest.Option
		want []string
		set  [][2]string
	}{
		{"redis 7.0 with fsyncs each second", nil, []string{"WAITAOF", "appendfsync always"},
			[][2]string{{"appendfsync", "always"}}},
		{"redis 7.0 without fsyncs while it rewrites", []redistest.Option{redistest.Args("--appendfsync", "always",
			"--no-appendfsync-on-rewrite", "yes")},
			[]string{"no-appendfsync-on-rewrite no"}, [][2]string{{"no-appendfsync-on-rewrite", "no"}}},
		{"redis 7.0 without an append-only file",
			[]redistest.Option{redistest.Args("--appendonly", "no", "--appendfsync", "always")},
			[]string{"appendonly yes"}, [][2]string{{"appendonly", "yes"}}},
		{"valkey without an append-only file", []redistest.Option{nil, redistest.Args("--appendonly", "no")},
			[]string{"appendonly yes"}, [][2]string{{"appendonly", "yes"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if len(c.opts) > 0 && c.opts[0] == nil {
				c.opts[0] = redistest.Valkey(t)
			}
			rdb := redistest.Start(t, c.opts...).Client(t)
			s := newStore(t, rdb)
			if _, err := rdb.Do(t.Context(), "WAITAOF", 0, 0, 1).Result(); err == nil &&
				strings.HasPrefix(c.name, "redis") {
				t.Skip("this redis-server has WAITAOF")
			}
			_, err := trySendDurably(t, s, "m", soon(0))
			if !errors.Is(err, store.ErrUnsupported) {
				t.Fatalf("the send returned %v", err)
			}
			for _, w := range append(c.want, "or ask for replicas") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if n, err := rdb.Exists(t.Context(), "later:{q}:messages").Result(); n != 0 || err != nil {
				t.Errorf("keys were written: %d, %v", n, err)
			}
			for _, kv := range c.set {
				if err := rdb.ConfigSet(t.Context(), kv[0], kv[1]).Err(); err != nil {
					t.Fatal(err)
				}
			}
			// Another store has no dedicated connection that remembers the old settings.
			if r := sendDurably(t, newStore(t, rdb), "m", store.Durability{Timeout: 20 * time.Second}); r.Err != nil {
				t.Errorf("after the change: %v", r.Err)
			}
		})
	}
}

// Without WAIT and WAITAOF nothing can be confirmed, not even by replicas.
func TestDurableSendIsRefusedIfWaitIsForbidden(t *testing.T) {
	admin := redistest.Start(t).Client(t)
	rules := []any{"ACL", "SETUSER", "app", "on", "nopass", "~*", "&*", "+@all", "-wait"}
	if n := admin.Do(t.Context(), "WAITAOF", 0, 0, 1).Err(); n == nil {
		rules = append(rules, "-waitaof")
	}
	if err := admin.Do(t.Context(), rules...).Err(); err != nil {
		t.Fatal(err)
	}
	options := *admin.Options()
	options.Username, options.Password = "app", "any"
	rdb := redis.NewClient(&options)
	defer rdb.Close()
	s := newStore(t, rdb)
	for _, d := range []store.Durability{soon(0), oneReplica} {
		if _, err := trySendDurably(t, s, "m", d); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("with %d replicas the send returned %v, want ErrUnsupported", d.Replicas, err)
		}
	}
}

func TestWeakenedFsyncSettingIsNoticed(t *testing.T) {
	rdb := redistest.Start(t, redistest.Args("--appendfsync", "always")).Client(t)
	if err := rdb.Do(t.Context(), "WAITAOF", 0, 0, 1).Err(); err == nil {
		t.Skip("this redis-server has WAITAOF")
	}
	s := newStore(t, rdb)
	if r := sendDurably(t, s, "a", soon(0)); r.Err != nil {
		t.Fatal(r.Err)
	}
	if err := rdb.ConfigSet(t.Context(), "appendfsync", "no").Err(); err != nil {
		t.Fatal(err)
	}
	wantNotDurable(t, sendDurably(t, s, "b", soon(0)).Err, "not fsynced")
}

// The server fsyncs once a second, and WAITAOF waits for that.
func TestConfirmedSendSurvivesKill(t *testing.T) {
	srv := redistest.Start(t, redistest.Valkey(t))
	s := newStore(t, srv.Client(t))
	for i := range 3 {
		if r := sendDurably(t, s, fmt.Sprint(i), store.Durability{Timeout: 20 * time.Second}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	srv.Kill()
	srv.Restart(t)
	if c := claim(t, s, "q", 10, time.Minute); len(c.Messages) != 3 {
		t.Errorf("%d messages survived the kill, want 3", len(c.Messages))
	}
	if r := sendDurably(t, s, "0", store.Durability{Timeout: 20 * time.Second}); r.Err != nil || !r.Duplicate {
		t.Errorf("repetition after the restart: %+v", r)
	}
}

// The replica has the message but can never confirm its disk.
func TestDurableErrorNamesReplicaWithoutAppendOnlyFile(t *testing.T) {
	primary := redistest.Start(t, redistest.Valkey(t))
	redistest.StartReplica(t, primary, redistest.Args("--appendonly", "no"))
	r := sendDurably(t, newStore(t, primary.Client(t)), "m", store.Durability{Replicas: 1,
		Timeout: 1500 * time.Millisecond})
	wantNotDurable(t, r.Err, "fsynced by 0 of 1 replicas", "appendonly")
}

// A message that a replica confirmed is on it when it is promoted. A send in progress when the primary dies is
// confirmed by the new primary or returns an error.
func TestDurableSendSurvivesFailover(t *testing.T) {
	sentinel := redistest.StartSentinel(t)
	s := openSentinel(t, sentinel)
	if r := sendDurably(t, s, "before", oneReplica); r.Err != nil {
		t.Fatal(r.Err)
	}
	sentinel.Primary.Kill()
	during := make(chan store.SendResult, 1)
	go func() {
		r, err := trySendDurably(t, s, "during", soon(1))
		if err != nil {
			t.Errorf("during the failover: %v", err)
		}
		during <- r
	}()
	sentinel.WaitForPrimary(t, sentinel.Replica)
	wantNotDurable(t, (<-during).Err, "0 of 1 replicas") // the new primary has no replica yet
	redistest.StartReplica(t, sentinel.Replica)
	for _, id := range []string{"before", "during"} {
		if r := sendDurably(t, s, id, oneReplica); r.Err != nil || !r.Duplicate {
			t.Errorf("%s, sent again: %+v", id, r)
		}
	}
}

// A new connection would have written nothing, so WAIT would confirm immediately.
func TestDedicatedConnNeverReconnects(t *testing.T) {
	primary := redistest.Start(t)
	redistest.StartReplica(t, primary)
	rdb := primary.Client(t)
	conn, err := newDedicatedConn(t.Context(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.client.Close()
	id, err := conn.client.ClientID(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := rdb.ClientKillByFilter(t.Context(), "ID", fmt.Sprint(id)).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.client.Wait(t.Context(), 1, time.Second).Result(); err == nil {
		t.Errorf("WAIT on another connection returned %d", n)
	}
}

func TestClusterReplicaConfirmsDurableSend(t *testing.T) {
	cluster, err := redistest.RunCluster(1, "--appendfsync", "always")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Remove)
	s := newStore(t, cluster.Client(t))
	for i := range 10 { // so many that every node has one
		r, err := s.Send(t.Context(), fmt.Sprint("q", i), []store.Outgoing{{Message: store.Message{ID: "m"},
			Durable: oneReplica}})
		if err != nil || r[0].Err != nil {
			t.Error(r, err)
		}
	}
	r, err := s.Send(t.Context(), "q0", []store.Outgoing{{Message: store.Message{ID: "n"},
		Durable: store.Durability{Replicas: 2, Timeout: 2 * time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	wantNotDurable(t, r[0].Err, "by 1 of 2 replicas") // acknowledged, or fsynced if the server has WAITAOF
}

func TestDurableSendFollowsItsClusterSlot(t *testing.T) {
	cluster := redistest.StartCluster(t)
	s := newStore(t, cluster.Client(t))
	wantNotDurable(t, sendDurably(t, s, "m", soon(1)).Err, "0 of 1 replicas") // the Cluster has no replicas
	from := cluster.Node(t, "{other}")
	to := cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	slot, err := from.Client(t).ClusterKeySlot(t.Context(), "{other}").Result()
	if err != nil {
		t.Fatal(err)
	}
	owner, err := to.Client(t).ClusterMyID(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range cluster.Nodes {
		if err := n.Client(t).Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE", owner).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, duplicate := range []bool{false, true} {
		r, err := s.Send(t.Context(), "other", []store.Outgoing{{Message: store.Message{ID: "m"}, Durable: soon(1)}})
		if err != nil {
			t.Fatal(err)
		}
		wantNotDurable(t, r[0].Err, "0 of 1 replicas")
		if r[0].Duplicate != duplicate {
			t.Errorf("duplicate: %v, want %v", r[0].Duplicate, duplicate)
		}
	}
	if ok, err := to.Client(t).HExists(t.Context(), "later:{other}:messages", "m").Result(); err != nil || !ok {
		t.Errorf("the message is not on the node that now has its slot: %v", err)
	}
}

// openSentinel returns a store behind Sentinels, which repeats calls for a minute.
func openSentinel(t *testing.T, sentinel *redistest.Sentinel) *Store {
	t.Helper()
	opened, err := store.Open(t.Context(), sentinel.URL(), store.OpenConfig{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	s := opened.(*Store)
	s.retryFor = time.Minute
	return s
}
