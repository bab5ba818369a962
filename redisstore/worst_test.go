package redisstore

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// worst builds the most expensive calls that the limits of the contract allow.
type worst struct {
	testing.TB
	s     *Store
	rdb   *redis.Client
	queue string
	far   int // messages of a queue with messages due far ahead
	many  int // leases
	n     int
}

// worstCase is the most expensive kind of call of a script.
type worstCase struct {
	script string
	name   string
	build  func(w *worst) (run func())
}

func (w *worst) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// id returns an id of the greatest length.
func (w *worst) id() string {
	w.n++
	id := fmt.Sprintf("%s-%d-", w.queue, w.n)
	return id + strings.Repeat("x", store.MaxID-len(id))
}

// messages returns n messages with payloads of so many bytes, all with the most expensive properties.
func (w *worst) messages(n, size int, due func(i int) store.Due) []store.Outgoing {
	msgs := make([]store.Outgoing, n)
	payload := bytes.Repeat([]byte("p"), size)
	for i := range msgs {
		msgs[i] = store.Outgoing{Message: store.Message{ID: w.id(), Payload: payload, MaxAttempts: 9,
			DedupWindow: time.Hour, ExpireAfter: time.Hour, Group: "group"}}
		if due != nil {
			msgs[i].Due = due(i)
		}
	}
	return msgs
}

func ids(msgs []store.Outgoing) []string {
	list := make([]string, len(msgs))
	for i := range msgs {
		list[i] = msgs[i].ID
	}
	return list
}

func (w *worst) send(msgs []store.Outgoing) {
	w.Helper()
	_, err := w.s.Send(w.Context(), w.queue, msgs)
	w.ok(err)
}

// sends sends n messages, as many at a time as fit.
func (w *worst) sends(n, size int, due func(i int) store.Due) (all []store.Outgoing) {
	for n > 0 {
		some := min(n, store.MaxBatch, max(1, store.MaxBatchBytes/max(size, 1)))
		msgs := w.messages(some, size, due)
		w.send(msgs)
		all = append(all, msgs...)
		n -= some
	}
	return all
}

func (w *worst) claim(max int, lease time.Duration) store.Claim {
	w.Helper()
	c, err := w.s.Claim(w.Context(), w.queue, store.ClaimRequest{Max: max, Lease: lease})
	w.ok(err)
	return c
}

// fail gives n messages a record of the greatest length.
func (w *worst) fail(n, size int, action store.Action) {
	for left := n; left > 0; {
		w.sends(min(left, store.MaxBatch), size, nil)
		left -= store.MaxBatch
	}
	for range store.MaxFailures {
		for done := 0; done < n; {
			c := w.claim(store.MaxBatch, time.Hour)
			if len(c.Messages) == 0 {
				w.Fatal("nothing to claim")
			}
			var settle []store.Settlement
			for _, m := range c.Messages {
				settle = append(settle, store.Settlement{Receipt: m.Receipt, Action: action,
					Reason: strings.Repeat("r", store.MaxReason)})
			}
			_, err := w.s.Settle(w.Context(), w.queue, settle)
			w.ok(err)
			done += len(settle)
		}
		if action == store.Bury {
			return
		}
	}
}

// receipts forgets what makes settling cheap, as another process does.
func receipts(c store.Claim) []store.Receipt {
	var list []store.Receipt
	for _, m := range c.Messages {
		m.Receipt.Claim, m.Receipt.Index = nil, 0
		list = append(list, m.Receipt)
	}
	return list
}

// leases claims n leases of 500.
func (w *worst) leases(n int) (held [][]store.Receipt) {
	for range n {
		w.sends(store.MaxBatch, 10, nil)
		held = append(held, receipts(w.claim(store.MaxBatch, time.Hour)))
	}
	return held
}

func (w *worst) settles(held []store.Receipt, a store.Action) func() {
	return func() {
		var list []store.Settlement
		for _, r := range held {
			list = append(list, store.Settlement{Receipt: r, Action: a, Reason: strings.Repeat("r", store.MaxReason),
				DedupWindow: time.Hour, Grouped: true})
		}
		_, err := w.s.Settle(w.Context(), w.queue, list)
		w.ok(err)
	}
}

