package remote

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/laterq/later/store"
)

// remember has a memory execute a call, or recall it. It returns the reply and whether the call was executed.
func remember(t *testing.T, m *memory, session string, number int64, reply string) (answer response, executed bool) {
	t.Helper()
	answer, err := m.do(t.Context(), store.Request{Session: session, Number: number}, func() result {
		executed = true
		return result{reply: []byte(reply), undo: func() []byte { return []byte("undone") }}
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer, executed
}

func TestARepetitionAcrossTheTurnIsNotExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, turn := range map[string]func(m *memory){
			"time":  func(m *memory) { m.turned = m.turned.Add(-2 * rememberFor) },
			"bytes": func(m *memory) { remember(t, m, "large", 1, string(make([]byte, maxRemembered+1))) },
		} {
			m := &memory{}
			remember(t, m, "s", 1, "first")
			turn(m)
			remember(t, m, "other", 1, "x") // turns
			if len(m.recent) != 1 || m.old["s"] == nil {
				t.Fatalf("%s: there was no turn", what)
			}
			if got, executed := remember(t, m, "s", 1, "again"); executed || string(got.body) != "first" {
				t.Errorf("%s: the repetition is executed: %t, %q", what, executed, got.body)
			}
			if _, executed := remember(t, m, "s", 2, "second"); !executed {
				t.Errorf("%s: the next call is not executed", what)
			}
			_, err := m.do(t.Context(), store.Request{Session: "s", Number: 1}, func() result { return result{} })
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: a late attempt returns %v", what, err)
			}
		}
	})
}

func TestWhatWasNotUsedForTwoTurnsIsForgotten(t *testing.T) {
	m := &memory{}
	for _, session := range []string{"s", "t", "u"} {
		m.turned = m.turned.Add(-2 * rememberFor)
		remember(t, m, session, 1, "x")
	}
	if _, executed := remember(t, m, "s", 1, "again"); !executed {
		t.Error("a session is remembered for ever")
	}
}

func TestRememberedBytesAreThoseOfTheLastReplies(t *testing.T) {
	m := &memory{}
	for number := range int64(10) {
		answer, _ := remember(t, m, "s", number+1, "12345")
		if m.bytes != 5 {
			t.Fatalf("%d bytes are counted, want 5", m.bytes)
		}
		if number == 9 {
			answer.undo()
		}
	}
	if m.bytes != len("undone") {
		t.Errorf("%d bytes are counted after the last call was undone", m.bytes)
	}
}

func TestACallIsUndoneWhenNoAttemptCanDeliverItsReply(t *testing.T) {
	m := &memory{}
	first, _ := remember(t, m, "s", 1, "claimed")
	again, _ := remember(t, m, "s", 1, "")
	first.undo()
	if got, _ := remember(t, m, "s", 1, ""); string(got.body) != "claimed" {
		t.Errorf("the call was undone while another attempt delivers %q", got.body)
	} else {
		got.undo()
	}
	again.undo()
	got, executed := remember(t, m, "s", 1, "")
	if executed || string(got.body) != "undone" {
		t.Errorf("a repetition after the call was undone is executed: %t, %q", executed, got.body)
	}
	got.undo() // there is nothing to undo any more
	if got, _ := remember(t, m, "s", 1, ""); string(got.body) != "undone" {
		t.Errorf("undone twice: %q", got.body)
	}
}

func TestACallIsUndoneAcrossTheTurn(t *testing.T) {
	m := &memory{}
	first, _ := remember(t, m, "s", 1, "claimed")
	m.turned = m.turned.Add(-2 * rememberFor)
	remember(t, m, "other", 1, "x")
	first.undo()
	if got, executed := remember(t, m, "s", 1, ""); executed || string(got.body) != "undone" {
		t.Errorf("executed: %t, %q", executed, got.body)
	}
}

func TestACallIsNotUndoneWhenItsSessionHasGoneOn(t *testing.T) {
	m := &memory{}
	undone := false
	first, err := m.do(t.Context(), store.Request{Session: "s", Number: 1}, func() result {
		return result{reply: []byte("x"), undo: func() []byte { undone = true; return []byte("y") }}
	})
	if err != nil {
		t.Fatal(err)
	}
	remember(t, m, "s", 2, "next")
	if first.undo(); undone {
		t.Error("a call whose reply was read is undone")
	}
}

func TestARepetitionWaitsUntilTheCallIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		undoing := make(chan struct{})
		first, err := m.do(t.Context(), store.Request{Session: "s", Number: 1}, func() result {
			return result{reply: []byte("x"), undo: func() []byte { <-undoing; return []byte("undone") }}
		})
		if err != nil {
			t.Fatal(err)
		}
		go first.undo()
		synctest.Wait()
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		if _, err := m.do(ctx, store.Request{Session: "s", Number: 1}, nil); !errors.Is(err, enough) {
			t.Errorf("a repetition whose caller leaves returns %v", err)
		}
		go close(undoing)
		if got, executed := remember(t, m, "s", 1, ""); executed || string(got.body) != "undone" {
			t.Errorf("executed: %t, %q", executed, got.body)
		}
	})
}

func TestARepetitionOfACallThatPanickedIsRefused(t *testing.T) {
	m := &memory{}
	func() {
		defer func() { recover() }()
		m.do(t.Context(), store.Request{Session: "s", Number: 1}, func() result { panic("x") })
	}()
	if _, err := m.do(t.Context(), store.Request{Session: "s", Number: 1}, nil); !errors.Is(err, errPanicked) {
		t.Errorf("%v, want %v", err, errPanicked)
	}
}
