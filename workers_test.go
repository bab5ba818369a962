package later

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// startRunning starts a worker of the queue q, and returns when it is listed and waits for messages.
func startRunning(t *testing.T, c *Client, cfg WorkerConfig) (w *Worker, result chan error) {
	t.Helper()
	w = NewWorker(c, cfg)
	w.Handle("q", func(ctx context.Context, _ *Message) error { return sleep(ctx, 20*time.Second) })
	ctx, cancel := context.WithCancel(context.Background())
	result = make(chan error, 1)
	go func() { result <- w.Run(ctx) }()
	t.Cleanup(cancel)
	synctest.Wait()
	return w, result
}

func mustWorkers(t *testing.T, c *Client) []WorkerInfo {
	t.Helper()
	all, err := c.Workers(t.Context())
	if err != nil {
		t.Fatalf("Workers: %v", err)
	}
	return all
}

// wantWorkers checks the names of the live workers, with their states if they do not run.
func wantWorkers(t *testing.T, c *Client, want ...string) []WorkerInfo {
	t.Helper()
	all := mustWorkers(t, c)
	var got []string
	for _, w := range all {
		text := w.Name
		if w.State != WorkerRunning {
			text += " " + string(w.State)
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("live workers are %q; want %q", got, want)
	}
	return all
}

func TestWorkersListsWhatAWorkerIs(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Concurrency: 3, Version: "v1.2.3"})
		w.Handle("b", ignore)
		w.Handle("a", ignore)
		w.Forward("c", ToQueue("d"))
		begin := time.Now()
		stop := start(t, w)
		synctest.Wait()
		all := mustWorkers(t, c)
		if len(all) != 1 {
			t.Fatalf("live workers are %+v; want one", all)
		}
		got := all[0]
		host, _ := os.Hostname()
		if got.Host != host || got.PID != os.Getpid() || got.Name != fmt.Sprint(host, ":", got.PID) {
			t.Errorf("name, host and PID are %q, %q, %d", got.Name, got.Host, got.PID)
		}
		if got.Version != "v1.2.3" || got.Concurrency != 3 || got.State != WorkerRunning || got.HeldCount != 0 {
			t.Errorf("got %+v", got)
		}
		if !slices.Equal(got.Queues, []string{"a", "b", "c"}) || got.QueueCount != 3 {
			t.Errorf("queues are %q, %d", got.Queues, got.QueueCount)
		}
		if got.ID == "" || got.Process == "" || !got.Started.Equal(begin) || !got.Heartbeat.Equal(begin) ||
			!got.Now.Equal(begin) {
			t.Errorf("got %+v, began at %v", got, begin)
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		wantWorkers(t, c)
		if queues, err := c.Queues(t.Context()); err != nil || len(queues) != 0 {
			t.Errorf("queues are %q, %v; want none of the workers'", queues, err)
		}
	})
}

func TestWorkersCountsWhatIsForwarded(t *testing.T) {
	inDelivering(t, func(t *testing.T, f *delivering) {
		proceed := make(chan struct{})
		f.start(t, WorkerConfig{}, func(_ context.Context, msgs []*Message) []error {
			<-proceed
			return nil
		})
		if _, err := f.q.SendBatch(t.Context(), make([]Outgoing, 5)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := func(n int) {
			t.Helper()
			all, err := f.client.ReportWorkers(t.Context(), 0)
			if err != nil || len(all) != 1 || all[0].Forwarding != n || all[0].HeldCount != 0 {
				t.Errorf("%+v, %v; want a worker that forwards %d messages", all, err, n)
			} else if f := all[0].Forwards; len(f) != 1 || f[0].Queue != "q" || f[0].To == "" {
				t.Errorf("forwards %+v", f)
			}
		}
		want(5)
		close(proceed)
		synctest.Wait()
		want(0)
	})
}

func TestWorkersShowsWhatHandlersHoldLongest(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Concurrency: 1000})
		w.Handle("q", func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Hour) })
		start(t, w)
		mustSend(t, c.Queue("q"), "", WithID("first"))
		synctest.Wait()
		began := time.Now()
		time.Sleep(5 * time.Second)
		msgs := make([]Outgoing, 500)
		if _, err := c.Queue("q").SendBatch(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := mustWorkers(t, c)[0]; got.HeldCount > 1 {
			t.Errorf("%d messages are held as of the heartbeat before them", got.HeldCount)
		}
		all, err := c.ReportWorkers(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		got := all[0]
		want := HeldMessage{Queue: "q", ID: "first", Attempt: 1, Since: began}
		if !got.Held[0].Since.Equal(began) || got.Held[0].ID != want.ID || got.Held[0].Queue != want.Queue ||
			got.Held[0].Attempt != want.Attempt {
			t.Errorf("the message that is held longest is %+v; want %+v", got.Held[0], want)
		}
		if got.HeldCount != 501 || len(got.Held) < 50 || len(got.Held) > fleet.MaxHeld {
			t.Errorf("%d messages are held and %d shown", got.HeldCount, len(got.Held))
		}
	})
}