// scattered returns due times at random within a minute, far ahead.
func scattered(int) store.Due {
	return store.Due{At: time.Now().Add(48*time.Hour + time.Duration(rand.Int64N(int64(time.Minute))))}
}

const fullPayload = store.MaxBatchBytes/store.MaxBatch - 100

var worstCases = []worstCase{
	{"send", "500 of 8 KiB", func(w *worst) func() {
		w.sends(500, 10, nil)
		msgs := w.messages(store.MaxBatch, fullPayload, nil)
		return func() { w.send(msgs) }
	}},
	{"send", "500 duplicates of 8 KiB", func(w *worst) func() {
		msgs := w.sends(store.MaxBatch, fullPayload, nil)
		return func() { w.send(msgs) }
	}},
	{"send", "4 of 1 MiB", func(w *worst) func() {
		msgs := w.messages(4, store.MaxPayload, nil)
		return func() { w.send(msgs) }
	}},
	{"send", "500 far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		msgs := w.messages(store.MaxBatch, fullPayload, scattered)
		return func() { w.send(msgs) }
	}},
	{"restore", "500 with failures, far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		infos := make([]store.Info, store.MaxBatch)
		for i, m := range w.messages(store.MaxBatch, 1000, scattered) {
			infos[i] = store.Info{Message: m.Message, State: store.StateScheduled, Due: m.Due.At, Attempts: 5,
				LastError: strings.Repeat("r", store.MaxReason)}
			for range store.MaxFailures {
				infos[i].Failures = append(infos[i].Failures, store.Failure{Attempt: 5, Error: strings.Repeat("r", 256)})
			}
		}
		return func() {
			_, err := w.s.Restore(w.Context(), w.queue, infos)
			w.ok(err)
		}
	}},
	{"claim", "500 of 8 KiB", func(w *worst) func() {
		w.sends(store.MaxBatch, fullPayload, nil)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "4 of 1 MiB", func(w *worst) func() {
		w.sends(4, store.MaxPayload, nil)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Nack)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "expired leases with failures", func(w *worst) func() {
		w.fail(2*store.MaxBatch, 100, store.Nack)
		w.claim(store.MaxBatch-1, time.Millisecond)
		w.claim(store.MaxBatch, time.Millisecond)
		w.sends(store.MaxBatch, fullPayload, nil)
		time.Sleep(5 * time.Millisecond)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "dead beyond the retention", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Bury)
		w.ok(w.s.SetDeadRetention(w.Context(), w.queue, store.Retention{MaxCount: 1}))
		w.sends(store.MaxBatch, 1000, nil)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "overdue buckets", func(w *worst) func() {
		now := time.Now()
		w.sends(w.far, 10, func(i int) store.Due {
			return store.Due{At: now.Add(48*time.Hour + time.Duration(rand.Int64N(int64(30*time.Second))))}
		})
		w.travel(50 * time.Hour)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"claim", "expired", func(w *worst) func() {
		w.sends(store.MaxBatch, 1000, nil)
		w.travel(50 * time.Hour)
		return func() { w.claim(store.MaxBatch, time.Hour) }
	}},
	{"ack", "of leases of 500, elsewhere", func(w *worst) func() {
		var held []store.Receipt
		for _, lease := range w.leases(w.many) {
			held = append(held, lease[250])
		}
		return w.settles(held, store.Ack)
	}},
	{"ack", "500 of a lease, elsewhere", func(w *worst) func() {
		return w.settles(w.leases(1)[0], store.Ack)
	}},
	{"settle", "of leases of 500", func(w *worst) func() {
		var held []store.Receipt
		for _, lease := range w.leases(w.many) {
			held = append(held, lease[250])
		}
		return w.settles(held, store.Nack)
	}},
	{"settle", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Nack)
		return w.settles(receipts(w.claim(store.MaxBatch, time.Hour)), store.Nack)
	}},
	{"settle", "500 buried with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Nack)
		return w.settles(receipts(w.claim(store.MaxBatch, time.Hour)), store.Bury)
	}},
	{"extend", "leases of 500 beside one record", func(w *worst) func() {
		w.fail(1, 100, store.Bury)
		return w.extends(w.leases(w.many))
	}},
	{"extend", "leases of 500, all cancelled", func(w *worst) func() {
		held := w.leases(20)
		for _, lease := range held {
			var list []string
			for _, r := range lease {
				list = append(list, r.ID)
			}
			_, err := w.s.Cancel(w.Context(), w.queue, store.CancelRequest{IDs: list})
			w.ok(err)
		}
		return w.extends(held)
	}},
	{"extend", "leases of 500, one cancelled in another", func(w *worst) func() {
		held := w.leases(w.many)
		_, err := w.s.Cancel(w.Context(), w.queue, store.CancelRequest{IDs: []string{held[w.many-1][499].ID}})
		w.ok(err)
		return w.extends(held)
	}},
	{"cancel", "500 far ahead of 16 KiB", func(w *worst) func() {
		var list []string
		for range 2 {
			list = append(list, ids(w.sends(store.MaxBatch/2, 16<<10-200, scattered))...)
		}
		return w.cancels(list, false)
	}},
	{"cancel", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Bury)
		return w.cancels(w.list(store.StateDead), false)
	}},
	{"cancel", "500 leased", func(w *worst) func() {
		var list []string
		for _, r := range w.leases(1)[0] {
			list = append(list, r.ID)
		}
		return w.cancels(list, false)
	}},
	{"cancel", "64 of 1 MiB, keeping ids", func(w *worst) func() {
		return w.cancels(ids(w.sends(64, store.MaxPayload, nil)), true)
	}},
	{"reschedule", "500 far ahead of 16 KiB", func(w *worst) func() {
		list := ids(w.sends(store.MaxBatch, 16<<10-200, scattered))
		return func() {
			_, err := w.s.Reschedule(w.Context(), w.queue, list, store.Due{})
			w.ok(err)
		}
	}},
	{"get", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 1000, store.Bury)
		return w.gets(w.list(store.StateDead))
	}},
	{"get", "4 of 1 MiB", func(w *worst) func() {
		return w.gets(ids(w.sends(8, store.MaxPayload, nil)))
	}},
	{"get", "500 far ahead of 8 KiB", func(w *worst) func() {
		return w.gets(ids(w.sends(store.MaxBatch, fullPayload, scattered)))
	}},
	{"find_leases", "500 of the last of many leases of 500", func(w *worst) func() {
		held := w.leases(w.many)
		var list []string
		for _, r := range held[w.many-1] {
			list = append(list, r.ID)
		}
		return w.gets(list)
	}},
	{"find_leases", "500 of 500 leases of one", func(w *worst) func() {
		list := ids(w.sends(store.MaxBatch, 10, nil))
		for range list {
			w.claim(1, time.Hour)
		}
		return w.gets(list)
	}},
	{"leases", "leases of 500", func(w *worst) func() {
		w.leases(w.many)
		return w.lists(store.ListRequest{State: store.StateLeased})
	}},
	{"list", "500 of 8 KiB", func(w *worst) func() {
		w.sends(store.MaxBatch, fullPayload, nil)
		return w.lists(store.ListRequest{State: store.StateReady})
	}},
	{"list", "4 of 1 MiB", func(w *worst) func() {
		w.sends(8, store.MaxPayload, nil)
		return w.lists(store.ListRequest{State: store.StateReady})
	}},
	{"list", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 1000, store.Bury)
		return w.lists(store.ListRequest{State: store.StateDead})
	}},
	{"list", "500 far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		w.sends(1000, 10, func(int) store.Due { return store.Due{Delay: 30 * time.Minute} })
		return w.lists(store.ListRequest{State: store.StateScheduled})
	}},
	{"group", "500 of many", func(w *worst) func() {
		w.sends(w.far, 10, nil)
		return w.lists(store.ListRequest{Group: "group"})
	}},
	{"group", "ids of 4 of 1 MiB", func(w *worst) func() {
		w.sends(4, store.MaxPayload, nil)
		return w.lists(store.ListRequest{Group: "group", IDsOnly: true})
	}},
	{"histogram", "500 parts", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		bounds := make([]time.Time, store.MaxBuckets+1)
		for i := range bounds {
			bounds[i] = time.Now().Add(48*time.Hour + time.Duration(i)*time.Minute/store.MaxBuckets)
		}
		return func() {
			_, err := w.s.Histogram(w.Context(), w.queue, bounds)
			w.ok(err)
		}
	}},
	{"stats", "far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		return func() {
			_, err := w.s.Stats(w.Context(), w.queue)
			w.ok(err)
		}
	}},
	{"replay", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 100, store.Bury)
		return func() {
			_, err := w.s.Replay(w.Context(), w.queue, store.Selection{State: store.StateDead}, store.Due{})
			w.ok(err)
		}
	}},
	{"purge", "500 dead with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, fullPayload, store.Bury)
		return w.purges(store.StateDead)
	}},
	{"purge", "500 far ahead", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		return w.purges(store.StateScheduled)
	}},
	{"purge", "everything", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		w.leases(10)
		return w.purges(store.StateNone)
	}},
	{"delete", "everything", func(w *worst) func() {
		w.sends(w.far, 10, scattered)
		w.leases(10)
		return func() { w.ok(w.s.Delete(w.Context(), w.queue)) }
	}},
	{"remove", "4 MiB far ahead", func(w *worst) func() {
		return w.removes(ids(w.sends(store.MaxBatch, fullPayload, scattered)))
	}},
	{"remove", "500 with failures", func(w *worst) func() {
		w.fail(store.MaxBatch, 5000, store.Bury)
		return w.removes(w.list(store.StateDead))
	}},
	{"forward", "500 of 8 KiB to a stream", func(w *worst) func() {
		w.sends(store.MaxBatch, fullPayload, nil)
		return w.forwards(store.TargetStream)
	}},
	{"forward", "500 with 64 headers to a stream", func(w *worst) func() {
		w.headers()
		return w.forwards(store.TargetStream)
	}},
	{"forward", "500 with 64 headers to a list", func(w *worst) func() {
		w.headers()
		return w.forwards(store.TargetList)
	}},
	{"forward", "500 of 8 KiB to a queue", func(w *worst) func() {
		w.sends(store.MaxBatch, fullPayload, nil)
		return w.forwards(store.TargetQueue)
	}},
	{"forward", "4 of 1 MiB to a queue", func(w *worst) func() {
		w.sends(8, store.MaxPayload, nil)
		return w.forwards(store.TargetQueue)
	}},
	{"forward", "4 of 1 MiB to a list", func(w *worst) func() {
		w.sends(8, store.MaxPayload, nil)
		return w.forwards(store.TargetList)
	}},
	{"lost", "many leased", func(w *worst) func() {
		w.leases(w.many)
		w.ok(w.rdb.HSet(w.Context(), w.s.keys.of(w.queue).args[1].(string), "lost", "\x00").Err())
		return w.checks()
	}},
	{"check", "everything", func(w *worst) func() {
		w.sends(2000, fullPayload, nil)
		w.sends(20000, 10, scattered)
		w.fail(store.MaxBatch, 1000, store.Bury)
		w.leases(20)
		return w.checks()
	}},
	{"check", "1 MiB each", func(w *worst) func() {
		w.sends(20, store.MaxPayload, nil)
		return w.checks()
	}},
	{"set_properties", "500 of 4 KiB", func(w *worst) func() {
		set := map[string]string{}
		for i := range store.MaxBatch {
			set[fmt.Sprint(i)] = strings.Repeat("v", store.MaxPropertyValue)
		}
		return func() { w.ok(w.s.SetProperties(w.Context(), w.queue, set)) }
	}},
	{"report", "32 kinds and 256 KiB", func(w *worst) func() {
		counts := map[store.EventKind]int64{}
		for i := range store.MaxEventKinds {
			counts[store.EventKind(strings.Repeat("k", 28)+string(rune('a'+i/26))+string(rune('a'+i%26)))] = 1 << 40
		}
		w.sends(1, 1, nil)
		return func() {
			_, err := w.s.Report(w.Context(), []store.Report{{Queue: w.queue, Counts: counts,
				Events: bytes.Repeat([]byte("e"), store.MaxEventBytes)}})
			w.ok(err)
		}
	}},
}

