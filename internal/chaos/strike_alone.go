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

// killServer is a crash and a restart a little later.
func killServer(ctx context.Context, r *run) error {
	r.note("server-kill")
	if slices.Equal(r.fault.setting.args, everysec) {
		if err := r.unwritten(ctx); err != nil {
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

// unwritten opens a window for what the death of a server with appendfsync everysec may undo: while an fsync is under way,
// Redis answers and puts off its writes to the file, for up to 2 seconds (flushAppendOnlyFile in its aof.c). When there
// is none, only what is answered from here on can be undone.
func (r *run) unwritten(ctx context.Context) error {
	asked := now()
	info, err := r.servers.admin[0].InfoMap(ctx, "persistence").Result()
	if err != nil {
		return err
	}
	w := window{from: asked}
	if p := info["Persistence"]; p["aof_pending_bio_fsync"] != "0" || p["aof_buffer_length"] != "0" {
		r.note("fsync-under-way")
		w.from -= (2 * time.Second).Microseconds()
	}
	r.windows = append(r.windows, w)
	return nil
}

// relaunch starts a server that was ended and writes down when it served.
func (r *run) relaunch(node int) error {
	err := r.servers.nodes[node].Relaunch()
	r.note("serves", node, allQueues)
	return err
}

// serverTrouble is what a server does that is restarted, reloaded or made a replica by mistake.
func serverTrouble(ctx context.Context, r *run) error {
	rdb := r.servers.admin[0]
	switch r.strikes % 4 {
	case 1:
		for range 5 {
			r.note("script-flush")
			if err := rdb.ScriptFlush(ctx).Err(); err != nil {
				return err
			}
			sleep(ctx, r.upTo(200*time.Millisecond))
		}
	case 2:
		r.note("readonly")
		if err := rdb.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
			return err
		}
		sleep(ctx, 200*time.Millisecond+r.upTo(time.Second))
		err := rdb.Do(ctx, "REPLICAOF", "NO", "ONE").Err()
		r.note("serves", 0, allQueues)
		return err
	case 3:
		r.note("restart")
		return r.relaunch(0)
	default:
		return r.reload(ctx)
	}
	return nil
}

// reload has the server load its file anew, for about a second, and answer LOADING meanwhile.
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
	r.note("loading")
	err = rdb.Do(ctx, "DEBUG", "LOADAOF").Err()
	r.note("serves", 0, allQueues)
	return errors.Join(err, rdb.ConfigSet(ctx, "key-load-delay", "0").Err())
}

// loadDelay gives the key-load-delay with which a file of that size is loaded in about a second: µs for each command, or
// below zero, one µs for one of so many. The shortest sleep takes about a tenth of a millisecond, whatever is asked for.
func loadDelay(size int) int {
	const bytesOfACommand, sleeps = 100, 5000
	if commands := size/bytesOfACommand + 1; commands > sleeps {
		return -(commands / sleeps)
	} else {
		return 1_000_000 / commands
	}
}

// loseReplies loses some replies for a while, and the connections with them.
func loseReplies(ctx context.Context, r *run) error {
	r.weatherFor(ctx, "lose-replies", weather{loseReplies: 0.01 + 0.1*r.random.Float64()})
	return nil
}

// delayRequests lets some requests arrive after their clients gave up the connections, and mostly made the calls again.
func delayRequests(ctx context.Context, r *run) error {
	r.late = mostLate
	r.weatherFor(ctx, "late-requests", weather{late: 0.01 + 0.1*r.random.Float64()})
	return nil
}

// weatherFor has the network so for a second or two.
func (r *run) weatherFor(ctx context.Context, kind string, w weather) {
	r.note(kind)
	r.servers.proxies[0].turn(w)
	sleep(ctx, time.Second+r.upTo(time.Second))
	r.servers.proxies[0].turn(weather{})
	r.note("network-good")
}

// badNetwork is one of the ways in which a network is bad.
func badNetwork(ctx context.Context, r *run) error {
	p := r.servers.proxies[0]
	switch r.strikes % 4 {
	case 1:
		r.note("half-open")
		p.halfOpen(0.5)
		return nil
	case 2:
		r.note("latency")
		p.turn(weather{delay: 200 * time.Millisecond})
		sleep(ctx, 2*time.Second)
	case 3:
		r.note("cuts")
		for range 20 {
			p.cut(0.05)
			sleep(ctx, 100*time.Millisecond)
		}
	default:
		r.note("throttle")
		p.turn(weather{bytes: 100 << 10})
		sleep(ctx, 2*time.Second)
	}
	p.turn(weather{})
	r.note("network-good")
	return nil
}

// fillMemory fills the server with messages that wait, checks that it refuses sends and nothing else, has those
// messages handled, and checks that there is room again.
func fillMemory(ctx context.Context, r *run) error {
	rdb := r.servers.admin[0]
	r.note("full")
	if err := limitMemory(ctx, rdb, 20<<20); err != nil {
		return err
	}
	q := r.client.Queue(r.queues[0])
	var ballast []string
	for full := false; !full; {
		id := fmt.Sprintf("ballast-%d-%d", r.strikes, len(ballast))
		r.journal.one(beginSend, now(), id, id, "+0", flagNone)
		_, err := q.Send(ctx, makePayload(id, normal, 400<<10), later.WithID(id), later.In(farAway))
		r.journal.one(endSend, now(), id, outcomeOf(err))
		if full = errors.Is(err, later.ErrFull); err != nil && !full {
			return err
		}
		ballast = append(ballast, id)
		if len(ballast) > 100 {
			return errors.New("the server did not get full")
		}
	}
	if err := r.refusesTheSmallest(ctx, q, rdb); err != nil {
		r.result.violate("full", "-", "%v", err)
	}
	if err := r.cancelsWhileFull(ctx, q); err != nil {
		r.result.violate("full", "-", "%v", err)
	}
	for _, id := range ballast {
		if err := q.Reschedule(ctx, id, later.In(0)); err != nil && !errors.Is(err, later.ErrNotFound) {
			r.result.violate("full", id, "reschedule on a full server: %v", err)
		}
	}
	id := fmt.Sprint("after-full-", r.strikes)
	err := within(ctx, 30*time.Second, "room after the drain", func(ctx context.Context) error {
		r.journal.one(beginSend, now(), id, id, "+0", flagNone)
		_, err := q.Send(ctx, makePayload(id, normal, 200<<10), later.WithID(id))
		r.journal.one(endSend, now(), id, outcomeOf(err))
		return err
	})
	if err != nil {
		r.result.violate("full", "-", "%v", err)
	}
	r.note("room")
	return rdb.ConfigSet(ctx, "maxmemory", "0").Err()
}

// limitMemory sets maxmemory to what is used and so much more.
func limitMemory(ctx context.Context, rdb *redis.Client, more int64) error {
	info, err := rdb.InfoMap(ctx, "memory").Result()
	if err != nil {
		return err
	}
	var used int64
	fmt.Sscan(info["Memory"]["used_memory"], &used)
	return rdb.ConfigSet(ctx, "maxmemory", fmt.Sprint(used+more)).Err()
}

// refusesTheSmallest has a small send refused: not even that has room, until the drain. What others free meanwhile may
// make room, such as a buffer of a large send, so the limit then follows.
func (r *run) refusesTheSmallest(ctx context.Context, q *later.Queue, rdb *redis.Client) (err error) {
	for try := range 5 {
		if err := limitMemory(ctx, rdb, -4<<20); err != nil {
			return err
		}
		id := fmt.Sprintf("small-%d-%d", r.strikes, try)
		r.journal.one(beginSend, now(), id, id, "+0", flagNone)
		_, err = q.Send(ctx, makePayload(id, normal, 20), later.WithID(id))
		r.journal.one(endSend, now(), id, outcomeOf(err))
		if errors.Is(err, later.ErrFull) {
			return nil
		}
	}
	return fmt.Errorf("sends to a full server gave %v; want them refused as full", err)
}

// cancelsWhileFull cancels a message.
func (r *run) cancelsWhileFull(ctx context.Context, q *later.Queue) error {
	id := fmt.Sprintf("ballast-%d-0", r.strikes)
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

// The steps of the server's clock, one after the other; their sum is such that it is right in the end.
var clockSteps = []time.Duration{clockStep, 0, -clockStep, 0}

const clockStep = time.Hour

// stepClock steps the server's clock.
func stepClock(ctx context.Context, r *run) error {
	return r.step(ctx, clockSteps[(r.strikes-1)%len(clockSteps)])
}

// step sets by how much the server's clock is off, and makes sure of it.
func (r *run) step(ctx context.Context, off time.Duration) error {
	r.slack = 2 * time.Hour
	r.note("clock", int64(off/time.Second))
	if err := r.servers.clock.step(off); err != nil {
		return err
	}
	at, err := r.servers.admin[0].Time(ctx).Result()
	if err == nil && (time.Until(at)-off).Abs() > time.Minute {
		err = fmt.Errorf("the server's clock is %v; it was not stepped to be off by %v", at, off)
	}
	return err
}

// stepBeyondAll steps the clock so far ahead that all is due which was sent while it was ahead.
func stepBeyondAll(ctx context.Context, r *run) error { return r.step(ctx, time.Hour+time.Minute) }

// damageMessage makes the stored bytes of a message unreadable while it waits for its due time.
func damageMessage(ctx context.Context, r *run) error {
	q := r.client.Queue(r.queues[r.random.IntN(len(r.queues))])
	id := fmt.Sprint("damaged-", r.strikes)
	r.journal.one(beginSend, now(), id, id, "+1000", string(flagUnreadable))
	_, err := q.Send(ctx, makePayload(id, normal, r.fault.load.payloadMin), later.WithID(id), later.In(time.Second))
	r.journal.one(endSend, now(), id, outcomeOf(err))
	if err != nil {
		return err
	}
	bytes := "\xff" + strings.Repeat("damage", 1+r.random.IntN(50_000))
	const ifItWaits = `if redis.call('ZSCORE', KEYS[1], ARGV[1]) then redis.call('HSET', KEYS[2], ARGV[1], ARGV[2]) return 1 end return 0`
	keys := []string{"later:{" + q.Name() + "}:due", "later:{" + q.Name() + "}:msg"}
	switch n, err := r.servers.admin[0].Eval(ctx, ifItWaits, keys, id, bytes).Int(); {
	case err != nil:
		return err
	case n == 0:
		return nil // a busy machine was too slow: it was claimed whole
	}
	r.wants = append(r.wants, want{id, func(info *later.Info) error {
		if info == nil || info.State != later.StateDead || info.DeadReason != later.DeadUnreadable || string(info.Raw) != bytes {
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
	return fmt.Sprintf("%s %s after %d attempts, %d bytes", info.State, info.DeadReason, info.Attempts, len(info.Raw)+len(info.Payload))
}
