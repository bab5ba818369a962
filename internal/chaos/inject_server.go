//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
)

// killServer kills the server and restarts it after up to a second.
func killServer(ctx context.Context, r *run) error {
	r.log("server-kill")
	if slices.Equal(r.fault.setting.args, everysec) {
		if err := r.openFsyncWindow(ctx); err != nil {
			return err
		}
	}
	r.servers.nodes[0].Kill()
	if n := len(r.windows); n > 0 && r.windows[n-1].to == 0 {
		r.windows[n-1].to = now()
	}
	sleep(ctx, r.upTo(time.Second))
	return r.relaunch(0)
}

// openFsyncWindow opens a window for the writes that a server with appendfsync everysec may lose when it dies. While an
// fsync is in progress, Redis replies but postpones its writes to the file, for up to 2 seconds (flushAppendOnlyFile in
// its aof.c). Otherwise, only writes acknowledged from now on can be lost.
func (r *run) openFsyncWindow(ctx context.Context) error {
	asked := now()
	info, err := r.servers.admin[0].InfoMap(ctx, "persistence").Result()
	if err != nil {
		return err
	}
	w := window{from: asked}
	if p := info["Persistence"]; p["aof_pending_bio_fsync"] != "0" || p["aof_buffer_length"] != "0" {
		r.log("fsync-under-way")
		w.from -= (2 * time.Second).Microseconds()
	}
	r.windows = append(r.windows, w)
	return nil
}

// relaunch restarts a stopped server and records when it serves.
func (r *run) relaunch(node int) error {
	err := r.servers.nodes[node].Relaunch()
	r.log("serves", node, allQueues)
	return err
}

// disruptServer flushes scripts, makes the server a replica, restarts it or reloads its data, in turn.
func disruptServer(ctx context.Context, r *run) error {
	rdb := r.servers.admin[0]
	switch r.injected % 4 {
	case 1:
		for range 5 {
			r.log("script-flush")
			if err := rdb.ScriptFlush(ctx).Err(); err != nil {
				return err
			}
			sleep(ctx, r.upTo(200*time.Millisecond))
		}
	case 2:
		r.log("readonly")
		if err := rdb.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
			return err
		}
		sleep(ctx, 200*time.Millisecond+r.upTo(time.Second))
		err := rdb.Do(ctx, "REPLICAOF", "NO", "ONE").Err()
		r.log("serves", 0, allQueues)
		return err
	case 3:
		r.log("restart")
		return r.relaunch(0)
	default:
		return r.reload(ctx)
	}
	return nil
}

// reload makes the server reload its data for about a second and reply LOADING until then.
func (r *run) reload(ctx context.Context) error {
	options := r.servers.nodes[0].Options()
	options.ReadTimeout = time.Minute
	rdb := newRedis(options)
	defer rdb.Close()
	info, err := rdb.InfoMap(ctx, "persistence").Result()
	if err != nil {
		return err
	}
	var size int
	fmt.Sscan(info["Persistence"]["aof_current_size"], &size)
	if err := rdb.ConfigSet(ctx, "key-load-delay", fmt.Sprint(loadDelay(size))).Err(); err != nil {
		return err
	}
	r.log("loading")
	err = rdb.Do(ctx, "DEBUG", "LOADAOF").Err()
	r.log("serves", 0, allQueues)
	return errors.Join(err, rdb.ConfigSet(ctx, "key-load-delay", "0").Err())
}

// loadDelay returns the key-load-delay that makes a file of size bytes load in about a second: µs per command or, if
// negative, 1 µs per that many commands. Every sleep takes at least about a tenth of a millisecond.
func loadDelay(size int) int {
	const bytesOfACommand, sleeps = 100, 5000
	if commands := size/bytesOfACommand + 1; commands > sleeps {
		return -(commands / sleeps)
	} else {
		return 1_000_000 / commands
	}
}

// loseReplies loses some replies and their connections for a while.
func loseReplies(ctx context.Context, r *run) error {
	r.withConditions(ctx, "lose-replies", conditions{loseReplies: 0.01 + 0.1*r.random.Float64()})
	return nil
}

// delayRequests delays some requests until their clients have given up the connection and most likely retried.
func delayRequests(ctx context.Context, r *run) error {
	r.late = maxLate
	r.withConditions(ctx, "late-requests", conditions{lateRequests: 0.01 + 0.1*r.random.Float64()})
	return nil
}

