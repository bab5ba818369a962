package inspect

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// TestDeadErrorsOfShards reads a queue with shards and one without, page by page.
func TestDeadErrorsOfShards(t *testing.T) {
	onEachStore(t, checkDeadErrorsOfShards)
}

func checkDeadErrorsOfShards(t *testing.T, c *later.Client) {
	if err := c.Queue("sharded").SetShards(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, queue := range []string{"sharded", "plain"} {
		var dead []store.Info
		for i := range 200 {
			died := now.Add(-time.Duration(i) * time.Hour / 2)
			dead = append(dead, store.Info{Message: store.Message{ID: fmt.Sprint(i)}, State: store.StateDead, Due: died,
				DiedAt: died, Attempts: 1, DeadReason: store.DeadFailed, LastError: fmt.Sprintf("HTTP %d", 500+i%4)})
		}
		if _, err := c.Store().Restore(t.Context(), queue, dead); err != nil {
			t.Fatal(err)
		}
	}
	count, looked, inHours, recentFirst := 0, 0, 0, 0
	for o := (DeadErrorsOptions{Look: 30}); ; {
		page, err := DeadErrors(t.Context(), c, o)
		if err != nil || page.Dead != 400 || page.Queues != 2 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, g := range page.Groups {
			if g.Pattern != "HTTP #" {
				t.Errorf("%+v", g)
			}
			count += g.Count
			for _, n := range g.Hours {
				inHours += n
			}
		}
		looked += page.Looked
		if page.HoursComplete && recentFirst == 0 {
			recentFirst = looked
		}
		if o.Cursor = page.Next; o.Cursor == "" {
			break
		}
	}
	if count != 400 || looked != 400 || inHours < 2*45 || inHours > 2*48 || recentFirst > inHours+30 {
		t.Errorf("%d of %d counted, %d of them in the hours, which were complete after %d", count, looked, inHours,
			recentFirst)
	}
}
