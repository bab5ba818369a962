package migrate

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redisdump"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// The fixtures in testdata were made by the real libraries: delayqueue*.json by v1.1.2 of hdt3213/delayqueue, and
// asynq.json by the tests in peertest.

// fixtureDue is the due time of the scheduled messages of the fixtures.
var fixtureDue = time.Date(2070, 1, 2, 3, 4, 5, 0, time.UTC)

func TestFromDelayQueueKeepsWhatDelayqueueKnows(t *testing.T) {
	rdb, to := newSource(t, "delayqueue.json"), newMem(t)
	result, err := FromDelayQueue(t.Context(), to, rdb, "orders", DelayQueueConfig{FromConfig: unwatched})
	if err != nil || result.Queues[0].Copied != 5 {
		t.Fatalf("%+v, %v", result, err)
	}
	got := byPayload(t, to, "orders")
	if m := got["pending"]; m.ID != "d43e7332-9330-4752-a21a-05a48510b132" || !m.Due.Equal(fixtureDue) ||
		m.MaxAttempts != 4 || m.Attempts != 0 || m.State != store.StateScheduled ||
		m.ExpireAt.Sub(time.UnixMilli(5048017444999)).Abs() > time.Second {
		t.Errorf("pending: %+v", m)
	}
	if m := got["no retries"]; m.MaxAttempts != 1 || !m.Due.Equal(fixtureDue.Add(time.Hour)) {
		t.Errorf("no retries: %+v", m)
	}
	if m := got["ready \x00\xff bytes"]; m.State != store.StateReady || m.MaxAttempts != 3 || m.Attempts != 0 ||
		m.Delivered {
		t.Errorf("ready: %+v", m)
	}
	// Of 5 retries one was used: it failed once, and 5 deliveries are left.
	if m := got["fails once"]; m.State != store.StateReady || m.Attempts != 1 || m.MaxAttempts != 6 || !m.Delivered ||
		m.LastError != delayqueueFailed {
		t.Errorf("retry: %+v", m)
	}
	again, err := FromDelayQueue(t.Context(), to, rdb, "orders", DelayQueueConfig{FromConfig: unwatched})
	if err != nil || again.Queues[0].Duplicates != 5 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

func TestFromDelayQueueFindsKeysWithAHashTagAndDeletesWhatItCopied(t *testing.T) {
	rdb, to := newSource(t, "delayqueue.json"), newMem(t)
	cfg := DelayQueueConfig{FromConfig: FromConfig{Watch: -1, DeleteSource: true}, Queue: "elsewhere"}
	for _, name := range []string{"tagged", "orders"} {
		if _, err := FromDelayQueue(t.Context(), to, rdb, name, cfg); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(contents(t, to, "elsewhere")); n != 7 {
		t.Errorf("%d messages", n)
	}
	if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("left in the source: %q", keys)
	}
	_, err := FromDelayQueue(t.Context(), to, rdb, "orders", cfg)
	if !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "{dp:orders}") {
		t.Errorf("a queue that does not exist: %v", err)
	}
}

