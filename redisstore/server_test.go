package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func openURL(t *testing.T, url string, log *slog.Logger) (store.Store, error) {
	t.Helper()
	s, err := store.Open(t.Context(), url, store.OpenConfig{Logger: log})
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func TestServerThatMayEvictIsRefused(t *testing.T) {
	srv := redistest.Start(t, redistest.Args("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
	_, err := openURL(t, srv.URL(), slog.Default())
	if !errors.Is(err, store.ErrUnsupported) ||
		!strings.Contains(err.Error(), "CONFIG SET maxmemory-policy noeviction") {
		t.Errorf("Open = %v, want an error that says what to change", err)
	}
	if _, err := New(srv.Client(t)).Stats(t.Context(), "q"); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("first call over a client = %v, want ErrUnsupported", err)
	}
	if _, err := openURL(t, srv.URL()+"?eviction=allow", slog.Default()); err != nil {
		t.Errorf("Open with eviction=allow: %v", err)
	}
	if err := srv.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := openURL(t, srv.URL(), slog.Default()); err != nil {
		t.Errorf("Open after the change that the error asks for: %v", err)
	}
}

func TestNodeOfAClusterIsRefusedWithoutItsClient(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	node := cluster.Node(t, DefaultPrefix+"{q}:messages") // which serves calls on the queue
	refused := func(call string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrMisconfigured) || !strings.Contains(err.Error(), "redis+cluster://") ||
			!strings.Contains(err.Error(), "NewClusterClient") {
			t.Errorf("%s: %v, want an error that says what to use", call, err)
		}
	}
	_, err := newStore(t, node.Client(t)).Stats(t.Context(), "q")
	refused("first call over a client", err)
	_, err = openURL(t, node.URL(), slog.Default())
	refused("Open", err)
	if _, err := openURL(t, cluster.URL(), slog.Default()); err != nil {
		t.Errorf("Open of what the error names: %v", err)
	}
	if err := New(nil).checkMode("redis_mode:standalone\r\nserver_mode:cluster\r\n"); err == nil {
		t.Error("a node of a Cluster of Valkey is not recognized")
	}
}

func TestReplicaIsRefusedWithTheAddressOfItsPrimary(t *testing.T) {
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	refused := func(call string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrMisconfigured) ||
			!strings.Contains(err.Error(), "is a replica of "+primary.Addr()) ||
			!strings.Contains(err.Error(), "open the primary instead") {
			t.Errorf("%s: %v, want an error that says what to open", call, err)
		}
	}
	_, err := openURL(t, replica.URL(), slog.Default())
	refused("Open", err)
	s := newStore(t, replica.Client(t))
	_, err = s.Stats(t.Context(), "q")
	refused("first call over a client", err)
	refused("Ping", s.Ping(t.Context()))

	// A replica that was promoted is not refused.
	if err := replica.Client(t).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stats(t.Context(), "q"); err != nil {
		t.Errorf("after its promotion: %v", err)
	}
	if _, err := openURL(t, replica.URL(), slog.Default()); err != nil {
		t.Errorf("Open after its promotion: %v", err)
	}
}

func TestPrimaryThatBecomesAReplicaIsRetriedAndThenNamed(t *testing.T) {
	primary, other := redistest.Start(t), redistest.Start(t)
	s := newStore(t, primary.Client(t), RetryFor(0))
	send := func(s *Store) error {
		_, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "m"}}})
		return err
	}
	if err := send(s); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(other.Addr(), ":")
	if err := primary.Client(t).Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	err := send(s)
	if !errors.Is(err, store.ErrUnavailable) ||
		!strings.Contains(err.Error(), "has become a replica: open its primary") {
		t.Errorf("send to a demoted primary: %v", err)
	}
}

// go-redis routes the calls of these clients to the primary, also if a node that it asks first has just been demoted.
func TestRoleIsNotCheckedWhereTheClientFollowsThePrimary(t *testing.T) {
	sentinel := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer sentinel.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	single := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer single.Close()
	for want, clients := range map[bool][]redis.UniversalClient{true: {sentinel, cluster}, false: {single}} {
		for _, c := range clients {
			if got := New(c).followsPrimary(); got != want {
				t.Errorf("%T: followsPrimary is %v, want %v", c, got, want)
			}
		}
	}
}

