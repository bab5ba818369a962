package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
)

func TestMain(m *testing.M) {
	redistest.Main(m, goleak.IgnoreTopFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

func perHeader(m *later.Message) string { return m.Headers["key"] }

// inBubble runs f with a client of an empty store in memory and a clock that f controls.
func inBubble(t *testing.T, f func(t *testing.T, c *later.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := later.New(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		f(t, c)
	})
}

// work starts a worker of queue q.
func work(t *testing.T, c *later.Client, concurrency int, middleware func(later.HandlerFunc) later.HandlerFunc,
	h later.HandlerFunc,
) {
	t.Helper()
	w := later.NewWorker(c, later.WorkerConfig{
		Concurrency: concurrency, Backoff: later.ConstantBackoff(time.Minute),
		Middleware: []func(later.HandlerFunc) later.HandlerFunc{middleware},
	})
	w.Handle("q", h)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func send(t *testing.T, c *later.Client, id, key string) {
	t.Helper()
	if _, err := c.Queue("q").Send(t.Context(), nil, later.WithID(id), later.Header("key", key)); err != nil {
		t.Fatal(err)
	}
}

func lockers(t *testing.T) map[string]Locker {
	return map[string]Locker{"local": Local(), "redis": Redis(redistest.Shared(t).Client(t))}
}

func TestLockHasOneOwnerUntilItUnlocks(t *testing.T) {
	for name, l := range lockers(t) {
		t.Run(name, func(t *testing.T) {
			ctx, key := t.Context(), t.Name()
			first, err := l.TryLock(ctx, key, "a", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.TryLock(ctx, key, "b", time.Minute); !errors.Is(err, ErrHeld) {
				t.Errorf("a second owner: %v", err)
			}
			other, err := l.TryLock(ctx, key+"2", "b", time.Minute)
			if err != nil {
				t.Errorf("another key: %v", err)
			}
			if err := first.Extend(ctx, time.Minute); err != nil {
				t.Errorf("extend: %v", err)
			}
			again, err := l.TryLock(ctx, key, "a", time.Minute) // as after a lost reply
			if err != nil {
				t.Fatalf("the same owner again: %v", err)
			}
			if err := again.Unlock(ctx); err != nil {
				t.Errorf("unlock: %v", err)
			}
			if err := again.Unlock(ctx); !errors.Is(err, ErrLost) {
				t.Errorf("unlock again: %v", err)
			}
			if err := first.Extend(ctx, time.Minute); !errors.Is(err, ErrLost) {
				t.Errorf("extend after unlock: %v", err)
			}
			next, err := l.TryLock(ctx, key, "b", time.Minute)
			if err != nil {
				t.Fatalf("after unlock: %v", err)
			}
			if err := first.Unlock(ctx); !errors.Is(err, ErrLost) {
				t.Errorf("unlock of the next owner's lock: %v", err)
			}
			if err := errors.Join(next.Unlock(ctx), other.Unlock(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLockOfADeadOwnerExpires(t *testing.T) {
	for name, l := range lockers(t) {
		t.Run(name, func(t *testing.T) {
			ctx, key := t.Context(), t.Name()
			dead, err := l.TryLock(ctx, key, "dead", 50*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			for time.Since(begin) < 30*time.Second {
				next, err := l.TryLock(ctx, key, "next", time.Minute)
				if err == nil {
					if err := dead.Extend(ctx, time.Minute); !errors.Is(err, ErrLost) {
						t.Errorf("extend of an expired lock: %v", err)
					}
					if err := next.Unlock(ctx); err != nil {
						t.Error(err)
					}
					return
				}
				if !errors.Is(err, ErrHeld) {
					t.Fatal(err)
				}
			}
			t.Error("the lock does not expire")
		})
	}
}

// TestOneMessageOfAKeyIsHandledAtATime handles 500 messages of 5 keys by two workers with 32 handlers each.
func TestOneMessageOfAKeyIsHandledAtATime(t *testing.T) {
	const messages, keys, handlers = 500, 5, 32
	for name, policy := range map[string]Policy{
		"wait": Wait(time.Hour), "later": Later(20 * time.Millisecond), "fail": Fail(),
	} {
		for where, locker := range lockers(t) {
			t.Run(name+" "+where, func(t *testing.T) {
				c, err := later.New(memstore.New())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				perKey := func() func(later.HandlerFunc) later.HandlerFunc { // each worker as in a process of its own
					return PerKey(locker, func(m *later.Message) string { return t.Name() + m.Headers["key"] }, policy)
				}
				var holders [keys]atomic.Int32
				var mu sync.Mutex
				handled := map[string]int{}
				all := make(chan struct{})
				handle := func(_ context.Context, m *later.Message) error {
					var key int
					fmt.Sscan(m.Headers["key"], &key)
					if n := holders[key].Add(1); n != 1 {
						t.Errorf("%d messages of key %d are handled at a time", n, key)
					}
					for range 100 { // the work, during which others could run
						runtime.Gosched()
					}
					holders[key].Add(-1)
					mu.Lock()
					defer mu.Unlock()
					if handled[m.ID]++; len(handled) == messages {
						close(all)
					}
					return nil
				}
				run, stop := context.WithCancel(t.Context())
				var workers sync.WaitGroup
				for range 2 {
					w := later.NewWorker(c, later.WorkerConfig{
						Concurrency: handlers, Backoff: later.ConstantBackoff(20 * time.Millisecond),
						Middleware: []func(later.HandlerFunc) later.HandlerFunc{perKey()},
					})
					w.Handle("q", handle)
					workers.Go(func() {
						if err := w.Run(run); err != nil {
							t.Error(err)
						}
					})
				}
				for i := range messages {
					_, err := c.Queue("q").Send(t.Context(), nil, later.WithID(fmt.Sprint(i)),
						later.Header("key", fmt.Sprint(i%keys)), later.MaxAttempts(60_000))
					if err != nil {
						t.Fatal(err)
					}
				}
				select {
				case <-all:
				case <-time.After(time.Minute):
					t.Errorf("%d of %d messages were handled after a minute", len(handled), messages)
				}
				stop()
				workers.Wait()
				for id, n := range handled {
					if n != 1 {
						t.Errorf("message %s was handled %d times", id, n)
					}
				}
				if s, err := c.Queue("q").Stats(t.Context()); err != nil || s.Ready+s.Scheduled+s.Leased+s.Dead != 0 {
					t.Errorf("left: %+v, %v", s, err)
				}
			})
		}
	}
}

func TestWaitingForOneKeyDoesNotDelayOthers(t *testing.T) {
	for name, policy := range map[string]Policy{"wait": Wait(time.Hour), "later": Later(time.Second), "fail": Fail()} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *later.Client) {
				l := Local()
				if _, err := l.TryLock(t.Context(), "busy", "another process", time.Hour); err != nil {
					t.Fatal(err)
				}
				var free atomic.Int32
				work(t, c, 4, PerKey(l, perHeader, policy), func(_ context.Context, m *later.Message) error {
					if m.Headers["key"] != "" && m.Headers["key"] != "free" {
						t.Errorf("message %s was handled", m.ID)
					}
					free.Add(1)
					return nil
				})
				for i := range 100 {
					send(t, c, fmt.Sprint("busy", i), "busy")
				}
				synctest.Wait()
				for i := range 10 {
					send(t, c, fmt.Sprint("free", i), "free")
					send(t, c, fmt.Sprint("none", i), "")
				}
				time.Sleep(5 * maxDelay) // the free ones collide with each other
				synctest.Wait()
				if name != "fail" && free.Load() != 20 {
					t.Errorf("%d of 20 messages of other keys were handled", free.Load())
				} else if free.Load() < 11 {
					t.Errorf("%d messages of other keys were handled", free.Load())
				}
			})
		})
	}
}

// TestOnlyHalfOfTheHandlersWait checks that messages of many held keys leave handlers to others.
func TestOnlyHalfOfTheHandlersWait(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		l := Local()
		for i := range 20 {
			if _, err := l.TryLock(t.Context(), fmt.Sprint(i), "another process", time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		handled := make(chan string, 1)
		work(t, c, 4, PerKey(l, perHeader, Wait(time.Hour)), func(_ context.Context, m *later.Message) error {
			handled <- m.ID
			return nil
		})
		for i := range 20 {
			send(t, c, fmt.Sprint("held", i), fmt.Sprint(i))
		}
		synctest.Wait()
		begin := time.Now()
		send(t, c, "free", "free")
		if id := <-handled; id != "free" || time.Since(begin) > 100*time.Millisecond {
			t.Errorf("message %s was handled after %v", id, time.Since(begin))
		}
		if s, err := c.Queue("q").Stats(t.Context()); err != nil || s.Leased > 2+1 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestForChoosesTheLockerOfTheStore(t *testing.T) {
	inMemory, err := later.Open(t.Context(), "mem://")
	if err != nil {
		t.Fatal(err)
	}
	defer inMemory.Close()
	if _, ok := For(inMemory).(*local); !ok {
		t.Errorf("a store in memory has %T", For(inMemory))
	}
	inRedis, err := later.Open(t.Context(), redistest.Shared(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer inRedis.Close()
	if _, err := For(inRedis).TryLock(t.Context(), "for", "one", time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := For(inRedis).TryLock(t.Context(), "for", "two", time.Minute); !errors.Is(err, ErrHeld) {
		t.Errorf("another owner's lock: %v", err)
	}
}
