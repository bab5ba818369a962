package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

func TestRunNowContinuesAfterAMessageThatItCannotMove(t *testing.T) {
	c := newCLI(t)
	for _, id := range []string{"a", "b"} {
		c.ok("send", "q", "x", "--id", id, "--in", "1h")
	}
	r := c.run("run-now", "q", "missing", "a", "gone", "b")
	if r.exit != 11 || r.stdout != "a is due now\nb is due now\n" {
		t.Errorf("exit %d: %s", r.exit, r.stdout)
	}
	contains(t, r.stderr, "missing", "gone")
}

// TestBatchFinishesASendThatWasStarted looks at the context of the call, which a stop signal must not end.
func TestBatchFinishesASendThatWasStarted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	chunks := make(chan [][]byte, 1)
	chunks <- [][]byte{[]byte("x")}
	send := func(ctx context.Context, msgs []later.Outgoing) ([]later.SendResult, error) {
		if ctx.Done() != nil {
			t.Error("a stop signal ends the call")
		}
		return make([]later.SendResult, len(msgs)), nil
	}
	b := &batchSend{to: destination{sendBatch: send}}
	if _, err := b.next(ctx, chunks); err != nil || b.sent != 1 {
		t.Errorf("sent %d, %v", b.sent, err)
	}
}

func TestPreviewCountsCharacters(t *testing.T) {
	if got := preview("äöü", 3); got != "äöü" {
		t.Errorf("got %q", got)
	}
	if got := preview("äöüß", 3); got != "äö…" {
		t.Errorf("got %q", got)
	}
}

func TestMessageThatFollowsIsNotDelivered(t *testing.T) {
	for want, info := range map[string]*later.Info{
		"no":                      {State: later.StateLeased, Follows: true},
		"now, for the first time": {State: later.StateLeased},
		"yes":                     {State: later.StateLeased, Delivered: true},
	} {
		if got := delivered(info); got != want {
			t.Errorf("%+v: %s, want %s", info, got, want)
		}
	}
}

// TestLimitGivesBackWhatWasClaimedBeforeItPaused calls the middleware of later work --max as a worker does that has
// claimed a message too many.
func TestLimitGivesBackWhatWasClaimedBeforeItPaused(t *testing.T) {
	c := newCLI(t)
	stopped := 0
	w := &worker{later: later.NewWorker(c.client(), later.WorkerConfig{}), stop: func(error) { stopped++ }}
	handled := 0
	h := w.limit(2)(func(context.Context, *later.Message) error { handled++; return nil })
	var results []error
	for range 3 {
		results = append(results, h(t.Context(), &later.Message{}))
	}
	if handled != 2 || results[0] != nil || results[1] != nil || results[2] == nil || stopped != 1 {
		t.Errorf("handled %d, stopped %d times: %v", handled, stopped, results)
	}
}

func TestImportThatIsStoppedSaysHowToContinue(t *testing.T) {
	from, to := newCLI(t), newCLI(t)
	const n = store.MaxBatch + 10
	from.runWith(t.Context(), strings.Repeat("x\n", n), "send", "q", "--batch")
	export := from.ok("export", "q")
	whole := export[:strings.LastIndex(strings.TrimSuffix(export, "\n"), "\n")+1] // without its end
	input, feed := io.Pipe()
	defer feed.Close()
	go io.WriteString(feed, whole)
	ctx, stop := context.WithCancelCause(t.Context())
	var stderr bytes.Buffer
	m := &Main{Stdin: input, Stdout: io.Discard, Stderr: &stderr, Env: append(os.Environ(), "LATER_STORE="+to.store)}
	exit := make(chan int)
	go func() { exit <- m.Run(ctx, []string{"import"}) }()
	q := to.client().Queue("q")
	for {
		stats, err := q.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if stats.Ready >= store.MaxBatch {
			break
		}
	}
	stop(&stopError{syscall.SIGINT})
	if code := <-exit; code != 130 {
		t.Errorf("exit %d", code)
	}
	contains(t, stderr.String(), "to continue, repeat with the same input and --from-line ")
}
