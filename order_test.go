package later

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/memstore"
)

// Workers handle the messages of each key one at a time and in the order of the sends, although some fail and are
// retried later, while other keys go on. The fence of a key grows.
func TestWorkersKeepTheOrderOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClientOn(t, memstore.New())
		q := c.Queue("accounts")
		if err := q.SetFlow(t.Context(), Flow{Key: KeyFlow{Order: OrderContinue}}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		started, fences, running := map[string][]string{}, map[string]int64{}, map[string]bool{}
		for range 3 {
			w := NewWorker(c, WorkerConfig{Concurrency: 4, Unlisted: true})
			w.Handle("accounts", func(_ context.Context, m *Message) error {
				mu.Lock()
				if running[m.Key] {
					t.Errorf("%s starts while another message of its key is handled", m.ID)
				}
				if m.Fence <= fences[m.Key] {
					t.Errorf("fence of %s is %d after %d", m.ID, m.Fence, fences[m.Key])
				}
				running[m.Key], fences[m.Key] = true, m.Fence
				started[m.Key] = append(started[m.Key], m.ID)
				mu.Unlock()
				time.Sleep(7 * time.Millisecond)
				mu.Lock()
				running[m.Key] = false
				mu.Unlock()
				if strings.HasSuffix(m.ID, "3") && m.Attempt < 3 {
					return errors.New("not yet")
				}
				return nil
			})
			go w.Run(t.Context())
		}
		synctest.Wait()
		want := map[string][]string{}
		for i := range 6 {
			for _, key := range []string{"a", "b"} {
				id := fmt.Sprintf("%s-%d%d", key, 9-i, i)
				if _, err := q.Send(t.Context(), nil, WithID(id), In(0), Key(key)); err != nil {
					t.Fatal(err)
				}
				for range map[bool]int{true: 3, false: 1}[i == 3] {
					want[key] = append(want[key], id)
				}
			}
		}
		for stats := (Stats{Ready: 1}); stats.Ready+stats.Scheduled+stats.Leased > 0; {
			time.Sleep(time.Second)
			var err error
			if stats, err = q.Stats(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for key := range want {
			if !slices.Equal(started[key], want[key]) {
				t.Errorf("messages of key %s start in the order %v, want %v", key, started[key], want[key])
			}
		}
	})
}
