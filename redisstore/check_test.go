package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// findIssues returns the issues that a check finds in queues, without issues of the server.
func findIssues(t *testing.T, s *Store, repair bool) (wrong []store.CheckResult) {
	t.Helper()
	err := s.Check(t.Context(), store.CheckOptions{Repair: repair}, func(f store.CheckResult) {
		if f.Severity != store.SeverityOK && !serverChecks[f.Check] {
			wrong = append(wrong, f)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return wrong
}

var serverChecks = map[string]bool{"server": true, "persistence": true, "memory": true, "replicas": true,
	"clock": true, "latency": true, "slowlog": true}

// damaged is a queue with one message in each state: scheduled, ready, leased, dead. Further scheduled messages are
// packed.
type damaged struct {
	*testing.T
	rdb redis.UniversalClient
	s   *Store
}

func (d *damaged) key(name string) string { return DefaultPrefix + "{q}:" + name }

func (d *damaged) do(args ...any) {
	d.Helper()
	if err := d.rdb.Do(d.Context(), args...).Err(); err != nil {
		d.Fatal(err)
	}
}

func (d *damaged) get(args ...any) string {
	d.Helper()
	text, err := d.rdb.Do(d.Context(), args...).Text()
	if err != nil {
		d.Fatal(err)
	}
	return text
}

func (d *damaged) lease() string {
	d.Helper()
	ids, err := d.rdb.HKeys(d.Context(), d.key("leases")).Result()
	if err != nil || len(ids) != 1 {
		d.Fatal(ids, err)
	}
	return ids[0]
}

func newDamaged(t *testing.T, rdb redis.UniversalClient) *damaged {
	d := &damaged{t, rdb, newStore(t, rdb)}
	if err := d.s.Delete(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	send(t, d.s, "q", "dead", store.Due{})
	c := claim(t, d.s, "q", 1, time.Minute)
	if _, err := d.s.Settle(t.Context(), "q", []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Bury,
		Reason: "boom"}}); err != nil {
		t.Fatal(err)
	}
	send(t, d.s, "q", "leased", store.Due{})
	claim(t, d.s, "q", 1, time.Hour)
	send(t, d.s, "q", "ready", store.Due{})
	send(t, d.s, "q", "scheduled", store.Due{Delay: 5 * time.Minute})
	return d
}

// sendPacked sends messages that are due far ahead and returns the name of the one bucket that they are in.
func (d *damaged) sendPacked(ids ...string) string {
	d.Helper()
	begins := (time.Now().Add(time.Hour).UnixMilli()/widestBucket + 1) * widestBucket
	for i, id := range ids {
		send(d.T, d.s, "q", id, store.Due{At: time.UnixMilli(begins).Add(time.Duration(i) * time.Minute)})
	}
	d.s.pack(d.Context(), "q")
	names, err := d.rdb.ZRange(d.Context(), d.key("bucket_starts"), 0, -1).Result()
	if err != nil || len(names) != 1 {
		d.Fatal(names, err)
	}
	return names[0]
}

// addPacked adds n to all counts of packed messages. One bucket must have one message or more.
func (d *damaged) addPacked(n int) {
	d.Helper()
	d.do("HINCRBY", d.key("meta"), "packed_messages", n)
	blocks, err := d.rdb.HGetAll(d.Context(), d.key("bucket_counts")).Result()
	if err != nil || len(blocks) != 3 {
		d.Fatal(blocks, err)
	}
	for name, text := range blocks { // of counts of one byte each, only the last of them above 0
		d.do("HSET", d.key("bucket_counts"), name, text[:len(text)-1]+string([]byte{text[len(text)-1] + byte(n)}))
	}
}

// damages lists manual changes. For each it states the issues that a check finds, the number of messages in each state
// after the repair (scheduled, ready, leased, dead), and the issues that the repair finds if they differ, because
// repairing one key can fix or reveal issues in the next.
var damages = []struct {
	name         string
	do           func(d *damaged)
	checks       []string
	after        string
	whenRepaired []string
}{
	{"nothing", func(*damaged) {}, nil, "1 1 1 1", nil},
	{"an entry of the due index without a message", func(d *damaged) { d.do("ZADD", d.key("due"), 1, "ghost") },
		[]string{"entries"}, "1 1 1 1", nil},
	{"an entry of the dead index without a message", func(d *damaged) { d.do("ZADD", d.key("dead"), 1, "ghost") },
		[]string{"entries"}, "1 1 1 1", nil},
	{"an entry of the index of groups without a message",
		func(d *damaged) { d.do("ZADD", d.key("groups"), 1, "ghost") }, []string{"groups"}, "1 1 1 1", nil},
	{"a message in a group that it does not name", func(d *damaged) { d.do("ZADD", d.key("groups"), 1, "ready") },
		[]string{"groups"}, "1 1 1 1", nil},
	{"messages missing from the index of their group", func(d *damaged) {
		if _, err := d.s.Cancel(d.Context(), "q",
			store.CancelRequest{IDs: []string{"ready", "scheduled"}}); err != nil {
			d.Fatal(err)
		}
		if _, err := d.s.Send(d.Context(), "q", []store.Outgoing{
			{Message: store.Message{ID: "scheduled", Group: "g"}, Due: store.Due{Delay: 5 * time.Minute}},
			{Message: store.Message{ID: "ready", Group: "g", Headers: map[string]string{"k": "v"}, MaxAttempts: 7,
				ExpireAfter: time.Hour, Timeout: time.Minute, DedupWindow: time.Minute, SentAt: time.UnixMilli(1)}},
		}); err != nil {
			d.Fatal(err)
		}
		d.do("DEL", d.key("groups"))
	}, []string{"groups"}, "1 1 1 1", nil},
	{"messages that left their index", func(d *damaged) {
		d.do("ZREM", d.key("due"), "ready", "scheduled")
		d.do("ZREM", d.key("dead"), "dead")
	}, []string{"lost"}, "0 3 1 0", nil},
	{"a message due and dead", func(d *damaged) { d.do("ZADD", d.key("due"), 1, "dead") }, []string{"states"},
		"1 2 1 0", nil},
	{"a message leased and ready", func(d *damaged) { d.do("ZADD", d.key("due"), 1, "leased") }, []string{"states"},
		"1 2 0 1", nil},
	{"a dead message without its record", func(d *damaged) { d.do("HDEL", d.key("records"), "dead") },
		[]string{"records"}, "1 1 1 1", nil},
	{"a dead message with the record of a live one", func(d *damaged) {
		d.do("HSET", d.key("records"), "dead",
			"0\t3\t1\t0\t")
	}, []string{"records"}, "1 1 1 1", nil},
	{"unreadable records", func(d *damaged) {
		d.do("HSET", d.key("records"), "ready", "x", "dead", "y", "leased", "\t\t")
	},
		[]string{"records", "records"}, "1 1 1 1", nil},
	{"the record of a cancelled message for a live one", func(d *damaged) {
		d.do("HSET", d.key("records"), "ready",
			"0\tx\t0\t0\t")
	}, []string{"records"}, "1 1 1 1", nil},
	{"the record of a successor for a message that is due", func(d *damaged) {
		d.do("HSET", d.key("records"), "ready", "0\t0\t0\t0\t7\tfollows\t\t")
	}, []string{"records"}, "1 1 1 1", nil},
	{"a followed message that is ready", func(d *damaged) {
		otherClient{d.T, d.s, "q"}.follow(store.Due{}, "leased")
		d.do("ZADD", d.key("due"), 1, "leased")
	}, []string{"records", "states"}, "1 2 0 1", nil},
	{"a followed message without its lease", func(d *damaged) {
		otherClient{d.T, d.s, "q"}.follow(store.Due{Delay: 5 * time.Minute}, "leased")
		d.do("DEL", d.key("leases"), d.key("lease_deadlines"))
	}, []string{"lost"}, "2 1 0 1", nil},
	{"the original of a message without a successor", func(d *damaged) {
		d.do("HSET", d.key("records"), "\tready", "0\toriginal", "\tghost", "0\toriginal")
	}, []string{"records"}, "1 1 1 1", nil},
	{"a record without a message", func(d *damaged) { d.do("HSET", d.key("records"), "ghost", "0\t3\t1\t0\t") },
		[]string{"records"}, "1 1 1 1", nil},
	{"a lease without its deadline", func(d *damaged) {
		d.do("DEL", d.key("lease_deadlines"))
	}, []string{"leases"}, "1 2 0 1",
		nil},
	{"a deadline without its lease", func(d *damaged) { d.do("ZADD", d.key("lease_deadlines"), 1e15, "ghost") },
		[]string{"leases"}, "1 1 1 1", nil},
	{"a deleted lease", func(d *damaged) {
		d.do("DEL", d.key("leases"), d.key("lease_deadlines"))
	}, []string{"lost"}, "1 2 0 1",
		nil},
	{"an empty lease", func(d *damaged) {
		d.do("HSET", d.key("leases"), "ghost", "\n")
		d.do("ZADD", d.key("lease_deadlines"), 1e15, "ghost")
	}, []string{"leases"}, "1 1 1 1", nil},
	{"a lease of a deleted message", func(d *damaged) {
		lease := d.lease()
		d.do("HSET", d.key("leases"), lease, d.get("HGET", d.key("leases"), lease)+"ghost\n")
	}, []string{"leases"}, "1 1 1 1", nil},
	{"an unreadable lease", func(d *damaged) { d.do("HSET", d.key("leases"), d.lease(), "\nleased\tx\ty\n") },
		[]string{"leases", "lost"}, "1 2 0 1", nil},
	{"no recorded format", func(d *damaged) { d.do("HDEL", d.key("meta"), "format") }, []string{"format"},
		"1 1 1 1", nil},
	{"no meta", func(d *damaged) { d.do("DEL", d.key("meta")) }, []string{"format", "meta"}, "1 1 1 1", nil},
	{"a recorded maximum length that is too small", func(d *damaged) {
		d.do("HSET", d.key("meta"), "max_envelope_bytes", 0)
	},
		[]string{"meta"}, "1 1 1 1", nil},
	{"a retention that cannot be read", func(d *damaged) {
		d.do("HSET", d.key("meta"), "dead_max_age_ms", "7 days", "dead_max_count", "")
	}, []string{"meta"}, "1 1 1 1", nil},
	{"a retention that is not possible", func(d *damaged) {
		d.do("HSET", d.key("meta"), "dead_max_age_ms", "-1", "dead_max_count", "0")
	}, []string{"meta"}, "1 1 1 1", nil},
	{"a retention that is too large", func(d *damaged) {
		d.do("HSET", d.key("meta"), "dead_max_age_ms", "1e3", "dead_max_count", store.MaxDeadCount+1)
	}, []string{"meta"}, "1 1 1 1", nil},
	{"a retention without damage", func(d *damaged) {
		d.do("HSET", d.key("meta"), "dead_max_age_ms", store.MaxDelay.Milliseconds(), "dead_max_count",
			store.MaxDeadCount)
	}, nil, "1 1 1 1", nil},
	{"packed messages without damage", func(d *damaged) { d.sendPacked("f1", "f2") }, nil, "3 1 1 1", nil},
	{"packed messages and no meta", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("DEL", d.key("meta"))
	}, []string{"buckets", "format", "meta"}, "3 1 1 1", nil},
	{"a deleted packed message", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("HDEL", d.key("messages"), "f1")
	}, []string{"entries"}, "2 1 1 1", nil},
	{"a message packed and due", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("ZADD", d.key("due"), 1, "f2")
	}, []string{"states"}, "2 2 1 1", nil},
	{"a message packed and dead", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("ZADD", d.key("dead"), 1, "f2")
		d.do("HSET", d.key("records"), "f2", "0\t1\t1\t0\t1\tburied\t\tboom")
	}, []string{"states"}, "2 1 1 2", nil},
	{"a message packed and leased", func(d *damaged) {
		name := d.sendPacked("f1", "f2")
		d.do("HSET", d.key("buckets"), name, d.get("HGET", d.key("buckets"), name)+"5\tleased\n")
		d.addPacked(1)
	}, []string{"buckets"}, "4 1 0 1", []string{"buckets", "states"}},
	{"a message packed twice into its bucket", func(d *damaged) {
		name := d.sendPacked("f1", "f2")
		text := d.get("HGET", d.key("buckets"), name)
		d.do("HSET", d.key("buckets"), name, text+text[1:])
		d.addPacked(2)
	}, []string{"states"}, "3 1 1 1", nil},
	{"a packed message whose value does not name its bucket", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("HSET", d.key("messages"), "f1", "\x00")
	}, []string{"buckets", "lost"}, "3 1 1 1", []string{"buckets"}},
	{"a message packed into a bucket for other due times", func(d *damaged) {
		name := d.sendPacked("f1", "f2")
		const late = "99999999" // ms after the start, outside any bucket
		d.do("HSET", d.key("buckets"), name, d.get("HGET", d.key("buckets"), name)+late+"\tf3\n")
		d.do("HSET", d.key("messages"), "f3", d.get("HGET", d.key("messages"), "f1"))
		d.addPacked(1)
	}, []string{"buckets", "lost"}, "4 1 1 1", []string{"buckets"}},
	{"a message packed into a bucket of its time that its value does not name", func(d *damaged) {
		name := d.sendPacked("f1", "f2")
		text := d.get("HGET", d.key("buckets"), name)
		d.do("HSET", d.key("buckets"), name, text+strings.Split(text,
			"\n")[1]+"3\n") // the line of f1 with a 3 appended to the id
		d.do("HSET", d.key("messages"), "f13", "\x00")
		d.addPacked(1)
	}, []string{"buckets", "lost"}, "4 1 1 1", []string{"buckets"}},
	{"a bucket missing from the index", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("DEL", d.key("bucket_starts"))
	}, []string{"buckets"}, "3 1 1 1", nil},
	{"an index entry without a bucket", func(d *damaged) {
		d.do("ZADD", d.key("bucket_starts"), 5, 5)
	}, []string{"buckets"},
		"1 1 1 1", nil},
	{"all buckets deleted", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("DEL", d.key("buckets"))
	}, []string{"buckets", "buckets", "lost"}, "1 3 1 1", nil},
	{"a bucket indexed at a wrong start", func(d *damaged) {
		d.do("ZADD", d.key("bucket_starts"), 5, d.sendPacked("f1", "f2"))
	},
		[]string{"buckets"}, "3 1 1 1", nil},
	{"a bucket with an invalid name", func(d *damaged) {
		name := d.sendPacked("f1", "f2")
		d.do("HSET", d.key("buckets"), "z"+name[1:], d.get("HGET", d.key("buckets"), name))
		d.do("ZADD", d.key("bucket_starts"), 5, "z"+name[1:])
		d.do("HDEL", d.key("buckets"), name)
		d.do("ZREM", d.key("bucket_starts"), name)
	}, []string{"buckets", "buckets", "buckets", "lost"}, "3 1 1 1", []string{"buckets", "buckets", "buckets"}},
	{"an empty bucket", func(d *damaged) {
		d.do("HSET", d.key("buckets"), "k5", "\n")
		d.do("ZADD", d.key("bucket_starts"), 5, "k5")
	}, []string{"buckets"}, "1 1 1 1", nil},
	{"an unreadable bucket", func(d *damaged) {
		d.do("HSET", d.key("buckets"), d.sendPacked("f1", "f2"), "\nf1 and f2\n")
	},
		[]string{"buckets", "buckets", "lost"}, "1 3 1 1", nil},
	{"a wrong packed count", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("HSET", d.key("meta"), "packed_messages", 7)
	}, []string{"buckets"}, "3 1 1 1", nil},
	{"no packed count", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("HDEL", d.key("meta"), "packed_messages")
	}, []string{"buckets"}, "3 1 1 1", nil},
	{"wrong counts of packed messages", func(d *damaged) {
		d.sendPacked("f1", "f2")
		for block, text := range map[string]string{"A0": "\x01\x07", "F123": "\x04\x00\x01", "G1": "", "Bx": "7"} {
			d.do("HSET", d.key("bucket_counts"), block, text)
		}
	}, []string{"buckets"}, "3 1 1 1", nil},
	{"no counts of packed messages", func(d *damaged) {
		d.sendPacked("f1", "f2")
		d.do("DEL", d.key("bucket_counts"))
	}, []string{"buckets"}, "3 1 1 1", nil},
	{"a queue that is not registered", func(d *damaged) { d.do("DEL", DefaultPrefix+"queues") }, []string{"registry"},
		"1 1 1 1", nil},
	{"a registered name without a queue", func(d *damaged) { d.do("SADD", DefaultPrefix+"queues", "ghost") },
		[]string{"registry"}, "1 1 1 1", nil},
}

