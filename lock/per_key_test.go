package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later"
)

func TestPoliciesWhileALockIsHeld(t *testing.T) {
	for _, test := range []struct {
		name     string
		policy   Policy
		after    time.Duration
		attempts int
		due      time.Duration // since the beginning
		text     string
	}{
		{"fail", Fail(), 0, 1, time.Minute, `lock "k": lock is held by another message`},
		{"the zero policy is fail", Policy{}, 0, 1, time.Minute, `lock "k": lock is held`},
		{"later", Later(7 * time.Second), 0, 0, 7 * time.Second, ""},
		{"later with a short delay", Later(-1), 0, 0, minDelay, ""},
		{"later until its limit", Later(7 * time.Second).For(20 * time.Second), 25 * time.Second, 1, 81 * time.Second,
			`after 21s: lock "k": lock is held`},
		{"wait", Wait(10 * time.Second), 10 * time.Second, 1, 70 * time.Second, `after 10s: lock "k": lock is held`},
		{"wait for nothing", Wait(0), 0, 1, time.Minute, `after 0s: lock "k": lock is held`},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *later.Client) {
				l := Local()
				if _, err := l.TryLock(t.Context(), "k", "another process", time.Hour); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				work(t, c, 2, PerKey(l, perHeader, test.policy), func(context.Context, *later.Message) error {
					t.Error("the handler was called")
					return nil
				})
				send(t, c, "id", "k")
				time.Sleep(test.after)
				synctest.Wait()
				info, err := c.Queue("q").Get(t.Context(), "id")
				if err != nil {
					t.Fatal(err)
				}
				due := info.Due.Sub(begin).Truncate(10 * time.Millisecond)
				if info.Attempts != test.attempts || due != test.due || !strings.HasPrefix(info.LastError, test.text) {
					t.Errorf("%d attempts, due after %v, %q", info.Attempts, due, info.LastError)
				}
			})
		})
	}
}

func TestWaitKeepsTheLeaseAndTakesTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		l := Local()
		held, err := l.TryLock(t.Context(), "k", "another process", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		handled := make(chan int, 1)
		work(t, c, 2, PerKey(l, perHeader, Wait(time.Hour)), func(_ context.Context, m *later.Message) error {
			handled <- m.Attempt
			return nil
		})
		send(t, c, "id", "k")
		time.Sleep(10 * time.Minute) // many leases
		if err := held.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if attempt := <-handled; attempt != 1 || time.Since(begin) > longestPoll {
			t.Errorf("attempt %d after %v", attempt, time.Since(begin))
		}
	})
}

func TestLockIsExtendedWhileTheHandlerRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		l := Local()
		done := make(chan struct{})
		work(t, c, 1, PerKey(l, perHeader, Fail(), TTL(time.Second)),
			func(ctx context.Context, _ *later.Message) error {
				defer close(done)
				for range 60 {
					time.Sleep(time.Second)
					if _, err := l.TryLock(ctx, "k", "another process", time.Second); !errors.Is(err, ErrHeld) {
						t.Errorf("another owner: %v", err)
					}
				}
				return ctx.Err()
			})
		send(t, c, "id", "k")
		<-done
		synctest.Wait()
		if _, err := l.TryLock(t.Context(), "k", "next", time.Second); err != nil {
			t.Errorf("after the handler: %v", err)
		}
	})
}

func TestPanicUnlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		l := Local()
		work(t, c, 1, PerKey(l, perHeader, Fail()), func(context.Context, *later.Message) error { panic("boom") })
		send(t, c, "id", "k")
		synctest.Wait()
		if info, err := c.Queue("q").Get(t.Context(), "id"); err != nil ||
			!strings.HasPrefix(info.LastError, "panic: boom") {
			t.Errorf("%+v, %v", info, err)
		}
		if _, err := l.TryLock(t.Context(), "k", "next", time.Second); err != nil {
			t.Errorf("after the panic: %v", err)
		}
	})
}

// failing is a Locker of locks that cannot be extended, for the reason in err.
type failing struct {
	Locker
	err error
}

