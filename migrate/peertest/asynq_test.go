package peertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redisdump"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/migrate"
)

var update = flag.Bool("update", false, "write ../testdata/asynq.json")

// patience bounds every wait.
const patience = 30 * time.Second

var at = time.Date(2070, 1, 2, 3, 4, 5, 0, time.UTC)

// quiet is a logger for servers of asynq.
type quiet struct{ t *testing.T }

func (quiet) Debug(...any)        {}
func (quiet) Info(...any)         {}
func (quiet) Warn(...any)         {}
func (q quiet) Error(args ...any) { q.t.Log(args...) }
func (q quiet) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// fill has asynq make tasks in every state except active, in the queues default and mail.
func fill(t *testing.T, rdb *redis.Client) {
	t.Helper()
	client := asynq.NewClientFromRedisClient(rdb)
	enqueue := func(kind, payload string, opts ...asynq.Option) {
		t.Helper()
		if _, err := client.Enqueue(asynq.NewTask(kind, []byte(payload)), opts...); err != nil {
			t.Fatal(err)
		}
	}
	// These are handled once by a server that is then stopped.
	enqueue("retry", "fails", asynq.TaskID("retry-1"), asynq.MaxRetry(7))
	enqueue("archive", "fails for good", asynq.TaskID("archived-1"), asynq.MaxRetry(0))
	enqueue("skip", "is not retried", asynq.TaskID("archived-2"), asynq.MaxRetry(5))
	enqueue("done", "succeeds", asynq.TaskID("completed-1"), asynq.Retention(60*365*24*time.Hour))
	serve(t, rdb, 4)

	enqueue("mail", "pending", asynq.TaskID("pending-1"))
	enqueue("mail", "pending, too", asynq.TaskID("pending-2"), asynq.Timeout(90*time.Second), asynq.Queue("mail"))
	enqueue("mail", "scheduled", asynq.TaskID("scheduled-1"), asynq.ProcessAt(at), asynq.MaxRetry(3))
	enqueue("mail", "bytes \x00\xff", asynq.TaskID("scheduled-2"), asynq.ProcessAt(at.Add(time.Hour)),
		asynq.Deadline(at.Add(2*time.Hour)))
	enqueue("report", "unique", asynq.TaskID("unique-1"), asynq.Unique(60*365*24*time.Hour), asynq.ProcessAt(at))
	task := asynq.NewTaskWithHeaders("mail", []byte("headers"), map[string]string{"trace": "abc", "kind": "own"})
	if _, err := client.Enqueue(task, asynq.TaskID("headers-1"), asynq.ProcessAt(at)); err != nil {
		t.Fatal(err)
	}
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	enqueue("mail", "archived by hand", asynq.TaskID("archived-3"), asynq.ProcessAt(at))
	if err := inspector.ArchiveTask("default", "archived-3"); err != nil {
		t.Fatal(err)
	}
}

// serve has a server handle n tasks of the default queue once.
func serve(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	handled := make(chan string, n)
	server := newServer(t, rdb)
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		handled <- task.Type()
		switch task.Type() {
		case "done":
			return nil
		case "skip":
			return fmt.Errorf("broken for good: %w", asynq.SkipRetry)
		}
		return errors.New("broken by " + task.Type())
	}))
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		select {
		case <-handled:
		case <-time.After(patience):
			t.Fatal("the server handled too few tasks")
		}
	}
	server.Shutdown()
}

func newServer(t *testing.T, rdb *redis.Client) *asynq.Server {
	return asynq.NewServerFromRedisClient(rdb, asynq.Config{
		Concurrency: 4, Queues: map[string]int{"default": 1}, Logger: quiet{t}, LogLevel: asynq.ErrorLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Until(at) },
	})
}

func newTarget(t *testing.T) *later.Client {
	t.Helper()
	c, err := later.Open(t.Context(), "mem://")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTasksOfAsynqKeepWhatAsynqKnowsOfThem(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	fill(t, rdb)
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	to := newTarget(t)
	result, err := migrate.FromAsynq(t.Context(), to, rdb, migrate.AsynqConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Queues) != 2 || result.Queues[0].Copied != 9 || result.Queues[1].Copied != 1 {
		t.Fatalf("%+v", result)
	}
	for queue, list := range map[string][]func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
		"default": {inspector.ListPendingTasks, inspector.ListScheduledTasks, inspector.ListRetryTasks,
			inspector.ListArchivedTasks},
		"mail": {inspector.ListPendingTasks},
	} {
		for _, tasks := range list {
			infos, err := tasks(queue)
			if err != nil || len(infos) == 0 {
				t.Fatalf("asynq lists %d tasks: %v", len(infos), err)
			}
			for _, task := range infos {
				compare(t, to.Queue(queue), task)
			}
		}
	}
}

// compare compares a message with its task as asynq's Inspector shows it.
func compare(t *testing.T, q *later.Queue, task *asynq.TaskInfo) {
	t.Helper()
	id := task.ID
	if strings.HasPrefix(id, "unique") {
		id = "report:673eb027e9c056f57140322807351dd5" // md5("unique")
	}
	got, err := q.Get(t.Context(), id)
	if err != nil {
		t.Errorf("%s: %v", id, err)
		return
	}
	if string(got.Payload) != string(task.Payload) || got.Headers["kind"] != task.Type ||
		got.MaxAttempts != task.MaxRetry+1 || got.LastError != task.LastErr && task.LastErr != "" {
		t.Errorf("%s: %+v, want %+v", id, got, task)
	}
	attempts := task.Retried
	if task.State == asynq.TaskStateArchived && task.LastErr != "" {
		attempts++ // asynq counts retries
	}
	if got.Attempts != attempts {
		t.Errorf("%s: %d failed attempts, want %d", id, got.Attempts, attempts)
	}
	switch task.State {
	case asynq.TaskStateArchived:
		if got.State != later.StateDead || !task.LastFailedAt.IsZero() && !got.DiedAt.Equal(task.LastFailedAt) {
			t.Errorf("%s: %s, died at %v, want %v", id, got.State, got.DiedAt, task.LastFailedAt)
		}
	case asynq.TaskStatePending:
		if got.State != later.StateReady {
			t.Errorf("%s: %s", id, got.State)
		}
	default:
		if got.State != later.StateScheduled || !got.Due.Equal(task.NextProcessAt) {
			t.Errorf("%s: %s, due %v, want %v", id, got.State, got.Due, task.NextProcessAt)
		}
	}
}

func TestAsynqServerThatRunsIsAnError(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	fill(t, rdb)
	began, release := make(chan bool), make(chan bool)
	server := newServer(t, rdb)
	if err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		began <- true
		<-release
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	<-began
	to := newTarget(t)
	_, err := migrate.FromAsynq(t.Context(), to, rdb, migrate.AsynqConfig{})
	if !errors.Is(err, later.ErrLeased) || !strings.Contains(err.Error(), "the asynq server") {
		t.Errorf("while a server runs: %v", err)
	}
	if names, err := to.Queues(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("queues %q were written: %v", names, err)
	}
	close(release)
	server.Shutdown()
	if _, err := migrate.FromAsynq(t.Context(), to, rdb, migrate.AsynqConfig{}); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

func TestFixture(t *testing.T) {
	if !*update {
		t.Skip("writes the fixture only with -update")
	}
	rdb := redistest.Start(t).Client(t)
	fill(t, rdb)
	dump, err := redisdump.Dump(t.Context(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("../testdata/asynq.json", dump, 0o644); err != nil {
		t.Fatal(err)
	}
}