func TestDamageIsFoundRepairedAndDelivered(t *testing.T) {
	for _, e := range []struct {
		name   string
		client func(t testing.TB) redis.UniversalClient
	}{
		{"alone", func(t testing.TB) redis.UniversalClient { return redistest.Start(t).Client(t) }},
		{"cluster", func(t testing.TB) redis.UniversalClient { return redistest.StartCluster(t).Client(t) }},
		{"valkey",
			func(t testing.TB) redis.UniversalClient { return redistest.Start(t, redistest.Valkey(t)).Client(t) }},
	} {
		t.Run(e.name, func(t *testing.T) {
			rdb := e.client(t)
			for _, c := range damages {
				t.Run(c.name, func(t *testing.T) {
					d := newDamaged(t, rdb)
					c.do(d)
					before := dump(t, rdb, "q")
					found := findIssues(t, d.s, false)
					wantChecks(t, found, c.checks, false)
					for key, value := range dump(t, rdb, "q") {
						if before[key] != value {
							t.Errorf("a check without repair changed %s", key)
						}
					}
					whenRepaired := c.checks
					if c.whenRepaired != nil {
						whenRepaired = c.whenRepaired
					}
					wantChecks(t, findIssues(t, d.s, true), whenRepaired, true)
					if left := findIssues(t, d.s, false); len(left) > 0 {
						t.Fatalf("after the repair, issues remain: %+v", left)
					}
					d.wantStates(c.after)
					d.wantAllDelivered()
				})
			}
		})
	}
}

