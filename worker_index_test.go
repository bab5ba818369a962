package later

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/topic"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

// localStore is a store.Local with properties that do not change after a worker's first look.
type localStore struct {
	*faulty
	calls *atomic.Int64
}

func (localStore) PropertiesChanged(string) <-chan struct{} { return nil }

func (s localStore) Properties(ctx context.Context, queue string) (map[string]string, error) {
	s.calls.Add(1)
	return s.faulty.Properties(ctx, queue)
}

// TestIdleWorkerOfALocalStoreHardlyLooks has an idle worker for a month, as a test in a bubble that moves its clock.
// Each call costs such a test time.
func TestIdleWorkerOfALocalStoreHardlyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &faulty{Store: memstore.New()}
		var calls atomic.Int64
		f.set(func(context.Context, string) error {
			calls.Add(1)
			return nil
		}, nil)
		c := newClientOn(t, localStore{f, &calls})
		s := everyMinute("a")
		s.When = recurrence.Spec{Cron: "0 9 1 * *"}
		put(t, c, s, PutCreated)
		ran := work(t, c, time.Now(), nil)
		const days = 32
		time.Sleep(days * 24 * time.Hour)
		synctest.Wait()
		n := calls.Load()
		if got := len(ran.list()); got != 2 {
			t.Errorf("%d runs, want 2", got)
		}
		for range 10 {
			if all, err := c.Workers(t.Context()); err != nil || len(all) != 1 {
				t.Fatalf("the workers are %+v, %v", all, err)
			}
			time.Sleep(topic.LocalEvery / 5)
		}
		ran.stop()
		// A heartbeat and a look at the index each, every few minutes, and three calls that look for dead workers.
		if most := int64(days * 24 * time.Hour / topic.LocalEvery * 5); n > most {
			t.Errorf("%d calls, want at most %d", n, most)
		}
	})
}

// failingIndex is a store that can fail to read its properties.
type failingIndex struct {
	store.Store
	failing atomic.Bool
}

func (s *failingIndex) Properties(ctx context.Context, queue string) (map[string]string, error) {
	if s.failing.Load() {
		return nil, ErrUnavailable
	}
	return s.Store.Properties(ctx, queue)
}

func TestIndexThatCannotBeReadIsLoggedOncePerOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		s := &failingIndex{Store: memstore.New()}
		c := mustNew(t, s, WithLogger(slog.New(slog.NewTextHandler(&text, nil))))
		defer c.Close()
		ran := work(t, c, time.Now(), nil)
		time.Sleep(time.Minute)
		for outages := range 3 {
			synctest.Wait()
			if got := strings.Count(text.String(), "cannot be read"); got != outages {
				t.Errorf("%d outages were logged %d times: %s", outages, got, text.String())
			}
			s.failing.Store(true)
			time.Sleep(time.Minute)
			s.failing.Store(false)
			time.Sleep(time.Minute)
		}
		ran.stop()
	})
}