type failingLock struct {
	Lock
	err error
}

func (f failing) TryLock(ctx context.Context, key, owner string, ttl time.Duration) (Lock, error) {
	l, err := f.Locker.TryLock(ctx, key, owner, ttl)
	return failingLock{l, f.err}, err
}

func (l failingLock) Extend(context.Context, time.Duration) error { return l.err }

func TestLostLockEndsTheHandlersContext(t *testing.T) {
	for _, test := range []struct {
		name    string
		extend  error
		after   time.Duration
		returns error
	}{
		{"taken away", ErrLost, 10 * time.Second, nil},
		{"taken away, and the handler fails", ErrLost, 10 * time.Second, errors.New("of the handler")},
		{"the lock server is gone", errors.New("connection refused"), 30 * time.Second, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *later.Client) {
				begin := time.Now()
				ended := make(chan error, 1)
				work(t, c, 1, PerKey(failing{Local(), test.extend}, perHeader, Fail()),
					func(ctx context.Context, _ *later.Message) error {
						<-ctx.Done()
						ended <- context.Cause(ctx)
						return test.returns
					})
				send(t, c, "id", "k")
				if cause, after := <-ended, time.Since(begin); cause != ErrLost || after != test.after {
					t.Errorf("the context ended after %v with %v", after, cause)
				}
				synctest.Wait()
				info, err := c.Queue("q").Get(t.Context(), "id")
				if err != nil || info.Attempts != 1 || !strings.HasPrefix(info.LastError, `lock "k": lock was lost`) ||
					test.returns != nil && !strings.Contains(info.LastError, test.returns.Error()) {
					t.Errorf("%+v, %v", info, err)
				}
			})
		})
	}
}

// hanging is a Locker with a server that does not answer for a time, and ignores the context of the call.
type hanging struct {
	Locker
	take, extend, unlock time.Duration
}

type hangingLock struct {
	Lock
	extend, unlock time.Duration
}

func (h hanging) TryLock(ctx context.Context, key, owner string, ttl time.Duration) (Lock, error) {
	l, err := h.Locker.TryLock(ctx, key, owner, ttl)
	time.Sleep(h.take)
	return hangingLock{l, h.extend, h.unlock}, err
}

func (l hangingLock) Extend(ctx context.Context, ttl time.Duration) error {
	time.Sleep(l.extend)
	return l.Lock.Extend(ctx, ttl)
}

func (l hangingLock) Unlock(ctx context.Context) error {
	time.Sleep(l.unlock)
	return l.Lock.Unlock(ctx)
}

func TestHangingLockerDoesNotHoldUpTheMessage(t *testing.T) {
	for name, locker := range map[string]hanging{
		"extend": {Locker: Local(), extend: time.Minute},
		"unlock": {Locker: Local(), unlock: time.Minute},
		"both":   {Locker: Local(), extend: time.Minute, unlock: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *later.Client) {
				done := make(chan struct{})
				work(t, c, 1, PerKey(locker, perHeader, Fail(), TTL(3*time.Second)),
					func(context.Context, *later.Message) error {
						defer close(done)
						time.Sleep(2 * time.Second) // an extension has begun
						return nil
					})
				send(t, c, "id", "k")
				<-done
				time.Sleep(unlockWait)
				synctest.Wait()
				if _, err := c.Queue("q").Get(t.Context(), "id"); !errors.Is(err, later.ErrNotFound) {
					t.Errorf("the message was not settled: %v", err)
				}
				time.Sleep(time.Hour) // the locker's calls end
			})
		})
	}
}

func TestExpiredLockEndsTheHandlersContextWhileAnExtensionHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		begin := time.Now()
		ended := make(chan error, 1)
		work(t, c, 1, PerKey(hanging{Locker: Local(), extend: 5 * time.Second}, perHeader, Fail(), TTL(3*time.Second)),
			func(ctx context.Context, _ *later.Message) error {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return nil
			})
		send(t, c, "id", "k")
		if cause, after := <-ended, time.Since(begin); cause != ErrLost || after != 3*time.Second {
			t.Errorf("the context ended after %v with %v", after, cause)
		}
		time.Sleep(10 * time.Second) // the locker's calls end; the message is not handled again yet
	})
}

