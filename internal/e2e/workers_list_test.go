package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func TestWorkersOfOneProcessObey(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"mem://", "file://" + t.TempDir()} {
		c := open(t, url)
		w := later.NewWorker(c, later.WorkerConfig{Name: "w"})
		handling := make(chan string, 1)
		w.Handle("q", func(_ context.Context, m *later.Message) error { handling <- m.ID; return nil })
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		awaitWorkers(t, c, "one is started", count(1))
		control := func(do later.WorkerCommand) {
			t.Helper()
			if _, err := c.ControlWorkers(bounded(t), do, "w"); err != nil {
				t.Fatalf("%s: %v", do, err)
			}
		}
		control(later.CommandPause)
		if !w.Paused() {
			t.Errorf("%s: the worker is not paused", url)
		}
		control(later.CommandResume)
		id := send(t, c.Queue("q"), "")
		select {
		case got := <-handling:
			if got != id {
				t.Errorf("%s: message %s was handled", url, got)
			}
		case <-time.After(patience):
			t.Fatalf("%s: no message was handled", url)
		}
		control(later.CommandRestart)
		select {
		case err := <-ended:
			if !errors.Is(err, later.ErrRestart) {
				t.Errorf("%s: Run returned %v", url, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s: Run did not return", url)
		}
		awaitWorkers(t, c, "it has ended", count(0))
		if queues, err := c.Queues(bounded(t)); err != nil || len(queues) != 1 {
			t.Errorf("%s: queues are %q, %v; want q", url, queues, err)
		}
	}
}

// TestThousandWorkersAreListedByTwoCommands fills the list with records of one real worker.
func TestThousandWorkersAreListedByTwoCommands(t *testing.T) {
	t.Parallel()
	srv, j := redistest.Start(t), newJournal()
	c := open(t, srv.URL())
	startConsumer(t, j, "worker", consumer{URL: srv.URL(), Queues: []string{"q"}})
	w := awaitWorkers(t, c, "one is started", count(1))[0]
	const index = "worker:"
	records, err := c.Store().Properties(bounded(t), index)
	if err != nil {
		t.Fatal(err)
	}
	const others = store.MaxProperties - 1
	for i := 0; i < others; {
		set := map[string]string{}
		for ; i < others && len(set) < 500; i++ {
			set[fmt.Sprint("other", i)] = records[w.ID]
		}
		if err := c.Store().SetProperties(bounded(t), index, set, nil); err != nil {
			t.Fatal(err)
		}
	}
	m := startMonitor(t, srv)
	all, err := c.Workers(bounded(t))
	if err != nil || len(all) != store.MaxProperties {
		t.Fatalf("%d workers are listed, %v; want %d", len(all), err, store.MaxProperties)
	}
	const mark = "they are listed"
	if err := srv.Client(t).Echo(bounded(t), mark).Err(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, command := range m.until(mark) {
		if strings.Contains(command, "{"+index+"}") {
			n++
		}
	}
	if n == 0 || n > 3 { // one may be a heartbeat
		t.Errorf("listing took %d commands; want 2", n)
	}
}
