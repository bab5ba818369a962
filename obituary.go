package later

import (
	"context"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/laterq/later/store"
)

// obituary calls OnDead for messages that went to dead, one after the other, in a goroutine that lives while
// there are any.
type obituary struct {
	run       *run
	goroutine sync.WaitGroup

	mu      sync.Mutex
	dead    []deadMessage
	working bool
}

type deadMessage struct {
	lane *lane
	id   string
}

func (o *obituary) add(l *lane, ids ...string) {
	if o.run.cfg.OnDead == nil || len(ids) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range ids {
		o.dead = append(o.dead, deadMessage{l, id})
	}
	if !o.working {
		o.working = true
		o.goroutine.Go(o.work)
	}
}

func (o *obituary) busy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.working
}

func (o *obituary) work() {
	for {
		l, ids := o.take()
		if l == nil {
			o.run.noteChange()
			return
		}
		ctx, cancel := context.WithTimeout(o.run.calling, callTimeout)
		infos, err := o.run.client.store.Get(ctx, l.queue.name, ids)
		cancel()
		if err != nil {
			o.run.log.Error("later: OnDead is not called, since the dead messages cannot be read",
				"queue", l.queue.name, "messages", len(ids), "error", err)
			continue
		}
		for _, info := range infos {
			if info != nil && info.State == StateDead { // else it was purged or replayed meanwhile
				o.call(newInfo(l.queue.name, *info))
			}
		}
	}
}

// take gives ids of one lane, as many as go into one call; a nil lane when none are left.
func (o *obituary) take() (l *lane, ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.dead) == 0 {
		o.working = false
		return nil, nil
	}
	l = o.dead[0].lane
	for len(ids) < min(len(o.dead), store.MaxBatch) && o.dead[len(ids)].lane == l {
		ids = append(ids, o.dead[len(ids)].id)
	}
	o.dead = slices.Delete(o.dead, 0, len(ids))
	return l, ids
}

func (o *obituary) call(info *Info) {
	defer func() {
		if p := recover(); p != nil {
			o.run.log.Error("later: OnDead panicked",
				"queue", info.Queue, "id", info.ID, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	o.run.cfg.OnDead(o.run.calling, info)
}