// travel moves the queue's clock.
func (w *worst) travel(d time.Duration) { advance(w.rdb)(w.TB, w.queue, d) }

func (w *worst) headers() {
	for range store.MaxBatch {
		m := w.messages(1, 10, nil)
		m[0].Headers = map[string]string{}
		for i := range store.MaxHeaders {
			m[0].Headers[fmt.Sprint("header-", i)] = "value"
		}
		w.send(m)
	}
}

func (w *worst) extends(held [][]store.Receipt) func() {
	return func() {
		var list []store.Extension
		for _, lease := range held {
			list = append(list, store.Extension{Lease: lease[0].Lease, For: time.Hour})
		}
		_, err := w.s.Extend(w.Context(), w.queue, list)
		w.ok(err)
	}
}

func (w *worst) cancels(list []string, keep bool) func() {
	return func() {
		_, err := w.s.Cancel(w.Context(), w.queue, store.CancelRequest{IDs: list, KeepIDs: keep})
		w.ok(err)
	}
}

func (w *worst) gets(list []string) func() {
	return func() {
		_, err := w.s.Get(w.Context(), w.queue, list)
		w.ok(err)
	}
}

func (w *worst) list(state store.State) (list []string) {
	for req := (store.ListRequest{State: state, Limit: store.MaxBatch}); ; {
		page, err := w.s.List(w.Context(), w.queue, req)
		w.ok(err)
		for _, m := range page.Messages {
			list = append(list, m.ID)
		}
		if req.Cursor = page.Next; req.Cursor == "" || len(list) >= store.MaxBatch {
			return list[:min(len(list), store.MaxBatch)]
		}
	}
}

