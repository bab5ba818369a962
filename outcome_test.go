package later

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestOutcomeOfSaysWhatAWorkerDoes(t *testing.T) {
	cause := errors.New("mail server is busy")
	wrapped := fmt.Errorf("%w: %w", cause, RetryIn(time.Minute))
	joined := errors.Join(cause, Snooze(time.Hour))
	badThen := Then("", nil)
	for name, test := range map[string]struct {
		err  error
		want Outcome
	}{
		"nil":           {nil, Outcome{Kind: EventAcked}},
		"follow-ups":    {Then("next", nil), Outcome{Kind: EventAcked}},
		"bad follow-up": {badThen, Outcome{Kind: EventNacked, Backoff: true, Err: badThen}},
		"error":         {cause, Outcome{Kind: EventNacked, Backoff: true, Err: cause}},
		"retry in":      {RetryIn(time.Minute), Outcome{Kind: EventNacked, Delay: time.Minute}},
		"wrapped":       {wrapped, Outcome{Kind: EventNacked, Delay: time.Minute, Err: wrapped}},
		"snooze":        {Snooze(-1), Outcome{Kind: EventSnoozed}},
		"reset":         {Snooze(1, ResetAttempts), Outcome{Kind: EventSnoozed, Delay: 1, ResetAttempts: true}},
		"joined":        {joined, Outcome{Kind: EventSnoozed, Delay: time.Hour, Err: joined}},
		"too long":      {Snooze(1 << 62), Outcome{Kind: EventSnoozed, Delay: store.MaxDelay}},
		"bury":          {Bury(cause), Outcome{Kind: EventBuried, Err: cause}},
		"bury nothing":  {Bury(nil), Outcome{Kind: EventBuried}},
	} {
		if got := OutcomeOf(test.err); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
	// Bury takes precedence over Snooze, and Snooze over RetryIn, as for a worker.
	all := errors.Join(RetryIn(1), Snooze(2), Bury(cause))
	if got := OutcomeOf(all); got.Kind != EventBuried || got.Err != all {
		t.Errorf("got %+v", got)
	}
	if got := OutcomeOf(errors.Join(RetryIn(1), Snooze(2))); got.Kind != EventSnoozed || got.Delay != 2 {
		t.Errorf("got %+v", got)
	}
}

// TestOutcomeOfAgreesWithTheWorker compares OutcomeOf with the state of the message after the handler.
func TestOutcomeOfAgreesWithTheWorker(t *testing.T) {
	for name, err := range map[string]error{
		"nil": nil, "error": errors.New("no"), "retry": RetryIn(time.Minute), "snooze": Snooze(time.Minute),
		"bury": Bury(nil),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Client) {
				kinds := make(chan EventKind, 10)
				c.observe = func(e Event) { kinds <- e.Kind }
				w := NewWorker(c, WorkerConfig{})
				w.Handle("q", func(context.Context, *Message) error { return err })
				start(t, w)
				mustSend(t, c.Queue("q"), "")
				want := OutcomeOf(err).Kind
				for {
					switch kind := <-kinds; kind {
					case EventSent, EventClaimed, EventStarted:
						continue
					case want:
					default:
						t.Errorf("the worker's event is %q, want %q", kind, want)
					}
					return
				}
			})
		})
	}
}

func TestContextWithMessageIsThatOfAHandler(t *testing.T) {
	m := &Message{ID: "a"}
	ctx, cancel := context.WithCancel(ContextWithMessage(t.Context(), m))
	defer cancel()
	if got := MessageFromContext(ctx); got != m {
		t.Errorf("got %v", got)
	}
	if got := MessageFromContext(t.Context()); got != nil {
		t.Errorf("got %v without a message", got)
	}
}