// addHandler adds a handler for the queue q.
func addHandler(w *Worker) *Worker {
	w.Handle("q", ignore)
	return w
}

func TestControlWorkersPausesAndResumes(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w, _ := startRunning(t, c, WorkerConfig{Name: "w"})
		told, err := c.ControlWorkers(t.Context(), CommandPause, "w")
		if err != nil || len(told) != 1 || told[0].Name != "w" {
			t.Fatalf("ControlWorkers: %v, %v", told, err)
		}
		synctest.Wait()
		wantWorkers(t, c, "w paused")
		if !w.Paused() {
			t.Error("the worker is not paused")
		}
		mustSend(t, c.Queue("q"), "")
		time.Sleep(time.Hour)
		wantCounts(t, c.Queue("q"), 0, 1, 0, 0)
		if _, err := c.ControlWorkers(t.Context(), CommandResume, told[0].ID); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantWorkers(t, c, "w")
		wantCounts(t, c.Queue("q"), 0, 0, 1, 0)
	})
}

func TestControlWorkersDrainsAndRestarts(t *testing.T) {
	for do, want := range map[WorkerCommand]error{CommandDrain: nil, CommandRestart: ErrRestart} {
		inBubble(t, func(t *testing.T, c *Client) {
			_, result := startRunning(t, c, WorkerConfig{Name: "w"})
			mustSend(t, c.Queue("q"), "")
			synctest.Wait()
			begin := time.Now()
			if _, err := c.ControlWorkers(t.Context(), do, "w"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			wantWorkers(t, c, "w draining")
			if err := <-result; err != want || time.Since(begin) < 19*time.Second {
				t.Errorf("%s: Run returned %v after %v", do, err, time.Since(begin))
			}
			wantWorkers(t, c)
			wantCounts(t, c.Queue("q"), 0, 0, 0, 0)
		})
	}
}

func TestControlWorkersReturnsWhatOnCommandRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		var asked log[WorkerCommand]
		startRunning(t, c, WorkerConfig{Name: "w", OnCommand: func(do WorkerCommand) error {
			asked.add(do)
			return errors.New("not on a Friday " + strings.Repeat("ä", 3000))
		}})
		if _, err := c.ReportWorkers(t.Context(), 0); err != nil {
			t.Errorf("ReportWorkers: %v", err)
		}
		_, err := c.ControlWorkers(t.Context(), CommandRestart, "w")
		if err == nil || !strings.HasPrefix(err.Error(), "worker w: refused: not on a Friday") {
			t.Errorf("ControlWorkers: %v", err)
		}
		wantWorkers(t, c, "w")
		if got := asked.list(); !slices.Equal(got, []WorkerCommand{CommandRestart}) {
			t.Errorf("OnCommand was called with %q", got)
		}
	})
}

