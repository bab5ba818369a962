package outcome

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/kind"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func ofKind(name string) Attempt { return Attempt{Headers: map[string]string{kind.Header: name}} }

func TestMisfitsOfASenderWhoseClockIsAheadDoNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := NewMisfits("q", 0, slog.New(slog.DiscardHandler))
		for sent, want := range map[time.Duration]time.Duration{
			0: MinGiveBack, -time.Hour: MaxGiveBack, time.Hour: MaxGiveBack, -20 * time.Second: 20 * time.Second,
		} {
			a := ofKind(fmt.Sprint(sent))
			x.resultOf(a, &GiveBack{})
			time.Sleep(MaxGiveBack)
			a.SentAt = time.Now().Add(sent)
			if r := x.resultOf(a, &GiveBack{}); r.Delay < want/2 || r.Delay > want {
				t.Errorf("a message sent at %v is given back for %v, want half to all of %v", sent, r.Delay, want)
			}
		}
	})
}

func TestMisfitsTellABoundedNumberOfUnknownKindsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := NewMisfits("q", 0, slog.New(slog.DiscardHandler))
		meet := func(name string) {
			a := ofKind(name)
			x.Wait(MisfitOf(a.Headers, nil), x.resultOf(a, &GiveBack{}).Delay)
		}
		for i := range 3 * maxMisfits {
			meet(fmt.Sprint(i))
		}
		if len(x.counts) != maxMisfits {
			t.Errorf("%d kinds are kept, want %d", len(x.counts), maxMisfits)
		}
		all := x.Waiting()
		if n := len(all); n != maxMisfits+1 || all[n-1].Messages != 2*maxMisfits || all[n-1].Kind != "" {
			t.Errorf("%d kinds wait, the last is %+v; want all others together", n, all[n-1])
		}
		time.Sleep(time.Hour)
		meet(strings.Repeat("ü", kind.Max))
		if all := slices.Collect(maps.Keys(x.counts)); len(all) != 1 || len(all[0].Kind) > kind.Max {
			t.Errorf("kinds that no longer come are kept: %d, %.300v", len(all), all)
		}
	})
}

func TestMisfitsBeginAnewAfterAPauseAndLogOnlyNewMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		x := NewMisfits("q", time.Hour, slog.New(slog.NewTextHandler(&logged, nil)))
		meet := func() time.Duration { return x.resultOf(Attempt{}, &GiveBack{Err: errors.New("new")}).Delay }
		meet()
		time.Sleep(giveBackLogPause)
		for range 3 {
			meet() // the first of them is logged
		}
		time.Sleep(giveBackLogPause)
		if d := meet(); d < MaxGiveBack/2 {
			t.Errorf("the delay is %v after two minutes", d)
		}
		text := logged.String()
		if a, b := strings.Count(text, "messages=1 "), strings.Count(text, "messages=3 "); a != 2 || b != 1 {
			t.Errorf("log is %s", text)
		}
		time.Sleep(3 * MaxGiveBack)
		if d := meet(); d > MinGiveBack {
			t.Errorf("the first delay after a pause is %v", d)
		}
	})
}

func TestDeadServesAQueueOnceForAllItsMessages(t *testing.T) {
	n := &Dead{OnDead: func(context.Context, string, *store.Info) {}, working: true}
	n.add("q", "a")
	n.add("q", "b")
	if got, ids, _ := n.take(); got != "q" || !slices.Equal(ids, []string{"a", "b"}) || len(n.turns) != 0 {
		t.Errorf("take returned %q and left %d turns", ids, len(n.turns))
	}
}

func TestOnDeadIsNotCalledForAMessageThatIsLiveAgain(t *testing.T) {
	s := memstore.New()
	live := store.Outgoing{Message: store.Message{ID: "live"}}
	if _, err := s.Send(t.Context(), "q", []store.Outgoing{live}); err != nil {
		t.Fatal(err)
	}
	n := &Dead{Store: s, Log: slog.New(slog.DiscardHandler), Calling: t.Context(), Changed: func() {}}
	n.OnDead = func(_ context.Context, _ string, info *store.Info) {
		t.Errorf("OnDead was called for a message that is %s", info.State)
	}
	n.Found("q", []string{"live", "gone"})
	n.Wait()
}
