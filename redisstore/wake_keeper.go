package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// keep maintains this process's places in the lists of a server's queues and sends its beats, until the server is no
// longer used.
func (v *wakeServer) keep() {
	beat := time.NewTimer(0)
	defer beat.Stop()
	pace := time.NewTimer(0)
	defer pace.Stop()
	paced := false // a batch was sent, and pace has not fired since
	k := keeper{wakeServer: v}
	for {
		work := v.work
		if paced {
			work = nil
		}
		select {
		case <-v.ctx.Done():
			return
		case <-pace.C:
			paced = false
		case <-work:
			pace.Reset(k.sendBatch(v.ctx))
			paced = true
		case <-beat.C:
			if k.endIdle() {
				return
			}
			k.beat(v.ctx)
			beat.Reset(beatEvery)
		}
	}
}

// keeper is the state of the goroutine keep.
type keeper struct {
	*wakeServer
	beats   int // sent since the goroutine started
	pings   int64
	pinging bool // the last beat was published
}

// endIdle ends the goroutines of a server without queues.
func (k *keeper) endIdle() bool {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	now := time.Now()
	if k.queues > 0 {
		k.used = now
		return false
	}
	if now.Sub(k.used) < listenIdle {
		return false
	}
	k.running, k.listening = false, false
	k.cancel()
	delete(k.w.servers, k.at.addr)
	k.w.done.Go(k.quit)
	return true
}

// sendBatch lists or removes this process at some of the pending queues, in one request, and returns how long to wait
// before the next one.
func (v *wakeServer) sendBatch(ctx context.Context) time.Duration {
	v.w.mu.Lock()
	n := min(len(v.pending), lookBatch)
	batch := v.pending[:n]
	if v.pending = v.pending[n:]; len(v.pending) > 0 {
		signal(v.work)
	} else {
		v.pending = nil
	}
	calls := v.prepare(batch)
	pause := lookPause * time.Duration(max(1, v.members))
	v.w.mu.Unlock()
	v.send(ctx, calls)
	return min(pause, maxLookPause)
}

// keeping is a call that lists or removes this process at a queue.
type keeping struct {
	*call
	start  claimStart
	leaves bool
	deaths int
}

// prepare returns the calls for some queues. The lock is held.
func (v *wakeServer) prepare(batch []*queueWake) []keeping {
	s := v.w.s
	calls := make([]keeping, 0, len(batch))
	for _, q := range batch {
		q.queued = false
		leaves := len(q.waiters) == 0
		if q.server != v || q.calls > 0 || leaves && q.listing == notListed || !leaves && !v.mustLook(q) {
			v.w.settle(q)
			continue
		}
		k := keeping{leaves: leaves, deaths: v.deaths}
		if leaves {
			q.notified, q.next = false, time.Time{}
			k.call = s.newCall("leave", q.name, 1)
			k.add(v.channel)
		} else {
			k.call = s.newCall("look", q.name, 1+len(v.dead))
			k.add(v.channel)
			for _, process := range v.dead {
				k.add(process)
			}
		}
		k.start = v.w.begin(q)
		calls = append(calls, k)
	}
	return calls
}

// send makes calls in one request.
func (v *wakeServer) send(ctx context.Context, calls []keeping) (err error) {
	if len(calls) == 0 {
		return nil
	}
	s := v.w.s
	began := time.Now()
	scripts := make([]*call, len(calls))
	for i, k := range calls {
		scripts[i] = k.call
	}
	replies, errs := s.together(ctx, scripts)
	for i, k := range calls {
		reply, failure := replies[i], errs[i]
		var moved *store.Moved
		if n, refused := reply.(int64); refused && !k.leaves && failure == nil {
			moved = s.movedError(ctx, k.start.q.name, n)
		}
		v.w.mu.Lock()
		if failure != nil {
			err = failure
			v.missed = true
			v.w.end(k.start)
		} else if moved != nil {
			v.w.endMoved(k.start, moved)
		} else {
			v.sent(k, reply, began)
		}
		v.w.settle(k.start.q)
		v.w.mu.Unlock()
	}
	return err
}

