package redisstore

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// worstCase is the most expensive kind of call of a script.
type worstCase struct {
	script string
	name   string
	build  func(w *worst) (run func())
}

// metered are scripts that report the commands that they execute, and the bytes that these take and return.
func metered() scripts {
	all := scripts{}
	for name, original := range frozenClockScripts {
		all[name] = meter(original)
		if original.flow != nil {
			flow := meter(original.flow())
			all[name].flow = func() *script { return flow }
		}
		if original.sub != nil {
			sub := meter(original.sub())
			all[name].sub = func() *script { return sub }
		}
	}
	return all
}

func meter(original *script) *script {
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
real.call('RPUSH', 'work:` + original.name + `', calls, bytes)
return reply`
	sum := sha1.Sum([]byte(body))
	return &script{name: original.name, body: body, sha: hex.EncodeToString(sum[:]), limits: original.limits}
}

// mostWork limits the commands of one call of a script, and the KiB that these take and return: in all of its cases, or
// in one that has a limit of its own.
var mostWork = map[string][2]int64{
	"send":           {600, 5000},
	"pack":           {300, 700},
	"restore":        {60, 5000},
	"collapse":       {600, 5000},
	"ack_then":       {2000, 5000},
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
	"delete":         {2, 1},
	"remove":         {600, 800},
	"forward":        {600, 3500},
	"lost":           {300, 1800},
	"recount":        {300, 1800},
	"check":          {16000, 8000},
	"set_properties": {600, 4200},
	"report":         {10, 300},
	"resume":         {60, 10},
	"keys":           {2600, 1900},
	"set_flow":       {50, 200},
	"finish_flow":    {50, 200},
	"check_lanes":    {800, 200},
	"depart":         {1000, 5000},
	"arrive":         {1000, 5000},
	"outbox":         {10, 2000},
	"expect":         {200, 400},
	"scan":           {10, 5000},
	"rename":         {200, 100},
	"retire":         {60, 30},
	"properties":     {10, 5000},

	// Each ready holder is looked up, since it is in no lane, and whether its lane is empty.
	"set_flow/end of halts":          {80, 300},
	"finish_flow/end of an order":    {1100, 600},
	"reschedule/500 ready that hold": {1600, 1200},

	// No message was cancelled, so no lease is read, and the messages that a send finds are not read.
	"extend/leases of 500 beside one record": {1100, 10},
	"send/500 duplicates of 8 KiB":           {600, 200},

	// The place of a sorted message is looked up in its lane.
	"cancel/messages of one ms": {1200, 600},

	// The first entry of each lane of a key says in which class it waits, and a message is looked up in its lanes.
	"claim/500 keys with an order, of all urgencies":   {1700, 5000},
	"forward/500 keys with an order, of all urgencies": {1700, 3500},
	"cancel/messages of all urgencies":                 {2000, 1500},
	"cancel/messages of all urgencies with an order":   {2200, 1500},
	"reschedule/messages of all urgencies":             {3800, 1500},
	"remove/messages of all urgencies":                 {2000, 900},
	"purge/ready messages of all urgencies":            {1700, 1800},
	"keys/500 in three classes":                        {4800, 1900},
}

// wideFlow is a flow with limits that no worst case reaches.
var wideFlow = store.Flow{Concurrency: store.MaxConcurrency, Rate: store.Rate{N: store.MaxRate, Per: time.Second,
	Burst: store.MaxRate}}

// TestWorstCasesAreBounded counts the work of the longest calls, because their time depends on the machine.
func TestWorstCasesAreBounded(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	s := newWith(t, metered(), rdb)
	if err := rdb.ConfigSet(t.Context(), "appendonly", "no").Err(); err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	all := slices.Concat(worstSends, worstClaims, worstByMessage, worstByQueue, worstTurns, worstOrder, worstUrgency,
		worstMoves)
	for i := range 2 * len(all) {
		c, flow := all[i%len(all)], i >= len(all)
		t.Run(fmt.Sprintf("%s/%s, flow %v", c.script, c.name, flow), func(t *testing.T) {
			w := &worst{TB: t, s: s, rdb: rdb, queue: fmt.Sprint("q", i), far: 5000, many: 15}
			if flow {
				w.ok(s.SetFlow(t.Context(), w.queue, wideFlow, nil))
			}
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
			t.Logf("the longest of %d calls executes %d commands with %d KiB", len(all)/2, most[0], most[1])
			if len(all) == 0 || most[0] > limit[0] || most[1] > limit[1] {
				t.Errorf("the longest of %d calls executes %d commands with %d KiB, want at most %d with %d",
					len(all)/2, most[0], most[1], limit[0], limit[1])
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

// cheap are scripts that handle one thing.
var cheap = map[string]bool{"activity": true, "beat": true, "leave": true, "look": true, "pause": true, "retain": true,
	"set_key_flow": true, "send_one": true, "claim_few": true, "ack_few": true, "create": true, "set_sign": true,
	"empty": true}

// BenchmarkWorstCases measures the longest call of each script in its worst cases, as the server's slow log reports it,
// of the least disturbed of as many runs as -benchtime says.
//
//	go test ./redisstore -run '^$' -bench WorstCases -benchtime 5x
//
// Cases with many leases have 180, and others up to 50,000 messages. LATER_WORST_LEASES sets another number of leases,
// and fewer messages with it: to build and check them takes minutes.
func BenchmarkWorstCases(b *testing.B) {
	many := 180
	if text := os.Getenv("LATER_WORST_LEASES"); text != "" {
		var err error
		if many, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	rdb := redistest.Start(b).Client(b)
	s := newFrozenClock(b, rdb)
	names := map[string]string{}
	for name, plain := range s.scripts {
		renderings := []*script{plain}
		if plain.flow != nil {
			renderings = append(renderings, plain.flow())
		}
		for _, rendering := range slices.Clone(renderings) {
			if rendering.sub != nil {
				renderings = append(renderings, rendering.sub())
			}
		}
		for _, rendering := range renderings {
			names[rendering.sha] = name
			if err := rdb.ScriptLoad(b.Context(), rendering.body).Err(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for key, value := range map[string]string{"slowlog-log-slower-than": "0", "slowlog-max-len": "1000000",
		"appendonly": "no", "save": ""} {
		if err := rdb.ConfigSet(b.Context(), key, value).Err(); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range slices.Concat(worstSends, worstClaims, worstByMessage, worstByQueue, worstTurns, worstOrder,
		worstUrgency, worstMoves) {
		b.Run(c.script+"/"+c.name, func(b *testing.B) {
			least, leastCPU := time.Hour, math.Inf(1)
			for i := range b.N {
				w := &worst{TB: b, s: s, rdb: rdb, queue: fmt.Sprintf("q%d-%d", i, b.N),
					far: 50000 * many / 180, many: many}
				run := c.build(w)
				w.ok(rdb.Do(b.Context(), "slowlog", "reset").Err())
				used := w.cpu()
				run()
				used = w.cpu() - used
				log, err := rdb.SlowLogGet(b.Context(), 1000000).Result()
				w.ok(err)
				longest, calls := time.Duration(0), 0
				for _, entry := range log {
					if len(entry.Args) > 1 && names[entry.Args[1]] == c.script {
						longest = max(longest, entry.Duration)
						calls++
					}
				}
				if longest == 0 {
					b.Fatal("the script was not called")
				}
				least, leastCPU = min(least, longest), min(leastCPU, used/float64(calls))
				w.ok(rdb.FlushDB(b.Context()).Err())
			}
			b.ReportMetric(float64(least.Microseconds())/1000, "ms/call")
			b.ReportMetric(leastCPU*1000, "cpu-ms/call")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpu returns how many seconds the server has worked.
func (w *worst) cpu() (seconds float64) {
	info, err := w.rdb.InfoMap(w.Context(), "cpu").Result()
	w.ok(err)
	for _, field := range []string{"used_cpu_user_main_thread", "used_cpu_sys_main_thread"} {
		n, err := strconv.ParseFloat(info["CPU"][field], 64)
		w.ok(err)
		seconds += n
	}
	return seconds
}
