package migrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redisdump"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// unwatched saves the time of watching an unused source.
var unwatched = FromConfig{Watch: -1}

// newSource returns an empty Redis, or one with the keys of a fixture.
func newSource(t *testing.T, fixture string) *redis.Client {
	t.Helper()
	rdb := redistest.Start(t).Client(t)
	if fixture != "" {
		dump, err := os.ReadFile("testdata/" + fixture)
		if err == nil {
			err = redisdump.Load(t.Context(), rdb, dump)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return rdb
}

// zadd adds members with scores.
func zadd(t *testing.T, rdb *redis.Client, scores map[string]float64) {
	t.Helper()
	for member, score := range scores {
		if err := rdb.ZAdd(t.Context(), "jobs", redis.Z{Score: score, Member: member}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// byPayload returns the messages of a queue by payload.
func byPayload(t *testing.T, c *later.Client, queue string) map[string]store.Info {
	t.Helper()
	all := map[string]store.Info{}
	for _, info := range contents(t, c, queue) {
		all[string(info.Payload)] = info
	}
	return all
}

func TestFromZSetTakesMembersAsPayloadsAndScoresAsDueTimes(t *testing.T) {
	for name, test := range map[string]struct {
		unit   time.Duration
		scores map[string]float64
		due    map[string]int64 // in milliseconds
	}{
		"seconds": {
			scores: map[string]float64{"a": 3155857445, "b": 3155857445.0625, "past": 1000, "now": 0, "before": -5},
			due:    map[string]int64{"a": 3155857445000, "b": 3155857445063, "past": 1000000, "now": 1, "before": 1},
		},
		"milliseconds": {
			scores: map[string]float64{"a": 3155857445001, "b": 1600000000000},
			due:    map[string]int64{"a": 3155857445001, "b": 1600000000000},
		},
		"a given unit": {
			unit:   time.Millisecond,
			scores: map[string]float64{"a": 5000, "b": 1600000000000},
			due:    map[string]int64{"a": 5000, "b": 1600000000000},
		},
	} {
		rdb, to := newSource(t, ""), newMem(t)
		zadd(t, rdb, test.scores)
		result, err := FromZSet(t.Context(), to, rdb, "jobs", ZSetConfig{FromConfig: unwatched, Unit: test.unit})
		if err != nil || result.Queues[0].Copied != int64(len(test.scores)) {
			t.Fatalf("%s: %+v, %v", name, result, err)
		}
		got := byPayload(t, to, "jobs")
		for member, due := range test.due {
			if got[member].Due.UnixMilli() != due {
				t.Errorf("%s: %s is due at %d, want %d", name, member, got[member].Due.UnixMilli(), due)
			}
		}
		if n := rdb.ZCard(t.Context(), "jobs").Val(); n != int64(len(test.scores)) {
			t.Errorf("%s: the source has %d", name, n)
		}
	}
}

func TestFromZSetRefusesScoresAndKeysThatItDoesNotUnderstand(t *testing.T) {
	rdb, to := newSource(t, ""), newMem(t)
	refuse := func(want error, text string, key string, cfg ZSetConfig) {
		t.Helper()
		if _, err := FromZSet(t.Context(), to, rdb, key, cfg); !errors.Is(err, want) ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("%v, want %v with %q", err, want, text)
		}
	}
	refuse(store.ErrNotFound, `"jobs"`, "jobs", ZSetConfig{})
	zadd(t, rdb, map[string]float64{"a": 1600000000, "b": 1600000000000})
	refuse(store.ErrInvalid, "partly seconds and partly milliseconds", "jobs", ZSetConfig{})
	zadd(t, rdb, map[string]float64{"a": 1600000000000000, "b": 1600000000000001})
	refuse(store.ErrInvalid, "neither seconds nor milliseconds", "jobs", ZSetConfig{})
	refuse(store.ErrInvalid, "unit of scores", "jobs", ZSetConfig{Unit: time.Minute})
	refuse(store.ErrInvalid, "hash, member or json:FIELD", "jobs", ZSetConfig{IDFrom: "json:"})
	rdb.RPush(t.Context(), "list", "x")
	refuse(store.ErrInvalid, "is a list", "list", ZSetConfig{})
	rdb.ZAdd(t.Context(), "{jobs}", redis.Z{Score: 1, Member: "x"})
	refuse(store.ErrInvalid, "needs another name", "{jobs}", ZSetConfig{})
	if names, err := to.Queues(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("%q were written: %v", names, err)
	}
}

func TestFromZSetTakesIDsFromMembers(t *testing.T) {
	rdb, to := newSource(t, ""), newMem(t)
	zadd(t, rdb, map[string]float64{
		`{"id":"order-7","n":1}`: 3e9, `{"id":8}`: 3e9, `{"id":"order-7","n":2}`: 3e9 + 1, `{}`: 3e9, `text`: 3e9,
	})
	cfg := ZSetConfig{FromConfig: FromConfig{Watch: -1, DeleteSource: true}, IDFrom: "json:id", Queue: "orders"}
	result, err := FromZSet(t.Context(), to, rdb, "jobs", cfg)
	if !errors.Is(err, store.ErrDuplicate) || !errors.Is(err, store.ErrInvalid) {
		t.Errorf("error %v", err)
	}
	q := result.Queues[0]
	if q.Copied != 2 || q.Conflicts != 1 || q.Refused != 2 || q.Deleted != 2 || q.Queue != "orders" {
		t.Errorf("%+v", q)
	}
	got := contents(t, to, "orders")
	if string(got["order-7"].Payload) != `{"id":"order-7","n":1}` || string(got["8"].Payload) != `{"id":8}` {
		t.Errorf("messages %v", got)
	}
	if left := rdb.ZRange(t.Context(), "jobs", 0, -1).Val(); len(left) != 3 {
		t.Errorf("left in the source: %q", left)
	}
	zadd(t, rdb, map[string]float64{"plain": 3e9})
	rdb.ZRem(t.Context(), "jobs", `{"id":"order-7","n":2}`, `{}`, `text`)
	if _, err := FromZSet(t.Context(), to, rdb, "jobs",
		ZSetConfig{FromConfig: unwatched, IDFrom: "member"}); err != nil {
		t.Error(err)
	}
	if _, found := contents(t, to, "jobs")["plain"]; !found {
		t.Error("the member is not the id")
	}
}

func TestMigrationThatWasStoppedContinues(t *testing.T) {
	const n = 3 * fromPage
	for _, remove := range []bool{false, true} {
		rdb, to := newSource(t, ""), newMem(t)
		for i := range n {
			zadd(t, rdb, map[string]float64{"m" + strconv.Itoa(i): 3e9 + float64(i)})
		}
		ctx, cancel := context.WithCancel(t.Context())
		cfg := ZSetConfig{FromConfig: FromConfig{Watch: -1, DeleteSource: remove,
			Progress: func(FromQueue) { cancel() }}}
		first, err := FromZSet(ctx, to, rdb, "jobs", cfg)
		if !errors.Is(err, context.Canceled) || first.Queues[0].Copied != fromPage {
			t.Fatalf("stopped: %+v, %v", first, err)
		}
		cfg.Progress = nil
		second, err := FromZSet(t.Context(), to, rdb, "jobs", cfg)
		if err != nil || second.Queues[0].Copied != n-fromPage {
			t.Fatalf("continued: %+v, %v", second, err)
		}
		duplicates, left := int64(fromPage), int64(n)
		if remove {
			duplicates, left = 0, 0
		}
		if got := second.Queues[0].Duplicates; got != duplicates {
			t.Errorf("%d duplicates, want %d", got, duplicates)
		}
		if got := rdb.ZCard(t.Context(), "jobs").Val(); got != left {
			t.Errorf("%d in the source, want %d", got, left)
		}
		if got := len(contents(t, to, "jobs")); got != n {
			t.Errorf("%d in the target, want %d", got, n)
		}
	}
}

func TestMigrationDryRunCountsAndShowsTheFirstTen(t *testing.T) {
	rdb, to := newSource(t, ""), newMem(t)
	for i := range 2 * fromPage {
		zadd(t, rdb, map[string]float64{"m" + strconv.Itoa(i): 3e9 - float64(i)})
	}
	zadd(t, rdb, map[string]float64{strings.Repeat("x", store.MaxPayload+1): 3e9})
	cfg := ZSetConfig{FromConfig: FromConfig{DryRun: true, DeleteSource: true}}
	result, err := FromZSet(t.Context(), to, rdb, "jobs", cfg)
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("error %v", err)
	}
	q := result.Queues[0]
	if q.Copied != 2*fromPage || q.Refused != 1 || q.Deleted != 0 || q.States[0].Count != 2*fromPage+1 {
		t.Errorf("%+v", q)
	}
	if len(result.First) != 10 {
		t.Fatalf("%d messages are shown", len(result.First))
	}
	for i, first := range result.First {
		if want := "m" + strconv.Itoa(2*fromPage-1-i); string(first.Info.Payload) != want || first.State != "waiting" {
			t.Errorf("message %d is %s, want %s", i, first.Info.Payload, want)
		}
	}
	if names, err := to.Queues(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("written: %q, %v", names, err)
	}
	if n := rdb.ZCard(t.Context(), "jobs").Val(); n != q.States[0].Count {
		t.Errorf("the source has %d", n)
	}
}

func TestMigrationSourceThatChangesIsInUse(t *testing.T) {
	rdb, to := newSource(t, ""), newMem(t)
	add := func(i int) error {
		return rdb.ZAdd(context.Background(), "jobs",
			redis.Z{Score: 3e9 + float64(i), Member: fmt.Sprint("m", i)}).Err()
	}
	if err := add(0); err != nil {
		t.Fatal(err)
	}
	// While it is watched: nothing is written.
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
				if err := add(i); err != nil {
					stopped <- err
					return
				}
			}
		}
	}()
	result, err := FromZSet(t.Context(), to, rdb, "jobs", ZSetConfig{})
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, store.ErrLeased) || !strings.Contains(err.Error(), "changed while it was watched") ||
		len(result.Queues) > 0 {
		t.Errorf("%+v, %v", result, err)
	}
	// During a copy: the messages that were found are copied, and the error says so.
	cfg := ZSetConfig{FromConfig: FromConfig{Watch: -1, Progress: func(FromQueue) {
		rdb.ZRem(context.Background(), "jobs", "m0")
	}}}
	result, err = FromZSet(t.Context(), to, rdb, "jobs", cfg)
	if !errors.Is(err, store.ErrLeased) || !strings.Contains(err.Error(), "and now has") ||
		result.Queues[0].Copied == 0 {
		t.Errorf("%+v, %v", result, err)
	}
	cfg.Force = true
	cfg.Progress = func(FromQueue) { rdb.ZRem(context.Background(), "jobs", "m1") }
	if _, err := FromZSet(t.Context(), to, rdb, "jobs", cfg); err != nil {
		t.Errorf("forced: %v", err)
	}
}

func TestWhatTheTargetHandledStaysInTheSourceUntilItIsDeleted(t *testing.T) {
	rdb, to := newSource(t, ""), newMem(t)
	zadd(t, rdb, map[string]float64{"x": 1})
	cfg := ZSetConfig{FromConfig: FromConfig{Watch: -1, DeleteSource: true}}
	if _, err := FromZSet(t.Context(), to, rdb, "jobs", ZSetConfig{FromConfig: unwatched}); err != nil {
		t.Fatal(err)
	}
	// A retry at the target must not make the entry of the source another message.
	got, err := to.Queue("jobs").Receive(t.Context(), 1)
	if err != nil || len(got) != 1 || got[0].Nack(t.Context(), time.Hour, errors.New("fails")) != nil {
		t.Fatalf("received %v, %v", got, err)
	}
	result, err := FromZSet(t.Context(), to, rdb, "jobs", cfg)
	if err != nil || result.Queues[0].Duplicates != 1 || result.Queues[0].Deleted != 1 {
		t.Errorf("%+v, %v", result, err)
	}
}
