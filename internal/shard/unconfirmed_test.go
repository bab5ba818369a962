package shard

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// replaced is an engine whose server had another directory when it was read first: the server was replaced since then,
// and no replica had that directory.
type replaced struct {
	*memstore.Store
	sign atomic.Pointer[string]
}

func (e *replaced) Sign(ctx context.Context, name string) (string, error) {
	if sign := e.sign.Swap(nil); sign != nil {
		return *sign, nil
	}
	return e.Store.Sign(ctx, name)
}

// A process that has read a directory which a failover has undone renames and deletes no shard.
func TestADirectoryThatWasUndoneChangesNoShard(t *testing.T) {
	for name, change := range map[string]func(d *directory){
		"a change that begins": func(d *directory) {
			d.Phase, d.Former, d.Generation, d.Begun = preparing, d.Generation, newGeneration(), time.Now().UnixMilli()
			d.To, d.Salts, d.HasFlow = 3, []string{"", "1", "2"}, true
		},
		"a deletion": func(d *directory) { d.Phase = deleting },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s, _ := w.process()
			w.send(s, "", "a", "b", "c", "d")
			w.steps(s, 2)
			d := routeOf(t, s, "q").directory
			change(&d)
			engine, text := &replaced{Store: w.engine}, d.text()
			engine.sign.Store(&text)
			other := New(engine, slog.New(slog.DiscardHandler)).(forwarder)
			Stepwise(other)
			w.ok(other.SetShards(t.Context(), "q", 3))
			for _, s := range []store.Store{s, other} {
				infos, err := s.Get(t.Context(), "q", []string{"a", "b", "c", "d"})
				w.ok(err)
				for i, info := range infos {
					if info == nil {
						t.Errorf("message %c is lost", 'a'+i)
					}
				}
			}
		})
	}
}
