package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

func TestWorkerWithManyLongQueuesHasARecordThatFits(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Name: strings.Repeat(`"`, store.MaxWorkerName),
			Version: strings.Repeat(`\`, store.MaxWorkerName)})
		for i := range 100 {
			w.Handle(strings.Repeat(`"`, store.MaxQueueName-4)+fmt.Sprintf("%04d", i),
				func(ctx context.Context, _ *Message) error { return sleep(ctx, time.Hour) })
		}
		start(t, w)
		for i := range 100 {
			mustSend(t, c.Queue(strings.Repeat(`"`, store.MaxQueueName-4)+fmt.Sprintf("%04d", i)), "",
				WithID(strings.Repeat(`"`, store.MaxID)))
		}
		synctest.Wait()
		all, err := c.ReportWorkers(t.Context(), 0)
		if err != nil || len(all) != 1 {
			t.Fatalf("ReportWorkers: %v, %v", all, err)
		}
		got := all[0]
		if got.QueueCount != 100 || len(got.Queues) == 0 || got.HeldCount == 0 || len(got.Held) == 0 {
			t.Errorf("got %d of %d queues and %d of %d messages", len(got.Queues), got.QueueCount, len(got.Held), got.HeldCount)
		}
	})
}

func TestWorkerThatDiesLeavesTheListWithinALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c, dying := newClientOn(t, f.Store), newClientOn(t, f)
		start(t, addHandler(NewWorker(c, WorkerConfig{Name: "survivor"})))
		start(t, addHandler(NewWorker(dying, WorkerConfig{Name: "victim"})))
		time.Sleep(time.Hour)
		var id string
		for _, w := range wantWorkers(t, c, "survivor", "victim") {
			if w.Name == "victim" {
				id = w.ID
			}
		}
		f.set(unavailable(), nil) // nothing of its process reaches the store any more
		time.Sleep(fleet.Lease - fleet.BeatEvery - time.Millisecond)
		wantWorkers(t, c, "survivor", "victim")
		time.Sleep(fleet.BeatEvery + time.Millisecond)
		wantWorkers(t, c, "survivor")

		if _, err := c.fleet.Send(t.Context(), CommandPause, id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute) // the survivor removes it
		if all, err := f.Store.Properties(t.Context(), reserved.Worker); err != nil || len(all) != 1 {
			t.Errorf("records are %q, %v; want that of the survivor", all, err)
		}
		if stats, err := f.Store.Stats(t.Context(), reserved.Worker+id); err != nil || stats.Exists {
			t.Errorf("the queue of the dead worker has %+v, %v; want none", stats, err)
		}
		f.set(nil, nil)
		time.Sleep(time.Minute)
		wantWorkers(t, c, "survivor", "victim") // it was only cut off
	})
}

func TestWorkerRemovesWhatIsLeftOfWorkersWithoutARecord(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		start(t, addHandler(NewWorker(c, WorkerConfig{Name: "survivor"})))
		time.Sleep(time.Minute)
		if _, err := c.ControlWorkers(t.Context(), CommandPause, "survivor"); err != nil {
			t.Fatal(err)
		}
		live := wantWorkers(t, c, "survivor paused")
		gone := store.NewID() // a worker that had ended when a command to it arrived
		if _, err := c.fleet.Send(t.Context(), CommandPause, gone); err != nil {
			t.Fatal(err)
		}
		check := func() {
			t.Helper()
			for id, want := range map[string]bool{live[0].ID: true, gone: false} {
				if stats, err := c.Store().Stats(t.Context(), reserved.Worker+id); err != nil || stats.Exists != want {
					t.Errorf("the queue of worker %s exists: %t, %v; want %t", id, stats.Exists, err, want)
				}
			}
		}
		time.Sleep(3 * fleet.CleanEvery)
		check()
		if _, err := c.fleet.Send(t.Context(), CommandPause, gone); err != nil {
			t.Fatal(err)
		}
		wantWorkers(t, newClientOn(t, c.Store()), "survivor paused") // looks for them, too
		check()
	})
}

func TestWorkerThatIsIdleMakesATenthOfACallASecondToBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		var beats atomic.Int64
		f.set(func(_ context.Context, call string) error {
			if call == "set properties of workers" {
				beats.Add(1)
			}
			return nil
		}, nil)
		start(t, addHandler(NewWorker(c, WorkerConfig{})))
		synctest.Wait()
		beats.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := beats.Load(); n == 0 || n > int64(time.Hour/fleet.BeatEvery)+1 {
			t.Errorf("%d heartbeats in an hour; want %d", n, time.Hour/fleet.BeatEvery)
		}
		rate := 1/fleet.BeatEvery.Seconds() + 1/time.Minute.Seconds() + 3/fleet.CleanEvery.Seconds()
		if rate > 0.105 {
			t.Errorf("a heartbeat, a claim and a look for dead workers are %.3f calls a second", rate)
		}
	})
}

