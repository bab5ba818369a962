package later

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestWorkerDoesNotObeyACommandThatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c, deaf := newClientOn(t, f.Store), newClientOn(t, f)
		var obeyed log[WorkerCommand]
		obey := func(do WorkerCommand) error { obeyed.add(do); return nil }
		startRunning(t, deaf, WorkerConfig{Name: "deaf", OnCommand: obey})
		f.set(unavailable("claim of workers", "wait of workers"), nil)
		mustSendCommand(t, c, "deaf") // has it claim, and fail
		if _, err := c.ControlWorkers(t.Context(), CommandDrain, "deaf"); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("ControlWorkers returned %v", err)
		}
		time.Sleep(fleet.CommandExpiry)
		f.set(nil, nil)
		time.Sleep(5 * time.Minute)
		if got := obeyed.list(); len(got) > 0 {
			t.Errorf("the worker obeyed %q", got)
		}
		wantWorkers(t, c, "deaf")
		if _, err := c.ControlWorkers(t.Context(), CommandPause, "deaf"); err != nil {
			t.Errorf("a new command: %v", err)
		}
	})
}

// A worker that is cut off for longer than a lease, and for less than two, keeps its record and its commands.
func TestWorkerThatReturnsWithinTheSecondLeaseFindsItsCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c, cut := newClientOn(t, f.Store), newClientOn(t, f)
		startRunning(t, cut, WorkerConfig{Name: "w"})
		id := wantWorkers(t, c, "w")[0].ID
		f.set(unavailable(), nil)
		time.Sleep(2*fleet.Lease - fleet.BeatEvery - time.Second)
		if _, err := c.fleet.Send(t.Context(), CommandPause, id); err != nil {
			t.Fatal(err)
		}
		wantWorkers(t, c) // removes dead workers
		if all, err := f.Store.Properties(t.Context(), reserved.Worker); err != nil || len(all) != 1 {
			t.Errorf("records are %q, %v; want that of the worker that is cut off", all, err)
		}
		f.set(nil, nil)
		time.Sleep(time.Minute)
		wantWorkers(t, c, "w paused")
	})
}

// unlisting is a store that refuses the records of workers, and counts the removals of records.
type unlisting struct {
	store.Store
	removals atomic.Int32
}

func (u *unlisting) SetProperties(
	_ context.Context, _ string, set map[string]string, _ *store.Condition,
) error {
	for _, text := range set {
		if text == "" {
			u.removals.Add(1)
		}
	}
	return store.ErrUnavailable
}

func TestWorkerThatCannotBeListedDoesNotTryToLeaveTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unlisting{Store: memstore.New()}
		stop := start(t, addHandler(NewWorker(newClientOn(t, u), WorkerConfig{Name: "w"})))
		time.Sleep(time.Minute)
		if err := stop(); err != nil || u.removals.Load() > 0 {
			t.Errorf("Run returned %v after %d calls to leave the list; want none", err, u.removals.Load())
		}
	})
}

func TestWorkerWhoseWaitsForCommandsFailSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged lockedBuffer
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f, WithLogger(logged.logger()))
		start(t, addHandler(NewWorker(c, WorkerConfig{Name: "w"})))
		time.Sleep(time.Minute)
		f.set(unavailable("wait of workers"), nil)
		mustSendCommand(t, newClientOn(t, f.Store), "w") // ends the wait in progress
		time.Sleep(10 * time.Minute)
		if n := strings.Count(logged.String(), "the worker cannot be told what to do"); n != 1 {
			t.Errorf("%d log messages in ten minutes: %s", n, logged.String())
		}
	})
}