// sent evaluates a reply. The lock is held.
func (v *wakeServer) sent(k keeping, reply any, began time.Time) {
	q := k.start.q
	current := v.w.end(k.start)
	r, ok := reply.([]any)
	switch {
	case k.leaves && current:
		q.listing = notListed
		v.w.s.forget(q.name)
	case k.leaves:
	case !ok: // claims of a queue of another version fail
		q.listing, q.deaths = listed, k.deaths
	case r[2] == any(int64(1)):
		q.deaths = k.deaths
		v.w.wakeOne(q, true)
	default:
		q.deaths = k.deaths
		v.clock.read(began, time.Now(), time.UnixMicro(r[0].(int64)))
		v.w.expect(q, k.start, current, k.nextTime(r[1]))
	}
}

// beat reports to the other processes that this one is alive, and learns which are not. It also checks that messages to
// this process arrive.
func (k *keeper) beat(ctx context.Context) {
	s, w := k.w.s, k.w
	ctx, cancel := context.WithTimeout(ctx, beatEvery)
	defer cancel()
	w.mu.Lock()
	listening, epoch := k.listening, k.epoch
	w.mu.Unlock()
	pings := k.pinged.Load()
	if listening && k.pinging && pings == k.pings {
		signal(k.reconnect)
		listening = false
	}
	k.pinging = false
	reply, err := s.do(ctx, s.newServerCall("beat", s.processesKey(ctx, k.at), k.channel))
	if err != nil {
		s.reloadSlots(ctx, err)
		k.move(ctx)
		return
	}
	r := reply.([]any)
	last, heard, muted, members := r[0].(int64), r[1].(int64), r[2] == any(int64(1)), r[3].(int64)
	w.mu.Lock()
	forgotten := k.beats > 0 && (last < 0 || last >= deadAfter.Milliseconds())
	k.beats++
	k.members = int(members)
	for _, process := range r[4].([]any) {
		if name := process.(string); !slices.Contains(k.dead, name) {
			k.deaths++
		}
	}
	k.dead = k.dead[:0:0]
	for _, process := range r[4].([]any) {
		k.dead = append(k.dead, process.(string))
	}
	if muted != k.muted {
		k.muted = muted
		w.hasten()
	}
	if k.deaf() {
		w.hasten()
	}
	if same := k.epoch == epoch; forgotten || k.missed || len(k.dead) > 0 {
		if forgotten && same {
			k.relist()
		}
		k.missed = false
		for _, q := range w.queues {
			if q.server == k.wakeServer {
				w.settle(q)
			}
		}
	}
	w.mu.Unlock()
	if listening && heard > 0 {
		k.pinging, k.pings = true, pings
	}
	if listening && heard == 0 {
		signal(k.reconnect)
	}
	if !listening || heard == 0 {
		k.move(ctx)
	}
}

// move makes queues that are on another server of the Cluster now wait there.
func (v *wakeServer) move(ctx context.Context) {
	if v.at.node == nil {
		return
	}
	w := v.w
	var names []string
	w.mu.Lock()
	for name, q := range w.queues {
		if q.server == v {
			names = append(names, name)
		}
	}
	w.mu.Unlock()
	for _, name := range names {
		at := w.s.serverOf(ctx, name)
		if at.addr == v.at.addr || at.node == nil {
			continue
		}
		w.mu.Lock()
		if !w.closed && w.queues[name] != nil {
			q := w.queue(name, at)
			q.server.start()
			w.settle(q)
		}
		w.mu.Unlock()
	}
}

// leaveAll removes this process from all lists of a server. Then nothing of it is left there.
func (v *wakeServer) leaveAll() {
	ctx, cancel := context.WithTimeout(context.Background(), quitTimeout)
	defer cancel()
	var calls []keeping
	v.w.mu.Lock()
	for _, q := range v.w.queues {
		if q.server == v && q.listing != notListed {
			k := keeping{call: v.w.s.newCall("leave", q.name, 1), leaves: true, start: v.w.begin(q)}
			k.add(v.channel)
			calls = append(calls, k)
		}
	}
	v.w.mu.Unlock()
	for batch := range slices.Chunk(calls, lookBatch) {
		if v.send(ctx, batch) != nil {
			return // the server does not answer; other processes miss the beats
		}
	}
	if v.running {
		v.quit()
	}
}

// quit ends the beats in good order.
func (v *wakeServer) quit() {
	ctx, cancel := context.WithTimeout(context.Background(), quitTimeout)
	defer cancel()
	v.w.s.rdb.ZRem(ctx, v.w.s.processesKey(ctx, v.at), v.channel)
}