func wantChecks(t *testing.T, found []store.CheckResult, want []string, repaired bool) {
	t.Helper()
	var got []string
	for _, f := range found {
		got = append(got, f.Check)
		if f.Text == "" || f.Advice == "" || f.Count == 0 && f.Check != "format" || f.Repaired != repaired ||
			strings.Contains(f.Text, "\n") {
			t.Errorf("incomplete result %+v", f)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Fatalf("found %v: %+v; want %v", got, found, want)
	}
}

func (d *damaged) wantStates(want string) {
	d.Helper()
	claim(d.T, d.s, "none", 1, time.Second)
	st, err := d.s.Stats(d.Context(), "q")
	if err != nil {
		d.Fatal(err)
	}
	// A lease without a deadline gets one that has passed. It ends with the next claim, which the stats do not
	// reflect yet.
	if strings.HasPrefix(want, "1 2 0") && st.Leased == 1 {
		st.Leased, st.Ready = 0, st.Ready+1
	}
	if got := fmt.Sprint(st.Scheduled, " ", st.Ready, " ", st.Leased, " ", st.Dead); got != want {
		d.Errorf("scheduled, ready, leased, dead: %s, want %s", got, want)
	}
}

// wantAllDelivered makes every message ready, and claims and acks it.
func (d *damaged) wantAllDelivered() {
	d.Helper()
	ctx := d.Context()
	names, _, err := d.s.Queues(ctx, "")
	if err != nil || !slices.Contains(names, "q") {
		d.Errorf("queues are %v, %v", names, err)
	}
	if _, err := d.s.Replay(ctx, "q", store.Selection{State: store.StateDead}, store.Due{}); err != nil {
		d.Fatal(err)
	}
	want := []string{"dead", "ready", "scheduled"}
	infos, err := d.s.Get(ctx, "q", []string{"f1", "f2", "f3"})
	if err != nil {
		d.Fatal(err)
	}
	for _, in := range infos {
		if in != nil {
			want = append(want, in.ID)
		}
	}
	for _, id := range append(want[2:], "leased") { // if it is scheduled
		if _, err := d.s.Reschedule(ctx, "q", []string{id}, store.Due{}); err != nil {
			d.Fatal(err)
		}
	}
	if leases, err := d.rdb.HLen(ctx, d.key("leases")).Result(); err != nil {
		d.Fatal(err)
	} else if leases == 1 {
		d.do("ZADD", d.key("lease_deadlines"), 1, d.lease()) // its deadline passes
	}
	want = append(want, "leased")
	var got []string
	for range want {
		c := claim(d.T, d.s, "q", 10, time.Minute)
		for _, m := range c.Messages {
			r, err := d.s.Settle(ctx, "q", []store.Settlement{{Receipt: m.Receipt, Action: store.Ack}})
			if err != nil || r[0].Err != nil {
				d.Error(err, r)
			}
			got = append(got, m.ID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		d.Errorf("delivered %v, want %v", got, want)
	}
}

func TestCheckNamesKeyOfWrongType(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	d := newDamaged(t, rdb)
	d.do("SET", d.key("records"), "text")
	d.do("SET", "later:{other}:due", "text")
	found := findIssues(t, d.s, true)
	if len(found) < 2 {
		t.Fatalf("%+v", found)
	}
	for _, f := range found {
		if f.Check == "types" && (f.Repaired || !strings.Contains(f.Text, "is a string and should be")) {
			t.Errorf("%+v", f)
		}
	}
	if got := d.get("GET", d.key("records")); got != "text" {
		t.Errorf("the key was changed to %q", got)
	}
}

func TestRepairLeavesOtherFormatAlone(t *testing.T) {
	d := newDamaged(t, redistest.Start(t).Client(t))
	d.do("HSET", d.key("meta"), "format", "99")
	d.do("ZADD", d.key("due"), 1, "ghost")
	before := dump(t, d.rdb, "q")
	found := findIssues(t, d.s, true)
	if len(found) != 1 || found[0].Check != "format" || found[0].Repaired || !strings.Contains(found[0].Text, "99") {
		t.Errorf("%+v", found)
	}
	if after := dump(t, d.rdb, "q"); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("the queue was changed")
	}
}

func TestUnfinishedCheckReturnsError(t *testing.T) {
	srv := redistest.Start(t)
	s := newStore(t, srv.Client(t), RetryFor(0))
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	err := s.Check(ctx, store.CheckOptions{}, func(store.CheckResult) { cancel(enough) })
	if !errors.Is(err, enough) {
		t.Errorf("check with a canceled context: %v", err)
	}
	srv.Kill()
	if err := s.Check(t.Context(), store.CheckOptions{}, func(store.CheckResult) {}); !errors.Is(err,
		store.ErrUnavailable) {
		t.Errorf("check of a dead server: %v", err)
	}
}