// TestDriverLogsThroughTheStoresLogger checks that go-redis, which logs each failed connection, does not bypass it.
func TestDriverLogsThroughTheStoresLogger(t *testing.T) {
	srv := redistest.Start(t)
	var text bytes.Buffer
	s := newStore(t, srv.Client(t), RetryFor(0), WithLogger(slog.New(slog.NewTextHandler(&text,
		&slog.HandlerOptions{Level: slog.LevelDebug}))))
	defer setDriverLog(slog.Default())
	srv.Kill()
	if _, err := s.Stats(t.Context(), "q"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("call to a dead server: %v", err)
	}
	redis.SetLogger(driverLog{slog.New(slog.DiscardHandler)}) // no more writes to text
	if !strings.Contains(text.String(), "later: go-redis: ") || !strings.Contains(text.String(), "connection refused") {
		t.Errorf("logged %q", text.String())
	}
}

func TestServerWithoutConfigCommandIsAcceptedWithOneWarning(t *testing.T) {
	srv := redistest.Start(t, redistest.Args("--rename-command", "CONFIG", ""))
	var text bytes.Buffer
	s, err := openURL(t, srv.URL(), slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Stats(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(text.String(), "CONFIG is forbidden"); n != 1 {
		t.Errorf("logged %d times, want once: %s", n, text.String())
	}
}

func TestPrefixThatBreaksHashTagIsRefused(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	for _, prefix := range []string{"{a}", "a}", "a\n", strings.Repeat("a", 65)} {
		s := newStore(t, rdb, Prefix(prefix))
		if _, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "m"}}}); !errors.Is(err,
			store.ErrInvalid) {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	if n, err := rdb.DBSize(t.Context()).Result(); err != nil || n > 0 {
		t.Errorf("%d keys were written (%v)", n, err)
	}
}

func TestWrongPasswordIsNotTakenForManagedServer(t *testing.T) {
	srv := redistest.Start(t)
	host, rdb := srv.Addr(), srv.Client(t)
	for _, rule := range [][]any{{"ACL", "SETUSER", "off", "off", ">secret", "~*", "+@all"}, {"CONFIG", "SET",
		"requirepass", "right"}} {
		if err := rdb.Do(t.Context(), rule...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{":wrong@", "", "off:secret@", "nobody:x@"} {
		for _, url := range []string{"redis://" + user + host, "redis+sentinel://" + user + host + "/mymaster"} {
			if _, err := openURL(t, url, slog.Default()); !errors.Is(err, store.ErrMisconfigured) {
				t.Errorf("Open as %q: %v", user, err)
			}
		}
	}
	if _, err := openURL(t, "redis://:right@"+host, slog.Default()); err != nil {
		t.Error(err)
	}
}

func TestOldServerIsRefused(t *testing.T) {
	for version, ok := range map[string]bool{"6.2.14": false, "5.0": false, "7.0.0": true, "7.2.4": true, "8.4.1": true,
		"12.0": true, "": false} {
		err := checkVersion("# Server\r\nredis_version:" + version + "\r\nredis_mode:standalone\r\n")
		if (err == nil) != ok {
			t.Errorf("version %q: %v", version, err)
		}
		if err != nil && (!errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "7.0 or later")) {
			t.Errorf("version %q: error does not say what to use: %v", version, err)
		}
	}
}

func TestDeadServerReturnsErrorWithinRetryLimit(t *testing.T) {
	srv := redistest.Start(t)
	url := srv.URL()
	s := newStore(t, srv.Client(t), RetryFor(0))
	claim(t, s, "q", 1, time.Second)
	srv.Kill()
	if _, err := s.Stats(t.Context(), "q"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("call to a dead server: %v", err)
	}
	if _, err := openURL(t, url, slog.Default()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open of a dead server: %v", err)
	}
}

// A call made while the server is away is executed when it is back.
func TestCallsSurviveServerRestart(t *testing.T) {
	srv := redistest.Start(t, redistest.Args("--appendfsync", "always"))
	s := newStore(t, srv.Client(t))
	send(t, s, "q", "before", store.Due{})
	srv.Kill()
	sent := make(chan error, 1)
	go func() {
		_, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "during"}}})
		sent <- err
	}()
	srv.Restart(t)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if c := claim(t, s, "q", 10, time.Minute); len(c.Messages) != 2 {
		t.Errorf("%d messages claimed after the restart, want 2", len(c.Messages))
	}
}

