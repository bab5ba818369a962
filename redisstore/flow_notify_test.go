package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// observed is a queue with a flow, and a process in its list that claims nothing.
type observed struct {
	*limitedQueue
	idle *listener
}

func observe(t *testing.T, queue string, f store.Flow) *observed {
	q := newLimitedQueue(t, queue, f)
	return &observed{q, newListener(t, redistest.Shared(t).Client(t), queue, 3e15)}
}

// notifies checks that an action tells the process to claim after a time; "" for no notification.
func (o *observed) notifies(what, want string, action func()) {
	o.Helper()
	key := o.s.keys.of(o.queue).wake
	o.ok(o.rdb.ZAdd(o.Context(), key, redis.Z{Score: 3e15, Member: o.idle.channel}).Err())
	o.hears("begin")
	action()
	var heard []string
	for _, text := range o.hears("end") {
		ms, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
		o.ok(err)
		heard = append(heard, time.UnixMicro(int64(math.Round(1000*ms))).Sub(o.now()).String())
	}
	if got := strings.Join(heard, ", "); got != want {
		o.Errorf("%s: notified to claim after %q, want %q", what, got, want)
	}
}

// hears returns the messages to the process up to now.
func (o *observed) hears(mark string) (all []string) {
	o.Helper()
	o.ok(o.rdb.Publish(o.Context(), o.idle.channel, mark).Err())
	for text := o.idle.receive(); text != mark; text = o.idle.receive() {
		all = append(all, text)
	}
	return all
}

// now returns the time of the queue's clock in ms.
func (o *observed) now() time.Time {
	o.Helper()
	f, err := o.s.Stats(o.Context(), o.queue)
	o.ok(err)
	return f.Now.Truncate(time.Millisecond)
}

// A process is notified only of what can start, and of everything that can when a slot becomes free.
func TestNotificationsObeyTheConcurrency(t *testing.T) {
	o := observe(t, "notified slots", store.Flow{Concurrency: 2})
	var a, b, c []store.Receipt
	sends := func(id string) func() { return func() { o.send(id) } }
	acks := func(held *[]store.Receipt) func() {
		return func() { o.ok(o.settle((*held)[0], store.Ack)) }
	}
	o.notifies("send", "0s", sends("a"))
	a = o.claim(1, "a")
	o.notifies("send with a free slot", "0s", sends("b"))
	b = o.claim(1, "b")
	o.notifies("scheduled send without a free slot", "", func() {
		send(t, o.s, o.queue, "later", store.Due{Delay: time.Minute})
	})
	o.notifies("send without a free slot", "", sends("c"))
	o.notifies("further send", "", sends("d"))
	o.notifies("ack", "0s", acks(&a))
	o.notifies("claim that leaves messages behind without a free slot", "1m0s", func() { c = o.claim(1, "c") })
	o.notifies("extension", "", func() {
		_, err := o.s.Extend(t.Context(), o.queue, []store.Extension{{Lease: b[0].Lease, For: time.Hour}})
		o.ok(err)
	})
	_, err := o.s.Cancel(t.Context(), o.queue, store.CancelRequest{IDs: []string{"b"}})
	o.ok(err)
	o.notifies("report of a cancelled message", "0s", func() {
		_, err := o.s.Extend(t.Context(), o.queue, []store.Extension{{Lease: b[0].Lease, For: time.Hour}})
		o.ok(err)
	})
	d := o.claim(1, "d")
	o.notifies("ack with nothing ready", "1m0s", acks(&c))
	o.notifies("ack with two free slots", "", acks(&d))
	o.claim(9)
	o.advance(time.Minute)
	o.claim(1, "later")
	o.notifies("lower limit", "", func() { o.set(store.Flow{Concurrency: 1}) })
	o.notifies("send without a free slot", "", sends("e"))
	o.notifies("higher limit", "0s", func() { o.set(store.Flow{Concurrency: 2}) })
	o.claim(1, "e")
	o.notifies("nack on a full queue", "1h0m0s", func() {
		o.ok(o.settle(store.Receipt{Lease: o.leaseOf("e"), ID: "e"}, store.Nack))
	})
	o.notifies("pause", "", func() { o.ok(o.s.SetPaused(t.Context(), o.queue, true)) })
}