func (w *worst) lists(req store.ListRequest) func() {
	req.Limit = store.MaxBatch
	return func() {
		for range 20 {
			page, err := w.s.List(w.Context(), w.queue, req)
			w.ok(err)
			if req.Cursor = page.Next; req.Cursor == "" {
				return
			}
		}
	}
}

func (w *worst) purges(state store.State) func() {
	return func() {
		sel := store.Selection{State: state}
		for range 3 {
			bulk, err := w.s.Purge(w.Context(), w.queue, sel)
			w.ok(err)
			sel.Before = bulk.Before
		}
	}
}

func (w *worst) removes(list []string) func() {
	infos, err := w.s.Get(w.Context(), w.queue, list)
	w.ok(err)
	var all []store.Info
	for _, in := range infos {
		all = append(all, *in)
	}
	return func() {
		_, err := w.s.Remove(w.Context(), w.queue, all)
		w.ok(err)
	}
}

func (w *worst) forwards(kind store.TargetKind) func() {
	to := store.Target{Kind: kind, Name: w.queue + "-to"}
	return func() {
		_, err := w.s.Forward(w.Context(), w.queue, store.ForwardRequest{To: to, Max: store.MaxBatch, IDs: true})
		w.ok(err)
	}
}

func (w *worst) checks() func() {
	return func() {
		x := &checkRun{s: w.s, report: func(store.CheckResult) {}, repair: true}
		w.ok(x.queue(context.WithoutCancel(w.Context()), w.queue))
	}
}