func TestWorkerThatCouldNotDrainReturnsThatErrorInsteadOfErrRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		w := NewWorker(c, WorkerConfig{Name: "w", ShutdownTimeout: time.Second})
		w.Handle("q", func(context.Context, *Message) error { time.Sleep(time.Minute); return nil })
		result := make(chan error, 1)
		go func() { result <- w.Run(t.Context()) }()
		mustSend(t, c.Queue("q"), "")
		synctest.Wait()
		if _, err := c.ControlWorkers(t.Context(), CommandRestart, "w"); err != nil {
			t.Fatal(err)
		}
		if err := <-result; err == nil || errors.Is(err, ErrRestart) || !strings.Contains(err.Error(), "handlers ignored") {
			t.Errorf("Run returned %v", err)
		}
		time.Sleep(time.Minute)
	})
}

func TestWorkerObeysACommandOnceWhoseAckWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		var obeyed log[WorkerCommand]
		startRunning(t, c, WorkerConfig{Name: "w", OnCommand: func(do WorkerCommand) error { obeyed.add(do); return nil }})
		f.set(unavailable("settle of workers"), nil)
		if _, err := c.ControlWorkers(t.Context(), CommandPause, "w"); err != nil {
			t.Fatal(err)
		}
		f.set(nil, nil)
		if _, err := c.ControlWorkers(t.Context(), CommandResume, "w"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute) // the first command comes again
		if got := obeyed.list(); !slices.Equal(got, []WorkerCommand{CommandPause, CommandResume}) {
			t.Errorf("obeyed %q", got)
		}
		wantWorkers(t, c, "w")
	})
}

func TestWorkerUnlistedMakesNoCallsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		f.set(func(_ context.Context, call string) error {
			if strings.HasSuffix(call, "of workers") {
				t.Errorf("an unlisted worker calls %q", call)
			}
			return nil
		}, nil)
		stop := start(t, addHandler(NewWorker(c, WorkerConfig{Unlisted: true})))
		time.Sleep(time.Hour)
		wantWorkers(t, c)
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestWorkerThatCannotBeListedWorksAndLogsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		var logged lockedBuffer
		c := mustNew(t, f, WithLogger(logged.logger()))
		t.Cleanup(func() { c.Close() })
		f.set(unavailable("claim of workers", "wait of workers"), nil)
		var handled log[string]
		w := NewWorker(c, WorkerConfig{Name: "w"})
		w.Handle("q", func(_ context.Context, m *Message) error { handled.add(m.ID); return nil })
		stop := start(t, w)
		mustSend(t, c.Queue("q"), "")
		time.Sleep(time.Hour)
		f.set(unavailable("set properties of workers"), nil)
		time.Sleep(time.Hour)
		f.set(unavailable("claim of workers", "wait of workers"), nil) // while it is listed
		time.Sleep(fleet.BeatEvery)
		mustSendCommand(t, c, "w")
		time.Sleep(time.Hour)
		f.set(unavailable("set properties of workers"), nil)
		time.Sleep(time.Hour)
		if len(handled.list()) != 1 {
			t.Errorf("handled %d messages", len(handled.list()))
		}
		for text, want := range map[string]int{
			`msg="later: the worker cannot be listed; it works all the same"`:          2,
			`msg="later: over: the worker cannot be listed"`:                           1,
			`msg="later: the worker cannot be told what to do; it works all the same"`: 2,
			`msg="later: over: the worker cannot be told what to do"`:                  2,
		} {
			if n := strings.Count(logged.String(), text); n != want {
				t.Errorf("logged %d times %s, want %d:\n%s", n, text, want, logged.String())
			}
		}
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) != 0 {
			t.Errorf("Run returned %v after %v", err, time.Since(begin))
		}
	})
}

func TestWorkerEndsALittleLateIfItsRecordCannotBeRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		c := newClientOn(t, f)
		stop := start(t, addHandler(NewWorker(c, WorkerConfig{})))
		synctest.Wait()
		f.set(func(ctx context.Context, call string) error {
			if call == "set properties of workers" { // the server is frozen
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, nil)
		begin := time.Now()
		if err := stop(); err != nil || time.Since(begin) != time.Second {
			t.Errorf("Run returned %v after %v; want nil after a second", err, time.Since(begin))
		}
	})
}

func TestWorkerIgnoresACommandThatItCannotRead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		startRunning(t, c, WorkerConfig{Name: "w"})
		id := mustWorkers(t, c)[0].ID
		for _, payload := range []string{"", `{"command":"of a newer version"}`} {
			_, err := c.store.Send(t.Context(), reserved.Worker+id,
				[]store.Outgoing{{Message: store.Message{ID: store.NewID(), Payload: []byte(payload)}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		wantWorkers(t, c, "w")
		if _, err := c.ControlWorkers(t.Context(), CommandPause, "w"); err != nil {
			t.Errorf("ControlWorkers: %v", err)
		}
	})
}