// leaseOf returns the lease that holds a message.
func (o *observed) leaseOf(id string) string {
	o.Helper()
	all, err := o.rdb.HGetAll(o.Context(), o.s.keys.key(o.queue, "leases")).Result()
	o.ok(err)
	for lease, text := range all {
		if strings.Contains(text, "\n"+id+"\n") {
			return lease
		}
	}
	o.Fatalf("%s is in no lease of %v", id, all)
	return ""
}

// A rate postpones every notification to the time of the next start, in µs rounded up.
func TestNotificationsObeyTheRate(t *testing.T) {
	o := observe(t, "notified starts", store.Flow{Rate: store.Rate{N: 3, Per: 10 * time.Second}})
	o.advance(-time.Duration(o.micros()) * time.Microsecond) // a whole ms
	o.notifies("send", "0s", func() { o.send("a") })
	o.claim(1, "a")
	o.notifies("send", "3.333334s", func() { o.send("b") })
	o.claim(1)
	o.notifies("further send", "", func() { o.send("c") })
	o.notifies("a process that leaves", "3.333334s", func() {
		o.promises("later:wake:other", o.now().Add(time.Second))
		c := o.s.newCall("leave", o.queue, 1)
		c.add("later:wake:other")
		_, err := o.s.run(t.Context(), o.queue, c)
		o.ok(err)
	})
	look := o.s.newCall("look", o.queue, 1)
	look.add(o.idle.channel)
	o.promises(o.idle.channel, o.now().Add(time.Hour))
	if reply, err := o.s.run(t.Context(), o.queue, look); err != nil ||
		reply.([]any)[1] != o.now().Add(3333334*time.Microsecond).UnixMicro() {
		t.Errorf("look = %v, %v", reply, err)
	}
	o.notifies("slower rate", "5s", func() { o.set(store.Flow{Rate: store.Rate{N: 1, Per: 5 * time.Second}}) })
	o.notifies("faster rate", "2s", func() { o.set(store.Flow{Rate: store.Rate{N: 1, Per: 2 * time.Second}}) })
	o.notifies("no limit", "0s", func() { o.set(store.Flow{}) })
	c := claim(t, o.s, o.queue, 5, time.Minute)
	if len(c.Messages) != 2 || c.Limited {
		t.Errorf("claimed %+v", c)
	}
}

// promises lists a process that has promised to claim at a time.
func (o *observed) promises(channel string, at time.Time) {
	o.Helper()
	promise := redis.Z{Score: float64(at.UnixMilli()), Member: channel}
	o.ok(o.rdb.ZAdd(o.Context(), o.s.keys.of(o.queue).wake, promise).Err())
}

// micros returns the µs of the clock that exceed a whole ms.
func (o *observed) micros() int {
	o.Helper()
	f, err := o.s.Stats(o.Context(), o.queue)
	o.ok(err)
	return f.Now.Nanosecond() / 1000 % 1000
}

