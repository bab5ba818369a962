package view_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/view"
)

// A problem of all shards of a queue has their number only, and one of a single shard also which, even if it is 0.
func TestProblemsOfShardsInJSON(t *testing.T) {
	for kind, shard := range map[inspect.ProblemKind]any{
		inspect.ShardsStuck: nil, inspect.ShardDown: 0.0, inspect.QueueLimited: 0.0,
	} {
		var got map[string]any
		text, err := json.Marshal(view.Problem(inspect.Problem{Kind: kind, Queue: "q", Shards: 2}))
		if err != nil || json.Unmarshal(text, &got) != nil || got["shard"] != shard || got["shards"] != 2.0 {
			t.Errorf("%s: %s, %v", kind, text, err)
		}
	}
}

func TestProblemOfPausedWorkersNamesThem(t *testing.T) {
	got := view.Problem(inspect.Problem{Kind: inspect.WorkersPaused, Queue: "q", Workers: 2, Paused: []string{"a", "b"}})
	if !slices.Equal(got.Paused, []string{"a", "b"}) || got.Action.Do != "resume_workers" {
		t.Errorf("%+v", got)
	}
}
