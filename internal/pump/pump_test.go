package pump

import (
	"testing"
	"time"
)

func TestGateThatIsClosedLetsNobodyWait(t *testing.T) {
	var g Gate
	g.Set(true)
	ctx, cancel := g.untilClosed(t.Context())
	defer cancel()
	if ctx.Err() == nil {
		t.Error("the context of a closed gate has not ended")
	}
}

func TestWatchKnowsTheLongestCall(t *testing.T) {
	var calls Watch
	calls.Begin(false, time.Second)
	calls.Begin(true, 5*time.Second)
	if got := calls.Longest(10 * time.Second); got != 9*time.Second {
		t.Errorf("the longest call took %v, want 9 s", got)
	}
}