// Queues of both kinds take part in acks with follow-ups and in forwards.
func TestFlowsMeetPlainQueues(t *testing.T) {
	plain, limited := newLimitedQueue(t, "meets plain", store.Flow{}), newLimitedQueue(t, "meets flow",
		store.Flow{Concurrency: 1, Rate: store.Rate{N: 1000, Per: time.Hour, Burst: 4}})
	for i := range 2 {
		for _, from := range []*limitedQueue{plain, limited} {
			for _, to := range []*limitedQueue{plain, limited} {
				for _, fresh := range []bool{true, false} { // a client that knows neither queue
					s := from.s
					if fresh {
						s = newFrozenClock(t, from.rdb)
					}
					from.advance(time.Hour)
					to.advance(time.Hour)
					id := fmt.Sprintf("m%d%v", i, fresh)
					from.send(id)
					c := claim(t, s, from.queue, 1, time.Minute)
					ack := settlements([]store.Receipt{c.Messages[0].Receipt}, store.Ack)
					ack[0].Then = []store.FollowUp{{Queue: to.queue, Message: store.Outgoing{Message: store.Message{ID: "f" + id},
						Due: store.Due{At: time.UnixMilli(1)}}}}
					r, err := s.Settle(t.Context(), from.queue, ack)
					if err != nil || r[0].Err != nil {
						t.Fatal(r, err)
					}
					from.leased(0)
					if to != from {
						f, err := s.Forward(t.Context(), to.queue, store.ForwardRequest{Max: 9, IDs: true,
							To: store.Target{Kind: store.TargetQueue, Name: from.queue}})
						if err != nil || !slices.Equal(f.IDs, []string{"f" + id}) {
							t.Fatalf("forwarded %+v, %v", f, err)
						}
					}
					held := from.claim(1, "f"+id)
					from.ok(from.settle(held[0], store.Ack))
				}
			}
		}
	}
	for queue, want := range map[*limitedQueue]string{plain: "11", limited: "15"} {
		if format := metaFormat(t, queue.rdb, queue.queue); format != want {
			t.Errorf("%s has format %s, want %s", queue.queue, format, want)
		}
		queue.sound()
	}
	other := store.FollowUp{Queue: "meets new", Message: store.Outgoing{Message: store.Message{ID: "f"}}}
	plain.ok(plain.s.Delete(t.Context(), other.Queue))
	limited.send("m")
	ack := settlements(limited.claim(1, "m"), store.Ack)
	ack[0].Then = []store.FollowUp{other}
	_, err := limited.s.Settle(t.Context(), limited.queue, ack)
	limited.ok(err)
	if format := metaFormat(t, plain.rdb, other.Queue); format != "11" {
		t.Errorf("the new queue has format %s", format)
	}
}

// A forward starts as many messages as the rate allows.
func TestForwardsObeyTheRate(t *testing.T) {
	o := observe(t, "forwarded starts", store.Flow{Concurrency: 1, Rate: store.Rate{N: 1, Per: time.Second, Burst: 2}})
	o.send("a", "b", "c", "d")
	move := func(want ...string) {
		t.Helper()
		f, err := o.s.Forward(context.Background(), o.queue, store.ForwardRequest{Max: 9, IDs: true,
			To: store.Target{Kind: store.TargetList, Name: "forwarded list"}})
		if err != nil || !slices.Equal(f.IDs, want) || f.More {
			t.Errorf("forwarded %+v, %v; want %v", f, err, want)
		}
	}
	move("a", "b")
	move()
	o.leased(0)
	o.advance(time.Second)
	move("c")
	o.claim(1)
	o.advance(time.Second)
	o.claim(1, "d")
}

// A check finds a wrong number of messages that count, and its repair wakes a process that was held back.
func TestWrongLeasedCountIsRepaired(t *testing.T) {
	o := observe(t, "wrong count", store.Flow{Concurrency: 3})
	o.send("a", "b", "c", "d")
	o.claim(2, "a", "b")
	for _, count := range []int{0, 3, 100} {
		o.ok(o.rdb.HSet(t.Context(), o.s.keys.key(o.queue, "meta"), "flow_leased", count).Err())
		var texts []string
		x := &checkRun{s: o.s, report: func(f store.CheckResult) {
			if f.Severity == store.SeverityError {
				texts = append(texts, f.Check)
			}
		}}
		o.ok(x.queue(t.Context(), o.queue))
		if !slices.Equal(texts, []string{"flow"}) {
			t.Errorf("count %d: issues %v", count, texts)
		}
		x.repair = true
		o.notifies(fmt.Sprint("repair of ", count), map[bool]string{true: "0s"}[count >= 3], func() {
			o.ok(x.queue(t.Context(), o.queue))
		})
		o.leased(2)
		o.sound()
	}
	o.ok(o.rdb.HDel(t.Context(), o.s.keys.key(o.queue, "messages"), "a").Err())
	x := &checkRun{s: o.s, report: func(store.CheckResult) {}}
	x.repair = true
	o.ok(x.queue(t.Context(), o.queue)) // removes the line of a from the lease
	o.leased(1)
	o.sound()
}