// delayClaims delays some claims until their repetitions were answered and, most likely, settled.
func delayClaims(ctx context.Context, r *run) error {
	p := r.servers.proxies[0]
	held := p.heldClaims()
	r.withConditions(ctx, "late-claims", conditions{
		lateClaims: 0.1 + 0.4*r.random.Float64(), claimLease: r.fault.load.lease,
	})
	if p.heldClaims() == held {
		return errors.New("no claim was delivered late")
	}
	return nil
}

// withConditions applies network conditions for one to two seconds.
func (r *run) withConditions(ctx context.Context, kind string, w conditions) {
	r.log(kind)
	r.servers.proxies[0].set(w)
	sleep(ctx, time.Second+r.upTo(time.Second))
	r.servers.proxies[0].set(conditions{})
	r.log("network-good")
}

// disruptNetwork makes connections half-open, delays, cuts or throttles them, in turn.
func disruptNetwork(ctx context.Context, r *run) error {
	p := r.servers.proxies[0]
	switch r.injected % 4 {
	case 1:
		r.log("half-open")
		p.halfOpen(0.5)
		return nil
	case 2:
		r.log("latency")
		p.set(conditions{delay: 200 * time.Millisecond})
		sleep(ctx, 2*time.Second)
	case 3:
		r.log("cuts")
		for range 20 {
			p.cut(0.05)
			sleep(ctx, 100*time.Millisecond)
		}
	default:
		r.log("throttle")
		p.set(conditions{bytesPerSecond: 100 << 10})
		sleep(ctx, 2*time.Second)
	}
	p.set(conditions{})
	r.log("network-good")
	return nil
}

// disruptSmall cuts connections, makes them half-open, loses replies and delays requests, in turn.
func disruptSmall(ctx context.Context, r *run) error {
	p := r.servers.proxies[0]
	switch r.injected % 4 {
	case 1:
		r.log("cuts")
		for range 20 {
			p.cut(0.1)
			sleep(ctx, 50*time.Millisecond)
		}
		r.log("network-good")
	case 2:
		return loseReplies(ctx, r)
	case 3:
		return delayRequests(ctx, r)
	default:
		r.log("half-open")
		p.halfOpen(0.2)
	}
	return nil
}

// fillMemory fills the server with delayed messages, and checks that it refuses sends but nothing else. Then it makes
// the messages due and checks that the server accepts sends again when they are handled.
func fillMemory(ctx context.Context, r *run) error {
	rdb := r.servers.admin[0]
	r.log("full")
	if err := limitMemory(ctx, rdb, 20<<20); err != nil {
		return err
	}
	q := r.client.Queue(r.queues[0])
	var filler []string
	for full := false; !full; {
		id := fmt.Sprintf("filler-%d-%d", r.injected, len(filler))
		r.journal.one(beginSend, now(), id, id, "+0", flagNone)
		_, err := q.Send(ctx, makePayload(id, normal, 400<<10), later.WithID(id), later.In(farAway))
		r.journal.one(endSend, now(), id, outcomeOf(err))
		if full = errors.Is(err, later.ErrFull); err != nil && !full {
			return err
		}
		filler = append(filler, id)
		if len(filler) > 100 {
			return errors.New("the server did not become full")
		}
	}
	if err := r.checkSmallSendRefused(ctx, q, rdb); err != nil {
		r.result.violate("full", "-", "%v", err)
	}
	if err := r.checkCancelWhileFull(ctx, q); err != nil {
		r.result.violate("full", "-", "%v", err)
	}
	for _, id := range filler {
		if err := q.Reschedule(ctx, id, later.In(0)); err != nil && !errors.Is(err, later.ErrNotFound) {
			r.result.violate("full", id, "reschedule on a full server: %v", err)
		}
	}
	id := fmt.Sprint("after-full-", r.injected)
	err := within(ctx, 30*time.Second, "room after the drain", func(ctx context.Context) error {
		r.journal.one(beginSend, now(), id, id, "+0", flagNone)
		_, err := q.Send(ctx, makePayload(id, normal, 200<<10), later.WithID(id))
		r.journal.one(endSend, now(), id, outcomeOf(err))
		return err
	})
	if err != nil {
		r.result.violate("full", "-", "%v", err)
	}
	r.log("room")
	return rdb.ConfigSet(ctx, "maxmemory", "0").Err()
}

// limitMemory sets maxmemory to the memory in use plus more bytes.
func limitMemory(ctx context.Context, rdb *redis.Client, more int64) error {
	info, err := rdb.InfoMap(ctx, "memory").Result()
	if err != nil {
		return err
	}
	var used int64
	fmt.Sscan(info["Memory"]["used_memory"], &used)
	return rdb.ConfigSet(ctx, "maxmemory", fmt.Sprint(used+more)).Err()
}