func TestFlushedScriptsAreSentAgain(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	for i := range 3 {
		send(t, s, "q", fmt.Sprint("m", i), store.Due{})
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if c := claim(t, s, "q", 10, time.Minute); len(c.Messages) != 3 {
		t.Errorf("%d messages claimed, want 3", len(c.Messages))
	}
}

// Claims, settles and cancels still work on a full server, and make room.
func TestFullServerRefusesOnlySends(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newStore(t, rdb)
	ctx := t.Context()
	payload := bytes.Repeat([]byte("x"), 1000)
	fill := func(from int) error {
		msgs := make([]store.Outgoing, 100)
		for i := range msgs {
			msgs[i] = store.Outgoing{Message: store.Message{ID: fmt.Sprint("m", from+i), Payload: payload}}
		}
		_, err := s.Send(ctx, "q", msgs)
		return err
	}
	if err := fill(0); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := fill(100); !errors.Is(err, store.ErrFull) {
		t.Errorf("send to a full server: %v", err)
	}
	if _, err := s.Send(ctx, "q", collapsing(store.Due{}, "m1")); !errors.Is(err, store.ErrFull) {
		t.Errorf("replace on a full server: %v", err)
	}
	if st, err := s.Stats(ctx, "q"); err != nil || st.Ready != 100 {
		t.Errorf("after the refused send %d are ready (%v), want 100", st.Ready, err)
	}
	c := claim(t, s, "q", 4, time.Minute)
	for i, action := range []store.Action{store.Ack, store.Nack, store.Snooze, store.Bury} {
		r, err := s.Settle(ctx, "q",
			[]store.Settlement{{Receipt: c.Messages[i].Receipt, Action: action, Delay: time.Hour}})
		if err != nil || r[0].Err != nil {
			t.Errorf("%v on a full server: %v %v", action, err, r)
		}
	}
	if _, err := s.Extend(ctx, "q", []store.Extension{{Lease: c.Messages[0].Receipt.Lease,
		For: time.Minute}}); err != nil {
		t.Errorf("extend: %v", err)
	}
	if r, err := s.Cancel(ctx, "q", store.CancelRequest{IDs: []string{"m50"}}); err != nil || r[0].Err != nil {
		t.Errorf("cancel: %v %v", err, r)
	}
	if r, err := s.Reschedule(ctx, "q", []string{"m60"}, store.Due{Delay: time.Hour}); err != nil || r[0] != nil {
		t.Errorf("reschedule: %v %v", err, r)
	}
	if b, err := s.Purge(ctx, "q", store.Selection{State: store.StateReady}); err != nil || b.Done == 0 {
		t.Errorf("purge: %v %v", err, b)
	}
	if err := rdb.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := fill(200); err != nil {
		t.Errorf("send once there is room again: %v", err)
	}
}

// A call that is repeated because its reply was lost takes effect once and returns the same.
func TestCallsExecuteOnceWhenReplyIsLost(t *testing.T) {
	s := newStore(t, redistest.Shared(t).Client(t))
	ctx := t.Context()
	s.preflightDone.Store(true)
	lossy := &loseEveryReply{UniversalClient: s.rdb}
	again := newStore(t, lossy)
	again.preflightDone.Store(true)

	other := store.Outgoing{Message: store.Message{ID: "other", SentAt: time.Now()}, Due: store.Due{Delay: time.Hour}}
	if _, err := s.Send(ctx, "lost", []store.Outgoing{other}); err != nil {
		t.Fatal(err)
	}
	other.SentAt = other.SentAt.Add(time.Second)
	r, err := again.Send(ctx, "lost", []store.Outgoing{
		{Message: store.Message{ID: "a", Payload: []byte("x"), SentAt: time.Now()}},
		{Message: store.Message{ID: "b"}},
		{Message: store.Message{ID: "c"}},
		{Message: store.Message{ID: "d"}},
		other,
	})
	if err != nil || r[0].Duplicate || r[1].Duplicate || !r[4].Duplicate {
		t.Fatalf("Send = %v, %v; want only the fifth to be a duplicate", r, err)
	}
	c, err := again.Claim(ctx, "lost", store.ClaimRequest{Max: 4, Lease: time.Minute})
	if err != nil || len(c.Messages) != 4 {
		t.Fatalf("Claim returned %d messages (%v), want 4", len(c.Messages), err)
	}
	for i, want := range map[int]struct {
		action store.Action
		state  store.State
	}{0: {store.Ack, store.StateNone}, 1: {store.Nack, store.StateScheduled}, 2: {store.Snooze, store.StateScheduled},
		3: {store.Bury, store.StateDead}} {
		r, err := again.Settle(ctx, "lost", []store.Settlement{{Receipt: c.Messages[i].Receipt, Action: want.action,
			Delay: time.Hour}})
		if err != nil || r[0].Err != nil || r[0].State != want.state {
			t.Errorf("%v returned %v %v", want.action, r, err)
		}
	}
	st, err := s.Stats(ctx, "lost")
	if err != nil || st.Scheduled != 3 || st.Ready != 0 || st.Leased != 0 || st.Dead != 1 {
		t.Errorf("after every call was repeated: %+v %v", st, err)
	}
	infos, err := s.Get(ctx, "lost", []string{"b", "d"})
	if err != nil || infos[0].Attempts != 1 || infos[1].Attempts != 1 {
		t.Errorf("attempts are not 1 each: %+v", infos)
	}
}

// loseEveryReply loses the reply of each script call once, after the server has executed it.
type loseEveryReply struct {
	redis.UniversalClient
	lost map[string]bool
}

func (l *loseEveryReply) Process(ctx context.Context, cmd redis.Cmder) error {
	err := l.UniversalClient.Process(ctx, cmd)
	// Calls of a script alternate: the first loses its reply, its repetition does not.
	if l.lost == nil {
		l.lost = map[string]bool{}
	}
	sha := fmt.Sprint(cmd.Args()[1])
	if err == nil && !l.lost[sha] {
		l.lost[sha] = true
		return errLostReply
	}
	delete(l.lost, sha)
	return err
}

var errLostReply = &lostReply{}

type lostReply struct{}

func (*lostReply) Error() string   { return "reply lost" }
func (*lostReply) Timeout() bool   { return true }
func (*lostReply) Temporary() bool { return true }

// Lua compares text by the server's locale, Redis by bytes.
func TestListOrderIgnoresServerLocale(t *testing.T) {
	s := newStore(t, redistest.Shared(t).Client(t))
	ctx := t.Context()
	want := map[string]bool{}
	for _, id := range []string{"a", "A", "b", "B", "_", "-", "é", "z", "Z", "aa", "aB", "Ab", "0", "10", "9"} {
		want[id] = true
		if _, err := s.Send(ctx, "locale", []store.Outgoing{{Message: store.Message{ID: id},
			Due: store.Due{At: time.UnixMilli(1)}}}); err != nil {
			t.Fatal(err)
		}
	}
	for cursor := ""; ; {
		page, err := s.List(ctx, "locale", store.ListRequest{State: store.StateReady, Limit: 2, Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.Messages {
			if !want[m.ID] {
				t.Errorf("%q is listed twice", m.ID)
			}
			delete(want, m.ID)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("not listed: %v", want)
	}
}

// The lease lists a cancelled message, and its id was sent again with a delay.
func TestRepeatedClaimReturnsNothingSentSince(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	s := newStore(t, rdb)
	ctx := t.Context()
	send(t, s, "repeated", "m", store.Due{})
	send(t, s, "repeated", "n", store.Due{})
	between := &loseFirstReply{UniversalClient: rdb, do: func() {
		if _, err := s.Cancel(ctx, "repeated", store.CancelRequest{IDs: []string{"m"}}); err != nil {
			t.Error(err)
		}
		send(t, s, "repeated", "m", store.Due{Delay: time.Hour})
	}}
	other := newStore(t, between)
	other.preflightDone.Store(true)
	c := claim(t, other, "repeated", 10, time.Minute)
	if len(c.Messages) != 1 || c.Messages[0].ID != "n" {
		t.Errorf("the repeated claim returned %v, want n", c.Messages)
	}
}

// loseFirstReply loses the reply of the first successful call and calls do before the call is repeated.
type loseFirstReply struct {
	redis.UniversalClient
	skip int // number of successful calls that keep their replies
	do   func()
}

func (b *loseFirstReply) Process(ctx context.Context, cmd redis.Cmder) error {
	err := b.UniversalClient.Process(ctx, cmd)
	if b.skip--; err == nil && b.do != nil && b.skip < 0 {
		b.do()
		b.do = nil
		return errLostReply
	}
	return err
}

func TestDeletedQueueIsListedOnceUsedAgain(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	a, b := newStore(t, rdb), newStore(t, rdb)
	listed := func() string {
		names, _, err := a.Queues(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(names, " ")
	}
	send(t, a, "q", "m", store.Due{})
	if err := b.Delete(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	if got := listed(); got != "" {
		t.Errorf("listed after the delete: %s", got)
	}
	send(t, a, "q", "m", store.Due{})
	if got := listed(); got != "q" {
		t.Errorf("listed after the next send: %q", got)
	}
	if err := rdb.Del(t.Context(), "later:queues").Err(); err != nil { // as a failover may do
		t.Fatal(err)
	}
	send(t, newStore(t, rdb), "q", "n", store.Due{})
	if got := listed(); got != "q" {
		t.Errorf("listed after the registry was lost and a new process sent: %q", got)
	}
}