// A claim that the bytes of its reply cut short hands its turn on, since its caller may work on what it got first.
func TestClaimCutByBytesNotifiesAnother(t *testing.T) {
	o := observe(t, "notified bytes", store.Flow{Concurrency: 100})
	for i := range 8 {
		_, err := o.s.Send(t.Context(), o.queue, []store.Outgoing{{Message: store.Message{
			ID: fmt.Sprint(i), Payload: bytes.Repeat([]byte("x"), 250_000)}}})
		o.ok(err)
	}
	o.notifies("claim that leaves messages behind", "0s", func() {
		c, err := o.s.Claim(t.Context(), o.queue, store.ClaimRequest{Max: 10, Lease: time.Minute})
		if err != nil || len(c.Messages) == 0 || len(c.Messages) == 8 || !c.More {
			t.Fatalf("claimed %d of 8, more %v, %v", len(c.Messages), c.More, err)
		}
	})
}

// A call during which the limits are set and removed again and again has no effect, and can be repeated.
func TestCallThatMeetsOnlyTheOtherFormatCanBeRepeated(t *testing.T) {
	o := observe(t, "toggled", store.Flow{Concurrency: 1})
	if err := o.s.formatError(t.Context(), o.queue); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("of a format that this version reads: %v", err)
	}
	o.ok(o.rdb.HSet(t.Context(), o.s.keys.key(o.queue, "meta"), "format", flowFormat+1).Err())
	if err := o.s.formatError(t.Context(), o.queue); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("of a newer format: %v", err)
	}
}

// A process is told when a key may go that was full, and when the limits of a key change, although its rate holds the
// key back.
func TestNotificationsObeyTheLimitsOfKeys(t *testing.T) {
	limits := store.KeyFlow{Concurrency: 1, Rate: store.Rate{N: 1, Per: 10 * time.Second}}
	o := observe(t, "notified keys", store.Flow{Key: limits})
	o.advance(-time.Duration(o.micros()) * time.Microsecond) // a whole ms
	o.sendKeyed("a", store.Due{}, "a1", "a2")
	held := o.claim(1, "a1")
	o.sortReady()
	o.notifies("ack for a full key with a rate", "10s", func() { o.ok(o.settle(held[0], store.Ack)) })
	rate := func(n int, per time.Duration) func() {
		return func() {
			o.ok(o.s.SetKeyFlow(t.Context(), o.queue, "a", store.KeyOverride{Rate: &store.Rate{N: n, Per: per}}))
		}
	}
	o.notifies("faster rate", "1s", rate(1, time.Second))
	one, two := 1, 2
	o.advance(time.Second)
	held = o.claim(1, "a2")
	o.sendKeyed("a", store.Due{}, "a3")
	o.sortReady()
	o.notifies("a slot more", "1s", func() {
		rate := store.Rate{N: 1, Per: time.Second}
		o.ok(o.s.SetKeyFlow(t.Context(), o.queue, "a", store.KeyOverride{Concurrency: &two, Rate: &rate}))
	})
	o.notifies("no rate", "0s", func() {
		o.ok(o.s.SetKeyFlow(t.Context(), o.queue, "a", store.KeyOverride{Concurrency: &two, Rate: &store.Rate{}}))
	})
	o.notifies("a slot less", "", func() {
		o.ok(o.s.SetKeyFlow(t.Context(), o.queue, "a", store.KeyOverride{Concurrency: &one, Rate: &store.Rate{}}))
	})
	o.notifies("ack", "0s", func() { o.ok(o.settle(held[0], store.Ack)) })
}
