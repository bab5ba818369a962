package quota_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/quota"
)

// hold takes places one by one until the quota refuses, and returns their number.
func hold(q *quota.Quota[string], who string) (n int64, why quota.Refusal) {
	for ; ; n++ {
		if why = q.Take(who, 1); why != quota.None {
			return n, why
		}
	}
}

func TestEachCallerMayHoldHalfOfWhatTheOthersLeave(t *testing.T) {
	q := quota.New[string](100)
	for i, want := range []int64{50, 25, 13, 6, 3, 2, 1} {
		if n, _ := hold(q, string(rune('a'+i))); n != want {
			t.Errorf("caller %d holds %d, want %d", i, n, want)
		}
	}
	if why := q.Take("late", 1); why != quota.Exhausted {
		t.Errorf("the last one was refused with %v", why)
	}
	if q.Taken() != q.Limit() {
		t.Errorf("%d are taken", q.Taken())
	}
	q.Give("a", 50)
	if n, why := hold(q, "late"); n != 25 || why != quota.Greedy {
		t.Errorf("%d, %v", n, why)
	}
}

func TestWhatDoesNotFitIsNotTaken(t *testing.T) {
	q := quota.New[string](100)
	if q.Take("a", 101) != quota.Exhausted || q.Take("a", 51) != quota.Greedy || q.Taken() != 0 {
		t.Error("too much was taken")
	}
	if q.Take("a", 50) != quota.None || q.Take("b", 26) != quota.Greedy || q.Take("b", 25) != quota.None {
		t.Error("not as much as there is")
	}
	q.Give("a", 50)
	q.Give("b", 25)
	if q.Taken() != 0 {
		t.Errorf("%d are taken", q.Taken())
	}
}

func TestCallersWaitForWhatOthersGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := quota.New[string](10)
		if q.Take("a", 5) != quota.None {
			t.Fatal("refused")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if why := q.Wait(ctx, "a", 1); why != quota.Greedy || ctx.Err() == nil {
			t.Errorf("%v, %v", why, ctx.Err())
		}
		if why := q.Wait(t.Context(), "b", 6); why == quota.None {
			t.Error("more than anybody may ever hold")
		}
		got := make(chan quota.Refusal)
		go func() { got <- q.Wait(t.Context(), "a", 3) }()
		synctest.Wait()
		q.Give("a", 2)
		synctest.Wait()
		select {
		case <-got:
			t.Error("2 are not enough")
		default:
		}
		q.Give("a", 1)
		if why := <-got; why != quota.None || q.Taken() != 5 {
			t.Errorf("%v, %d are taken", why, q.Taken())
		}
	})
}

func TestCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := quota.New[string](1)
		if q.Take("first", 1) != quota.None {
			t.Fatal("refused")
		}
		var order []string
		wait := func(who string) {
			if q.Wait(t.Context(), who, 1) == quota.None {
				order = append(order, who)
				q.Give(who, 1) // the next one appends after that
			}
		}
		for _, who := range []string{"a", "a", "a", "b", "c"} {
			go wait(who)
			synctest.Wait()
		}
		q.Give("first", 1)
		synctest.Wait()
		if got := strings.Join(order, ""); got != "abcaa" || q.Taken() != 0 {
			t.Errorf("served in the order %s, want abcaa; %d are taken", got, q.Taken())
		}
	})
}

func TestACallerWaitsOnlySoOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := quota.New[string](1)
		if q.Take("first", 1) != quota.None {
			t.Fatal("refused")
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range 128 {
			go q.Wait(ctx, "a", 1)
		}
		synctest.Wait()
		if why := q.Wait(t.Context(), "a", 1); why != quota.Greedy {
			t.Errorf("%v, want Greedy", why)
		}
		cancel()
		synctest.Wait()
		got := make(chan quota.Refusal)
		go func() { got <- q.Wait(t.Context(), "a", 1) }()
		synctest.Wait()
		q.Give("first", 1)
		if why := <-got; why != quota.None {
			t.Errorf("%v after the others gave up", why)
		}
	})
}

func TestAPlaceForWorkRestsAsLongAsTheWorkTook(t *testing.T) {
	const unknown = -1
	for _, c := range []struct{ work, used, rest time.Duration }{
		{time.Millisecond, unknown, time.Millisecond},
		{time.Minute, unknown, 100 * time.Millisecond},
		{40 * time.Millisecond, 70 * time.Millisecond, 40 * time.Millisecond}, // others worked, too
		{40 * time.Millisecond, 8 * time.Millisecond, 8 * time.Millisecond},   // it waited for the store
		{time.Minute, time.Minute, 100 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			var used time.Duration
			cpu := quota.NewCPU[string](func() (time.Duration, bool) { return used, c.used != unknown })
			for i := range cpu.Limit() - 1 {
				cpu.Take(fmt.Sprint("other ", i), 1)
			}
			done, why := cpu.Work(t.Context(), "a")
			if why != quota.None {
				t.Fatal(why)
			}
			time.Sleep(c.work) // of the bubble
			used += c.used
			done()
			done()
			begin := time.Now()
			done, why = cpu.Work(t.Context(), "b")
			if took := time.Since(begin); why != quota.None || took != c.rest {
				t.Errorf("after %+v: %v after %v", c, why, took)
			}
			done()
			time.Sleep(time.Second)
		})
	}
}
