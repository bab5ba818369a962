package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func newDirectory(s store.Store) *Directory {
	return &Directory{Store: s, Log: slog.New(slog.DiscardHandler), Fault: func(w Info, err error) error {
		return fmt.Errorf("worker %s: %w", w.Name, err)
	}}
}

func wantNoQueue(t *testing.T, d *Directory, worker string) {
	t.Helper()
	if stats, err := d.Store.Stats(t.Context(), reserved.Worker+worker); err != nil || stats.Exists {
		t.Errorf("the queue of worker %s: %+v, %v", worker, stats, err)
	}
}

func TestUnknownWorkerNamesThoseThatAreLiveOnce(t *testing.T) {
	live := []Info{{Name: "a"}, {Name: "a"}, {Name: "b"}}
	if text := unknownWorker(live, "c").Error(); !strings.Contains(text, "live workers: a, b") {
		t.Errorf("error is %q", text)
	}
}

// A worker can end just before a command for it is sent. What the command created is removed.
func TestCommandForAWorkerThatHasEndedLeavesNoQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory(memstore.New())
		if _, err := d.command(t.Context(), Pause, []Info{{ID: "gone", Name: "w"}}); err != nil {
			t.Fatal(err)
		}
		wantNoQueue(t, d, "gone")
	})
}

// brokenListing is a store whose list of workers can be damaged, and whose list of queues begins with an empty page.
type brokenListing struct {
	store.Store
	damaged bool
}

func (l *brokenListing) Properties(ctx context.Context, queue string) (map[string]string, error) {
	if l.damaged {
		return nil, store.ErrCorrupt
	}
	return l.Store.Properties(ctx, queue)
}

func (l *brokenListing) Queues(ctx context.Context, cursor string) ([]string, string, error) {
	switch cursor {
	case "":
		return nil, "first", nil
	case "first":
		cursor = ""
	}
	return l.Store.Queues(ctx, cursor)
}

func TestCommandDoesNotWaitForAListOfWorkersThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory(&brokenListing{Store: memstore.New(), damaged: true})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := d.command(ctx, Pause, []Info{{ID: "w", Name: "w"}})
		if !errors.Is(err, store.ErrCorrupt) || time.Since(begin) > time.Second {
			t.Errorf("error is %v after %v", err, time.Since(begin))
		}
	})
}

func TestRemainsOfDeadWorkersAreFoundOnEveryPageOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirectory(&brokenListing{Store: memstore.New()})
		if _, err := d.Send(t.Context(), Pause, "gone"); err != nil {
			t.Fatal(err)
		}
		if err := d.RemoveOrphans(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantNoQueue(t, d, "gone")
	})
}
