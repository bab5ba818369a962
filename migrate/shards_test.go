package migrate

import (
	"bytes"
	"slices"
	"testing"

	"github.com/laterq/later/store"
)

// TestQueueWithShardsIsTransferredCompletely copies and exports a queue while its messages move to three shards: leased
// ones are still in the first.
func TestQueueWithShardsIsTransferredCompletely(t *testing.T) {
	names, clients := engines(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			from := clients[name]
			mixed(t, from, "mixed", 1234)
			fill(t, from, "filled", 1200)
			for _, queue := range []string{"mixed", "filled"} {
				if err := store.SetShards(t.Context(), from.Store(), queue, 3); err != nil {
					t.Fatal(err)
				}
			}
			to := newMem(t)
			if err := to.Queue("filled").SetShards(t.Context(), 5); err != nil {
				t.Fatal(err)
			}
			got := mustCopy(t, to, from, CopyConfig{Queues: []string{"mixed", "filled"}})
			for i := range got {
				got[i].Total = 0 // a message that moves may be counted twice
			}
			want := []QueueCopy{{Queue: "mixed", Copied: 1240, Leased: 2}, {Queue: "filled", Copied: 3602, Leased: 2}}
			if !slices.Equal(got, want) {
				t.Errorf("copied %+v", got)
			}
			sameContents(t, to, from, "mixed")
			sameContents(t, to, from, "filled")
			if shards, err := to.Queue("mixed").Shards(t.Context()); err != nil || shards.Number != 1 {
				t.Errorf("the copy has %d shards, %v", shards.Number, err)
			}

			target := newMem(t)
			file := exported(t, from, "filled")
			if r := imported(t, target, bytes.NewReader(file)); r.Imported != 3602 || r.Duplicates != 0 {
				t.Errorf("imported %+v", r)
			}
			sameContents(t, target, from, "filled")
			lines := bytes.SplitAfter(file, []byte("\n"))
			for _, cut := range []int{1, 2, 4, 700, 1204, 2403, 3602} {
				resumed(t, from, file, bytes.Join(lines[:cut], nil))
			}

			_, err := Copy(t.Context(), newMem(t), from, CopyConfig{Queues: []string{"filled"}, Move: true})
			wantError(t, err, store.ErrLeased)
			wantCounts(t, from.Queue("filled"), 0, 0, 2, 0)
		})
	}
}