func TestFromDelayQueueRefusesMessagesInProgressUnlessForced(t *testing.T) {
	rdb, to := newSource(t, "delayqueue-busy.json"), newMem(t)
	_, err := FromDelayQueue(t.Context(), to, rdb, "busy", DelayQueueConfig{FromConfig: unwatched})
	if !errors.Is(err, store.ErrLeased) || !strings.Contains(err.Error(), "1 messages of \"dp:busy\" are in progress") {
		t.Errorf("in progress: %v", err)
	}
	dry, err := FromDelayQueue(t.Context(), to, rdb, "busy", DelayQueueConfig{FromConfig: FromConfig{DryRun: true}})
	if !errors.Is(err, store.ErrLeased) || dry.Queues[0].Copied != 1 {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	_, err = FromDelayQueue(t.Context(), to, rdb, "busy", DelayQueueConfig{FromConfig: FromConfig{Force: true}})
	if m := byPayload(t, to, "busy")["in progress"]; err != nil || m.Attempts != 1 || m.MaxAttempts != 3 ||
		!m.Delivered {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestFromDelayQueueCountsWhatDelayqueueHasLostAndKeepsWhatItWouldDelete(t *testing.T) {
	rdb, to := newSource(t, "delayqueue.json"), newMem(t)
	ctx := t.Context()
	const lost, garbage = "d43e7332-9330-4752-a21a-05a48510b132", "32ba82ca-4721-4218-a2b9-37ab0c93f9a8"
	rdb.Del(ctx, "dp:orders:msg:"+lost)
	rdb.ZRem(ctx, "dp:orders:pending", garbage)
	rdb.SAdd(ctx, "dp:orders:garbage", garbage)
	result, err := FromDelayQueue(ctx, to, rdb, "orders", DelayQueueConfig{FromConfig: unwatched})
	if err != nil || result.Queues[0].Lost != 1 || result.Queues[0].Copied != 4 {
		t.Errorf("%+v, %v", result, err)
	}
	if m := contents(t, to, "orders")[garbage]; m.State != store.StateDead || m.DeadReason != store.DeadFailed {
		t.Errorf("garbage: %+v", m)
	}
}

func TestFromAsynqKeepsWhatAsynqKnows(t *testing.T) {
	rdb, to := newSource(t, "asynq.json"), newMem(t)
	result, err := FromAsynq(t.Context(), to, rdb, AsynqConfig{FromConfig: unwatched})
	if err != nil || len(result.Queues) != 2 || result.Queues[0].Copied != 9 || result.Queues[1].Copied != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	wantStates := []FromState{{"pending", 1, false}, {"scheduled", 4, false}, {"retry", 1, false},
		{"archived", 3, false}, {"completed", 1, true}}
	if q := result.Queues[0]; !slices.Equal(q.States, wantStates) || q.Total() != 9 || q.Seen() != 9 {
		t.Errorf("%+v", q)
	}
	got := contents(t, to, "default")
	if m := got["retry-1"]; string(m.Payload) != "fails" || m.Headers["kind"] != "retry" || m.Attempts != 1 ||
		m.MaxAttempts != 8 || m.LastError != "broken by retry" || !m.Due.Equal(fixtureDue) || !m.Delivered {
		t.Errorf("retry: %+v", m)
	}
	if m := got["scheduled-1"]; m.Attempts != 0 || m.MaxAttempts != 4 || !m.Due.Equal(fixtureDue) ||
		m.Timeout != 30*time.Minute || m.Delivered {
		t.Errorf("scheduled: %+v", m)
	}
	if m := got["scheduled-2"]; string(m.Payload) != "bytes \x00\xff" ||
		!m.ExpireAt.Equal(fixtureDue.Add(2*time.Hour)) ||
		m.Timeout != 0 {
		t.Errorf("with a deadline: %+v", m)
	}
	if m := got["headers-1"]; m.Headers["trace"] != "abc" || m.Headers["kind"] != "mail" ||
		m.Headers["asynq-kind"] != "own" {
		t.Errorf("with headers: %+v", m)
	}
	if m := got["report:673eb027e9c056f57140322807351dd5"]; string(m.Payload) != "unique" ||
		m.Headers["asynq-id"] != "unique-1" {
		t.Errorf("unique: %+v", m)
	}
	_, err = to.Queue("default").Send(t.Context(), []byte("unique"),
		later.WithID("report:673eb027e9c056f57140322807351dd5"))
	if !errors.Is(err, later.ErrDuplicate) {
		t.Errorf("a message that is unique was sent again: %v", err)
	}
	for id, want := range map[string]store.Info{
		"archived-1": {Attempts: 1, DeadReason: store.DeadFailed, LastError: "broken by archive"},
		"archived-2": {Attempts: 1, DeadReason: store.DeadFailed,
			LastError: "broken for good: skip retry for the task"},
		"archived-3": {Attempts: 0, DeadReason: store.DeadBuried, LastError: "archived in asynq"},
	} {
		m := got[id]
		if m.State != store.StateDead || m.Attempts != want.Attempts || m.DeadReason != want.DeadReason ||
			m.LastError != want.LastError {
			t.Errorf("%s: %+v, want %+v", id, m, want)
		}
	}
	if m := contents(t, to, "mail")["pending-2"]; m.Timeout != 90*time.Second || m.Due.UnixMilli() != 1795418336773 {
		t.Errorf("pending: %+v", m)
	}
}

func TestFromAsynqKnowsAUniqueTaskAgainWhenItsLockHasEnded(t *testing.T) {
	const lock = "asynq:{default}:unique:report:673eb027e9c056f57140322807351dd5"
	for _, held := range []bool{true, false} { // at the first run
		rdb, to := newSource(t, "asynq.json"), newMem(t)
		if !held {
			rdb.Del(t.Context(), lock)
		}
		if _, err := FromAsynq(t.Context(), to, rdb, AsynqConfig{FromConfig: unwatched}); err != nil {
			t.Fatal(err)
		}
		if held {
			rdb.Del(t.Context(), lock)
		} else {
			rdb.Set(t.Context(), lock, "unique-1", 0)
		}
		result, err := FromAsynq(t.Context(), to, rdb, AsynqConfig{FromConfig: unwatched})
		if err != nil || result.Queues[0].Duplicates != 9 || result.Queues[0].Copied != 0 {
			t.Errorf("%+v, %v", result, err)
		}
	}
}

func TestFromAsynqDeletesTasksWithTheirLocks(t *testing.T) {
	rdb, to := newSource(t, "asynq.json"), newMem(t)
	cfg := AsynqConfig{FromConfig: FromConfig{Watch: -1, DeleteSource: true}, Queues: []string{"default"},
		Queue: "jobs"}
	result, err := FromAsynq(t.Context(), to, rdb, cfg)
	if err != nil || result.Queues[0].Deleted != 9 || result.Queues[0].Queue != "jobs" {
		t.Fatalf("%+v, %v", result, err)
	}
	left := rdb.Keys(t.Context(), "asynq:{default}:*").Val()
	for _, key := range left {
		kept := []string{":completed", ":processed", ":failed", ":t:completed-1"}
		if !slices.ContainsFunc(kept, func(part string) bool { return strings.Contains(key, part) }) {
			t.Errorf("left in the source: %s", key)
		}
	}
	if n := rdb.LLen(t.Context(), "asynq:{mail}:pending").Val(); n != 1 {
		t.Error("another queue was touched")
	}
}

func TestFromAsynqRefusesASourceThatIsInUseUnlessForced(t *testing.T) {
	alive := float64(time.Now().Add(time.Hour).Unix())
	server := "asynq:servers:{host:1:id}"
	for name, test := range map[string]struct {
		set  func(rdb *redis.Client)
		want error
		text string
	}{
		"active": {func(rdb *redis.Client) { rdb.LPush(t.Context(), "asynq:{default}:active", "scheduled-1") },
			store.ErrLeased, "1 active tasks"},
		"scheduler": {func(rdb *redis.Client) {
			rdb.ZAdd(t.Context(), "asynq:schedulers", redis.Z{Score: alive, Member: "asynq:schedulers:{host:7}"})
		}, store.ErrLeased, "scheduler host:7"},
		"server": {func(rdb *redis.Client) {
			rdb.ZAdd(t.Context(), "asynq:servers", redis.Z{Score: alive, Member: server})
			rdb.Set(t.Context(), server, "\x2a\x0b\x0a\x07default\x10\x01", 0)
		}, store.ErrLeased, "server host:1:id handles queue"},
		"groups": {func(rdb *redis.Client) {
			rdb.SAdd(t.Context(), "asynq:{default}:groups", "g")
			rdb.ZAdd(t.Context(), "asynq:{default}:g:g", redis.Z{Score: 1, Member: "x"})
		}, store.ErrUnsupported, "1 tasks that wait in groups"},
	} {
		rdb, to := newSource(t, "asynq.json"), newMem(t)
		test.set(rdb)
		_, err := FromAsynq(t.Context(), to, rdb, AsynqConfig{FromConfig: unwatched})
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", name, err)
		}
		if names, err := to.Queues(t.Context()); err != nil || len(names) > 0 {
			t.Errorf("%s: %q were written: %v", name, names, err)
		}
		result, err := FromAsynq(t.Context(), to, rdb, AsynqConfig{FromConfig: FromConfig{Force: true}})
		if err != nil || result.Queues[0].Copied != 9 {
			t.Errorf("%s, forced: %+v, %v", name, result, err)
		}
	}
}

func TestFromAsynqRefusesWhatItCannotRead(t *testing.T) {
	rdb, to := newSource(t, "asynq.json"), newMem(t)
	rdb.HSet(t.Context(), "asynq:{default}:t:retry-1", "msg", "\xff\xff")
	rdb.Del(t.Context(), "asynq:{default}:t:scheduled-1")
	result, err := FromAsynq(t.Context(), to, rdb, AsynqConfig{FromConfig: unwatched})
	if q := result.Queues[0]; !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), `"retry-1"`) ||
		q.Refused != 1 || q.Lost != 1 || q.Copied != 7 {
		t.Errorf("%+v, %v", q, err)
	}
	for _, cfg := range []AsynqConfig{{Queues: []string{"none"}}, {Queue: "x"}} {
		_, err := FromAsynq(t.Context(), to, rdb, cfg)
		if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func FuzzDecodeAsynqTask(f *testing.F) {
	f.Add([]byte("\x0a\x04mail\x12\x01x\x1a\x02id\x28\x19\x7a\x06\x0a\x01k\x12\x01v"))
	f.Fuzz(func(t *testing.T, data []byte) {
		task, err := decodeAsynqTask(data)
		if err == nil {
			info, _ := task.info(true)
			if store.CheckID(info.ID) != nil {
				t.Errorf("id %q of %q", info.ID, data)
			}
		}
	})
}

func TestPeersAreMigratedFromACluster(t *testing.T) {
	rdb, to := redistest.SharedCluster(t).Client(t), newMem(t)
	for _, fixture := range []string{"delayqueue.json", "asynq.json"} {
		dump, err := os.ReadFile("testdata/" + fixture)
		if err == nil {
			err = redisdump.Load(t.Context(), rdb, dump)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all := FromConfig{Watch: -1, DeleteSource: true}
	for _, name := range []string{"tagged", "orders"} {
		if _, err := FromDelayQueue(t.Context(), to, rdb, name, DelayQueueConfig{FromConfig: all}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := FromAsynq(t.Context(), to, rdb, AsynqConfig{FromConfig: all}); err != nil {
		t.Errorf("asynq: %v", err)
	}
	for queue, want := range map[string]int{"tagged": 2, "orders": 5, "default": 9, "mail": 1} {
		if n := len(contents(t, to, queue)); n != want {
			t.Errorf("%d messages of %s, want %d", n, queue, want)
		}
	}
	if rdb.Exists(t.Context(), "asynq:{default}:t:retry-1").Val()+rdb.Exists(t.Context(), "dp:orders:ready").Val() > 0 {
		t.Error("the source was not deleted")
	}
}