// metered are scripts that report the commands that they execute, and the bytes that these take and return.
func metered() scripts {
	all := scripts{}
	for name, original := range frozenClockScripts {
		first, rest, _ := strings.Cut(original.body, "\n")
		body := strings.Replace(first, " flags=no-writes", "", 1) + `
local real, calls, bytes = redis, 0, 0
local function count(value)
  if type(value) == 'string' then bytes = bytes + #value end
  for _, part in ipairs(type(value) == 'table' and value or {}) do count(part) end
end
local redis = setmetatable({}, { __index = real })
redis.call = function(...)
  local reply = real.call(...)
  calls = calls + 1
  count({ ... })
  count(reply)
  return reply
end
local function script()
` + rest + `
end
local reply = script()
real.call('RPUSH', 'work:` + name + `', calls, bytes)
return reply`
		sum := sha1.Sum([]byte(body))
		all[name] = &script{name, body, hex.EncodeToString(sum[:])}
	}
	return all
}

// mostWork limits the commands of one call of a script, and the KiB that these take and return: in all of its cases, or
// in one that has a limit of its own.
var mostWork = map[string][2]int64{
	"send":           {600, 5000},
	"restore":        {60, 5000},
	"claim":          {1200, 5000},
	"ack":            {600, 700},
	"settle":         {300, 2100},
	"extend":         {1100, 600},
	"cancel":         {400, 1500},
	"reschedule":     {400, 1200},
	"get":            {2600, 1500},
	"find_leases":    {1200, 800},
	"leases":         {30, 1300},
	"list":           {1800, 1500},
	"group":          {600, 1500},
	"histogram":      {200, 300},
	"stats":          {15, 50},
	"replay":         {20, 1800},
	"purge":          {250, 1800},
	"delete":         {1, 1},
	"remove":         {600, 800},
	"forward":        {600, 3500},
	"lost":           {300, 1800},
	"check":          {16000, 8000},
	"set_properties": {600, 4200},
	"report":         {10, 300},

	// No message was cancelled, so no lease is read, and the messages that a send finds are not read.
	"extend/leases of 500 beside one record": {1100, 10},
	"send/500 duplicates of 8 KiB":           {600, 200},
}

