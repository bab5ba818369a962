package later

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestSetShardsWaitsForLeasedMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx, q := t.Context(), c.Queue("q")
		const n = 40
		for i := range n {
			mustSend(t, q, "x", WithID(strconv.Itoa(i)))
		}
		held := mustReceive(t, q, n)
		why := errors.New("no time")
		short, cancel := context.WithTimeoutCause(ctx, 5*time.Second, why)
		defer cancel()
		if err := q.SetShards(short, 4); err != why {
			t.Errorf("SetShards of a queue with leased messages returned %v", err)
		}
		shards, err := q.Shards(ctx)
		if err != nil || !shards.Moving || shards.From != 1 || shards.Number != 4 || shards.Since.IsZero() {
			t.Errorf("shards are %+v, %v", shards, err)
		}
		wantError(t, q.SetShards(ctx, 5), ErrConflict)
		for _, d := range held {
			if err := d.Nack(ctx, time.Hour, errors.New("later")); err != nil {
				t.Fatal(err)
			}
		}
		if err := q.SetShards(ctx, 4); err != nil {
			t.Error(err)
		}
		shards, err = q.Shards(ctx)
		if err != nil || shards.Moving || len(shards.Each) != 4 {
			t.Errorf("shards are %+v, %v", shards, err)
		}
		total := int64(0)
		for _, s := range shards.Each {
			total += s.Stats.Scheduled
		}
		if total != n {
			t.Errorf("the shards have %d messages", total)
		}

		wantError(t, q.SetShards(ctx, 2), ErrConflict) // calls from before the change may arrive
		time.Sleep(8 * time.Minute)
		if err := q.SetShards(ctx, 1); err != nil {
			t.Error(err)
		}
		if s := mustStats(t, q); s.Scheduled != n {
			t.Errorf("stats are %+v", s)
		}
	})
}

func TestNumberOfShardsIsChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client) {
		ctx := t.Context()
		for _, n := range []int{-1, 0, store.MaxShards + 1} {
			wantError(t, c.Queue("q").SetShards(ctx, n), ErrInvalid)
		}
		for _, name := range []string{"", "..", "topic:t", "q{"} {
			wantError(t, c.Queue(name).SetShards(ctx, 2), ErrInvalid)
		}
		limited := c.Queue("limited")
		if err := limited.SetFlow(ctx, Flow{Concurrency: 1}); err != nil {
			t.Fatal(err)
		}
		wantError(t, limited.SetShards(ctx, 2), ErrInvalid)

		q := c.Queue("new")
		if shards, err := q.Shards(ctx); err != nil || shards.Number != 1 || len(shards.Each) != 1 {
			t.Errorf("shards of a queue that does not exist: %+v, %v", shards, err)
		}
		if err := q.SetShards(ctx, store.MaxShards); err != nil {
			t.Error(err)
		}
		for _, f := range []Flow{{Concurrency: store.MaxShards - 1},
			{Rate: Rate{N: store.MaxShards, Per: time.Second, Burst: 5}},
			{Rate: Rate{N: store.MaxShards, Per: time.Second}}, {Rate: Rate{N: 1, Per: time.Second, Burst: store.MaxShards}}} {
			wantError(t, q.SetFlow(ctx, f), ErrInvalid)
		}
		if s := mustStats(t, q); !s.Exists {
			t.Error("the queue does not exist")
		}
		if names, err := c.Queues(ctx); err != nil || len(names) != 2 {
			t.Errorf("queues are %q, %v", names, err)
		}
		if err := q.Delete(ctx); err != nil {
			t.Error(err)
		}
		if shards, err := q.Shards(ctx); err != nil || shards.Number != 1 {
			t.Errorf("shards of a deleted queue: %+v, %v", shards, err)
		}
	})
}