func TestControlWorkersRefusesWhatItCannotSend(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		_, err := c.ControlWorkers(t.Context(), CommandDrain, "a")
		wantError(t, err, ErrNotFound)
		startRunning(t, c, WorkerConfig{Name: "a"})
		startRunning(t, c, WorkerConfig{Name: "b"})
		_, err = c.ControlWorkers(t.Context(), CommandDrain, "a", "x")
		if wantError(t, err, ErrNotFound); !strings.Contains(err.Error(), `no worker "x"; live workers: a, b`) {
			t.Errorf("error is %v", err)
		}
		_, err = c.ControlWorkers(t.Context(), "explode", "a")
		wantError(t, err, ErrInvalid)
		_, err = c.ControlWorkers(t.Context(), CommandDrain)
		wantError(t, err, ErrInvalid)
		wantWorkers(t, c, "a", "b")
		for _, cfg := range []WorkerConfig{
			{Name: strings.Repeat("n", store.MaxWorkerName+1)}, {Version: "1\n"}, {Name: "\xff"},
		} {
			w := NewWorker(c, cfg)
			w.Handle("q", ignore)
			wantError(t, w.Run(t.Context()), ErrInvalid)
		}
		for _, queue := range []string{"worker:", "worker:x"} {
			_, err := c.Queue(queue).Send(t.Context(), nil)
			wantError(t, err, ErrInvalid)
			w := NewWorker(c, WorkerConfig{})
			w.Handle(queue, ignore)
			wantError(t, w.Run(t.Context()), ErrInvalid)
			wantError(t, c.Topic("t").Subscribe(t.Context(), queue), ErrInvalid)
		}
	})
}

func TestControlWorkersNamesThoseThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c, deaf := newClientOn(t, f.Store), newClientOn(t, f)
		startRunning(t, deaf, WorkerConfig{Name: "deaf"})
		startRunning(t, c, WorkerConfig{Name: "hears"})
		f.set(unavailable("claim of workers", "wait of workers"), nil)
		mustSendCommand(t, c, "deaf") // has it claim, and fail
		_, err := c.ControlWorkers(t.Context(), CommandPause, "deaf", "hears")
		wantError(t, err, ErrUnavailable)
		if failed, ok := errors.AsType[*WorkerError](err); !ok || failed.Worker.Name != "deaf" ||
			err.Error() != "worker deaf: does not answer" {
			t.Errorf("error is %v", err)
		}
		wantWorkers(t, c, "deaf", "hears paused")
		begin := time.Now()
		all, err := c.ReportWorkers(t.Context(), 3*time.Second)
		if err != nil || len(all) != 2 || time.Since(begin) != 3*time.Second {
			t.Errorf("ReportWorkers: %v, %v after %v", all, err, time.Since(begin))
		}
	})
}

// mustSendCommand sends a command to the named worker and does not wait for it.
func mustSendCommand(t *testing.T, c *Client, name string) {
	t.Helper()
	for _, w := range mustWorkers(t, c) {
		if w.Name == name {
			if _, err := c.fleet.Send(t.Context(), fleet.Report, w.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestWorkersOfAThousandAreListedAndTheNextOneIsNot(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		fill := func(expires time.Time) {
			text := fmt.Sprintf(`{"name":"other","state":"running","expires":%q}`, expires.Format(time.RFC3339))
			for i := range store.MaxProperties / store.MaxBatch {
				set := map[string]string{}
				for j := range store.MaxBatch {
					set[fmt.Sprint("other", i*store.MaxBatch+j)] = text
				}
				if err := c.store.SetProperties(t.Context(), reserved.Worker, set, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		fill(time.Now().Add(time.Hour))
		startRunning(t, c, WorkerConfig{Name: "one too many"})
		if all := mustWorkers(t, c); len(all) != store.MaxProperties {
			t.Errorf("%d workers are listed; want %d", len(all), store.MaxProperties)
		}
		fill(time.Now().Add(-time.Hour)) // they are dead, and make room
		time.Sleep(2 * fleet.BeatEvery)
		wantWorkers(t, c, "one too many")
	})
}

func TestWorkersSkipsARecordThatItCannotRead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		set := map[string]string{"x": "no JSON", "y": `{"held":[1]}`}
		if err := c.store.SetProperties(t.Context(), reserved.Worker, set, nil); err != nil {
			t.Fatal(err)
		}
		startRunning(t, c, WorkerConfig{Name: "w"})
		wantWorkers(t, c, "w")
	})
}