// TestWorstCasesAreBounded checks what the longest calls do, because their time depends on the machine.
func TestWorstCasesAreBounded(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newWith(t, metered(), rdb)
	if err := rdb.ConfigSet(t.Context(), "appendonly", "no").Err(); err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for i, c := range worstCases {
		t.Run(c.script+"/"+c.name, func(t *testing.T) {
			w := &worst{TB: t, s: s, rdb: rdb, queue: fmt.Sprint("q", i), far: 5000, many: 15}
			run := c.build(w)
			work := "work:" + c.script
			w.ok(rdb.Del(t.Context(), work).Err())
			run()
			all, err := rdb.LRange(t.Context(), work, 0, -1).Result()
			w.ok(err)
			most := [2]int64{}
			for k, text := range all {
				n, err := strconv.ParseInt(text, 10, 64)
				w.ok(err)
				most[k%2] = max(most[k%2], n)
			}
			most[1] >>= 10
			limit, ok := mostWork[c.script+"/"+c.name]
			if !ok {
				limit = mostWork[c.script]
			}
			if len(all) == 0 || most[0] > limit[0] || most[1] > limit[1] {
				t.Errorf("the longest of %d calls executes %d commands with %d KiB, want at most %d with %d", len(all)/2,
					most[0], most[1], limit[0], limit[1])
			}
			w.ok(rdb.FlushDB(t.Context()).Err())
		})
		tested[c.script] = true
	}
	for name := range s.scripts {
		if !tested[name] && !cheap[name] {
			t.Errorf("no worst case of %s.lua is tested", name)
		}
	}
}

// cheap are scripts that handle one thing, and those of which the worst case is tested elsewhere.
var cheap = map[string]bool{"activity": true, "ack_then": true, "beat": true, "collapse": true, "leave": true,
	"look": true, "pause": true, "retain": true, "send_one": true}

// BenchmarkWorstCases measures the longest call of each script in its worst cases, as the server's slow log reports it,
// of the least disturbed of as many runs as -benchtime says.
//
//	go test ./redisstore -run '^$' -bench WorstCases -benchtime 5x
func BenchmarkWorstCases(b *testing.B) {
	rdb := redistest.Start(b).Client(b)
	s := newFrozenClock(b, rdb)
	names := map[string]string{}
	for name, script := range s.scripts {
		names[script.sha] = name
		if err := rdb.ScriptLoad(b.Context(), script.body).Err(); err != nil {
			b.Fatal(err)
		}
	}
	for key, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "100000",
		"appendonly": "no", "save": ""} {
		if err := rdb.ConfigSet(b.Context(), key, value).Err(); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range worstCases {
		b.Run(c.script+"/"+c.name, func(b *testing.B) {
			least := time.Hour
			for i := range b.N {
				w := &worst{TB: b, s: s, rdb: rdb, queue: fmt.Sprintf("q%d-%d", i, b.N), far: 50000, many: 180}
				run := c.build(w)
				w.ok(rdb.Do(b.Context(), "slowlog", "reset").Err())
				run()
				log, err := rdb.SlowLogGet(b.Context(), 100000).Result()
				w.ok(err)
				longest := time.Duration(0)
				for _, entry := range log {
					if len(entry.Args) > 1 && names[entry.Args[1]] == c.script {
						longest = max(longest, entry.Duration)
					}
				}
				if longest == 0 {
					b.Fatal("the script was not called")
				}
				least = min(least, longest)
				w.ok(rdb.FlushDB(b.Context()).Err())
			}
			b.ReportMetric(float64(least.Microseconds())/1000, "ms/call")
			b.ReportMetric(0, "ns/op")
		})
	}
}