func TestLockThatIsGrantedTooLateIsNotUsed(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		work(t, c, 1, PerKey(hanging{Locker: Local(), take: time.Second}, perHeader, Fail(), TTL(time.Second)),
			func(context.Context, *later.Message) error {
				t.Error("the handler ran with a lock that had expired")
				return nil
			})
		send(t, c, "id", "k")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		info, err := c.Queue("q").Get(t.Context(), "id")
		if err != nil || info.Attempts != 1 || !strings.HasPrefix(info.LastError, `lock "k": lock was lost`) {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// unreachable is a Locker without connection to its server.
type unreachable struct{ calls atomic.Int32 }

func (u *unreachable) TryLock(context.Context, string, string, time.Duration) (Lock, error) {
	u.calls.Add(1)
	return nil, errors.New("connection refused")
}

func TestUnreachableLockServerUsesNoAttempts(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		u := &unreachable{}
		work(t, c, 2, PerKey(u, perHeader, Later(time.Second)), func(context.Context, *later.Message) error {
			t.Error("the handler was called without a lock")
			return nil
		})
		send(t, c, "id", "k")
		time.Sleep(time.Minute)
		synctest.Wait()
		info, err := c.Queue("q").Get(t.Context(), "id")
		if n := u.calls.Load(); err != nil || info.Attempts != 0 || n < 30 || n > 61 {
			t.Errorf("%d calls; %+v, %v", n, info, err)
		}
	})
}

func TestLongKeyIsBuried(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		long := func(*later.Message) string { return strings.Repeat("k", MaxKey+1) }
		work(t, c, 1, PerKey(Local(), long, Wait(time.Hour)), func(context.Context, *later.Message) error {
			t.Error("the handler was called")
			return nil
		})
		send(t, c, "id", "k")
		synctest.Wait()
		info, err := c.Queue("q").Get(t.Context(), "id")
		if err != nil || info.DeadReason != later.DeadBuried ||
			!strings.Contains(info.LastError, "513 bytes long: the limit is 512") {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

func TestMissingLockerIsRefusedByRun(t *testing.T) {
	for want, middleware := range map[string]func(later.HandlerFunc) later.HandlerFunc{
		"lock.PerKey: locker is nil: give one":        PerKey(nil, perHeader, Fail()),
		"lock.PerKey: keyOf is nil: give a function":  PerKey(Local(), nil, Fail()),
		"lock.PerKey: an option is nil: leave it out": PerKey(Local(), perHeader, Fail(), nil),
	} {
		t.Run(want, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *later.Client) {
				w := later.NewWorker(c, later.WorkerConfig{
					Middleware: []func(later.HandlerFunc) later.HandlerFunc{middleware},
				})
				w.Handle("q", func(context.Context, *later.Message) error { return nil })
				if err := w.Run(t.Context()); !errors.Is(err, later.ErrInvalid) ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("Run returned %v, want %q", err, want)
				}
			})
		})
	}
}

func TestNothingIsKeptOfUnusedKeys(t *testing.T) {
	inBubble(t, func(t *testing.T, c *later.Client) {
		turns := newTurns()
		for i := range 1000 {
			key := fmt.Sprint(i)
			m := &later.Message{ID: key, Queue: "q"}
			if !turns.begin(key) || turns.begin(key) {
				t.Fatal("a key is held twice or not at all")
			}
			turns.waitsSince(m)
			turns.delay(key)
			turns.end(key, time.Second)
			turns.forget(m)
		}
		for range 2 {
			time.Sleep(2 * forgetAfter)
			turns.waitsSince(&later.Message{ID: "new"})
		}
		if len(turns.keys) > 0 || len(turns.since) > 1 || turns.waiting != 0 {
			t.Errorf("%d keys and %d messages are kept", len(turns.keys), len(turns.since))
		}
	})
}