// checkSmallSendRefused checks that even a small send is refused until the drain. It lowers the limit again for each
// attempt, because other clients may free memory in between, such as the buffer of a large send.
func (r *run) checkSmallSendRefused(ctx context.Context, q *later.Queue, rdb *redis.Client) (err error) {
	for try := range 5 {
		if err := limitMemory(ctx, rdb, -4<<20); err != nil {
			return err
		}
		id := fmt.Sprintf("small-%d-%d", r.injected, try)
		r.journal.one(beginSend, now(), id, id, "+0", flagNone)
		_, err = q.Send(ctx, makePayload(id, normal, 20), later.WithID(id))
		r.journal.one(endSend, now(), id, outcomeOf(err))
		if errors.Is(err, later.ErrFull) {
			return nil
		}
	}
	return fmt.Errorf("sends to a full server returned %v; want ErrFull", err)
}

// checkCancelWhileFull checks that a full server accepts a cancel.
func (r *run) checkCancelWhileFull(ctx context.Context, q *later.Queue) error {
	id := fmt.Sprintf("filler-%d-0", r.injected)
	r.journal.one(beginCancel, now(), id)
	state, err := q.Cancel(ctx, id)
	outcome := string(state)
	if err != nil {
		outcome = outcomeOf(err)
	}
	r.journal.one(endCancel, now(), id, outcome)
	if err != nil && !errors.Is(err, later.ErrNotFound) {
		return fmt.Errorf("cancel on a full server: %w", err)
	}
	return nil
}

// clockSteps are the clock's offsets, one after the other. The last one restores the time.
var clockSteps = []time.Duration{clockStep, 0, -clockStep, 0}

const clockStep = time.Hour

// stepClock steps the server's clock to the next offset.
func stepClock(ctx context.Context, r *run) error {
	return r.step(ctx, clockSteps[(r.injected-1)%len(clockSteps)])
}

// step sets the offset of the server's clock and verifies it.
func (r *run) step(ctx context.Context, off time.Duration) error {
	r.slack = 2 * time.Hour
	r.log("clock", int64(off/time.Second))
	if err := r.servers.clock.step(off); err != nil {
		return err
	}
	at, err := r.servers.admin[0].Time(ctx).Result()
	if err == nil && (time.Until(at)-off).Abs() > time.Minute {
		err = fmt.Errorf("the server's clock is %v; want an offset of %v", at, off)
	}
	return err
}

// stepPastAll steps the clock so far ahead that every message sent while the clock was ahead is due.
func stepPastAll(ctx context.Context, r *run) error { return r.step(ctx, time.Hour+time.Minute) }

// damageMessage overwrites the stored bytes of a scheduled message so that they are unreadable.
func damageMessage(ctx context.Context, r *run) error {
	q := r.client.Queue(r.queues[r.random.IntN(len(r.queues))])
	id := fmt.Sprint("damaged-", r.injected)
	r.journal.one(beginSend, now(), id, id, "+1000", string(flagUnreadable))
	_, err := q.Send(ctx, makePayload(id, normal, r.fault.load.payloadMin), later.WithID(id), later.In(time.Second))
	r.journal.one(endSend, now(), id, outcomeOf(err))
	if err != nil {
		return err
	}
	bytes := "\xff" + strings.Repeat("damage", 1+r.random.IntN(50_000))
	const ifScheduled = `if redis.call('ZSCORE', KEYS[1], ARGV[1]) then
		redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
		return 1
	end
	return 0`
	keys := []string{"later:{" + q.Name() + "}:due", "later:{" + q.Name() + "}:messages"}
	switch n, err := r.servers.admin[0].Eval(ctx, ifScheduled, keys, id, bytes).Int(); {
	case err != nil:
		return err
	case n == 0:
		return nil // it was claimed before the damage, on a slow machine
	}
	r.expectations = append(r.expectations, expectation{id, func(info *later.Info) error {
		if info == nil || info.State != later.StateDead || info.DeadReason != later.DeadUnreadable ||
			string(info.Raw) != bytes {
			return fmt.Errorf("want dead as unreadable with its %d bytes, got %s", len(bytes), describe(info))
		}
		return nil
	}})
	return nil
}

func describe(info *later.Info) string {
	if info == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s after %d attempts, %d bytes",
		info.State, info.DeadReason, info.Attempts, len(info.Raw)+len(info.Payload))
}
