//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/internal/topic"
)

// inStores runs a test on Redis and on an embedded store.
func inStores(t *testing.T, test func(t *testing.T, c *cli)) {
	t.Run("redis", func(t *testing.T) { test(t, newCLI(t)) })
	t.Run("embedded", func(t *testing.T) { test(t, newDiskCLI(t)) })
}

// collects runs later work on queues until it has printed n lines, and returns them.
func (c *cli) collects(n int, queues ...string) []string {
	c.t.Helper()
	out := c.ok(append([]string{"work", "--max", fmt.Sprint(n)}, queues...)...)
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
}

func TestTopicCommandsFromFirstSubscriptionToDelete(t *testing.T) {
	inStores(t, func(t *testing.T, c *cli) {
		contains(t, c.run("topic", "list").stderr, "there are no topics yet")
		if got := c.ok("topic", "configure", "orders", "--history-age", "24h"); got !=
			"topic orders: unsubscribed messages are kept for the first subscription; history: for 1d\n" {
			t.Errorf("configure printed %q", got)
		}
		c.ok("topic", "configure", "orders", "--history-count", "1000", "--drop-unsubscribed")
		got := object(t, c.ok("topic", "configure", "orders", "--drop-unsubscribed=false", "--json"))
		if got["history_age"] != "24h0m0s" || got["history_count"] != 1000.0 || got["drop_unsubscribed"] != false {
			t.Errorf("configure printed %v", got)
		}
		if got := c.ok("topic", "subscribe", "orders", "mail"); got != "subscribed mail to orders\n" {
			t.Errorf("subscribe printed %q", got)
		}
		got = object(t, c.ok("topic", "subscribe", "orders", "audit", "--where", "region=eu", "--json"))
		if got["topic"] != "orders" || got["queue"] != "audit" || got["subscribed"] != true ||
			got["where"] != "region=eu" {
			t.Errorf("subscribe printed %v", got)
		}

		if got := c.ok("topic", "publish", "orders", "one", "--id", "1", "--header", "region=us"); got != "1\n" {
			t.Errorf("publish printed %q", got)
		}
		got = object(t, c.ok("topic", "publish", "orders", "two", "--header", "region=eu", "--id", "2", "--json"))
		if got["id"] != "2" || got["queue"] != "topic:orders" {
			t.Errorf("publish printed %v", got)
		}
		contains(t, c.fails(12, "topic", "publish", "orders", "x", "--id", "1"), "later get topic:orders 1")
		r := c.runWith(t.Context(), "three\nfour\n", "topic", "publish", "orders", "--batch", "--in", "1h", "--json")
		if got := object(t, r.stdout); got["sent"] != 2.0 {
			t.Errorf("publish --batch printed %v, %s", got, r.stderr)
		}
		contains(t, c.ok("topic", "list"), "TOPIC   SUBSCRIPTIONS  SCHEDULED  READY  LEASED  DEAD  HISTORY\n"+
			"orders              2          2      2       0     0        0\n")

		mail, audit := c.collects(2, "mail"), c.collects(1, "audit")
		slices.Sort(mail) // it runs several handlers at a time
		if !slices.Equal(mail, []string{"one", "two"}) || audit[0] != "two" {
			t.Errorf("mail received %q, audit %q", mail, audit)
		}
		c.ok("topic", "publish", "orders", "five", "--id", "5")
		c.collects(1, "mail")
		contains(t, c.ok("topic", "list", "orders"), "history         for 1d, up to 1000 messages; has 3\n",
			"2 scheduled, 0 ready", "QUEUE  SCHEDULED  READY  LEASED  DEAD  WHERE\n"+
				"audit          0      0       0     0  region=eu\nmail           0      0       0     0\n")
		got = object(t, c.ok("topic", "list", "orders", "--json"))
		first, _ := got["subscriptions"].([]any)[0].(map[string]any)
		if got["scheduled"] != 2.0 || got["history"] != 3.0 || first["queue"] != "audit" || first["ready"] != 0.0 {
			t.Errorf("list printed %v", got)
		}

		history := objects(t, c.ok("topic", "history", "orders", "--json"))
		if len(history) != 3 || history[2]["payload_text"] != "five" || history[2]["queue"] != "topic-history:orders" {
			t.Errorf("history is %v", history)
		}
		contains(t, c.ok("topic", "history", "orders"), "ID  DUE", "region=eu  two")
		r = c.run("topic", "history", "orders", "--limit", "1")
		contains(t, r.stderr, "there are more messages")
		contains(t, c.run("topic", "history", "orders", "--to", "2001-01-01 00:00").stderr, "no matching messages")

		got = object(t, c.ok("topic", "rewind", "orders", "audit", "--from", "2001-01-01 00:00", "--json"))
		if got["sent"] != 1.0 || got["kept"] != 2.0 || got["queue"] != "audit" || got["topic"] != "orders" {
			t.Errorf("rewind printed %v", got)
		}
		got = object(t, c.ok("topic", "rewind", "orders", "audit", "--from-id", "5", "--json"))
		if got["sent"].(float64)+got["kept"].(float64) != 1 {
			t.Errorf("rewind to the last message printed %v", got)
		}
		contains(t, c.fails(11, "topic", "rewind", "orders", "audit", "--from-id", "9"),
			`message "9" is not in the history`)
		if got := c.ok("topic", "rewind", "orders", "audit", "--from", "2001-01-01 00:00"); got !=
			"sent 0 messages to audit; 3 were left out, because audit has or remembers them, or its filter does not match\n" {
			t.Errorf("rewind printed %q", got)
		}
		c.ok("topic", "subscribe", "orders", "search", "--from", "2001-01-01 00:00", "--where", "!region")
		if got := c.collects(1, "search"); got[0] != "five" {
			t.Errorf("search received %q", got)
		}

		if got := c.ok("topic", "unsubscribe", "orders", "mail"); got != "unsubscribed mail from orders\n" {
			t.Errorf("unsubscribe printed %q", got)
		}
		contains(t, c.fails(2, "topic", "delete", "orders"),
			`Delete topic "orders" with 2 subscriptions, 3 messages of `+
				"history and all messages (2 scheduled, 0 ready, 0 leased, 0 dead)? [y/N] ",
			"not confirmed, nothing was done")
		if got := object(t, c.ok("topic", "delete", "orders", "--yes", "--json")); got["deleted"] != true {
			t.Errorf("delete printed %v", got)
		}
		contains(t, c.fails(11, "topic", "list", "orders"), "this store has no topics yet")
	})
}

func TestTopicMessagesReachARunningWorker(t *testing.T) {
	test := func(t *testing.T, c *cli) {
		p := c.start("work", "mail")
		p.await(p.stderr, "working")
		c.ok("topic", "configure", "orders", "--history-count", "10")
		c.ok("topic", "subscribe", "orders", "mail") // the worker learns of it
		c.ok("topic", "subscribe", "orders", "away")
		c.ok("topic", "publish", "orders", "hello", "--in", "10ms", "--id", "a")
		p.await(p.stdout, "hello")
		if got := c.collects(1, "away"); got[0] != "hello" {
			t.Errorf("the queue without a worker has %q", got)
		}
		p.signal(syscall.SIGINT)
		if exit := p.exit(); exit != 0 {
			t.Errorf("exit %d", exit)
		}
		if got := object(t, c.ok("topic", "history", "orders", "--json")); got["id"] != "a" {
			t.Errorf("history is %v", got)
		}
	}
	t.Run("redis", func(t *testing.T) { test(t, newCLI(t)) })
	t.Run("cluster", func(t *testing.T) {
		test(t, &cli{t, redistest.SharedCluster(t).URL() + "?prefix=" + strconv.FormatUint(rand.Uint64(), 36) + ":"})
	})
}

func TestTopicMessageOfAnEmbeddedStoreReachesItsWorker(t *testing.T) {
	c := newDiskCLI(t)
	c.ok("topic", "subscribe", "orders", "mail")
	c.ok("topic", "publish", "orders", "hello", "--in", "1s")
	p := c.start("work", "mail", "--max", "1")
	p.await(p.stdout, "hello")
	if exit := p.exit(); exit != 0 {
		t.Errorf("exit %d", exit)
	}
}

func TestTopicErrorsNameTheFix(t *testing.T) {
	inStores(t, func(t *testing.T, c *cli) {
		c.ok("topic", "subscribe", "orders", "mail")
		c.ok("topic", "subscribe", "all", "topic:orders")
		long := strings.Repeat("x", topic.MaxName+1)
		for _, test := range []struct {
			exit int
			args []string
			want string
		}{
			{11, []string{"unsubscribe", "nope", "mail"}, `no topic "nope"; existing topics: all, orders`},
			{11, []string{"unsubscribe", "orders", "nope"}, `queue "nope" is not subscribed to topic "orders"`},
			{11, []string{"list", "nope"}, `no topic "nope"`},
			{11, []string{"history", "nope"}, `no topic "nope"`},
			{11, []string{"configure", "nope"}, `no topic "nope"`},
			{11, []string{"delete", "nope", "--yes"}, `no topic "nope"`},
			{11, []string{"rewind", "nope", "mail", "--from", "00:00"}, `no topic "nope"`},
			{11, []string{"rewind", "orders", "mail", "--from", "00:00"},
				`topic "orders" retains no history: later topic configure orders --history-age DURATION sets one`},
			{11, []string{"subscribe", "orders", "new", "--from", "00:00"}, `topic "orders" retains no history`},
			{11, []string{"history", "orders"}, `topic "orders" retains no history`},
			{2, []string{"subscribe", "orders", "mail", "--where", "region="},
				`filter "region=" has no value at byte 7`},
			{10, []string{"subscribe", "orders", "mail", "--where", strings.Repeat("x", 2049)}, "the limit is 2048"},
			{2, []string{"subscribe", "orders", "topic:all"}, `"topic:orders" → "topic:all" → "topic:orders"`},
			{2, []string{"subscribe", "orders", "topic-history:orders"}, "subscribe another one"},
			{2, []string{"subscribe", "orders", "mail", "--from", "noon"}, "15:04 (the last one)"},
			{2, []string{"subscribe", "orders"}, "usage: later topic subscribe TOPIC QUEUE"},
			{2, []string{"rewind", "orders", "mail"}, "no time: give --from"},
			{2, []string{"rewind", "orders", "mail", "--from", "00:00", "--from-id", "1"}, "leave out one of them"},
			{2, []string{"rewind", "orders", "mail", "--from", "2999-01-01 00:00"},
				"in the future: must be a time in the past"},
			{2, []string{"publish", long, "x"}, "topic name is 115 bytes long: the limit is 114"},
			{2, []string{"publish", long, "--batch"}, "topic name is 115 bytes long: the limit is 114"},
			{2, []string{"publish", "orders"}, "no payload: give one"},
			{2, []string{"publish", "a{b", "x"}, "holds a brace"},
			{2, []string{"subscribe", long, "mail"}, "the limit is 114"},
			{2, []string{"list", long}, "the limit is 114"},
			{2, []string{"history", "orders", "--limit", "-1"}, "--limit is -1"},
			{2, []string{"configure", "orders", "--history-count", "-1"}, "history's number of messages is -1"},
			{2, []string{"configure", "orders", "--history-age", "1w"}, "give a duration such as"},
			{2, []string{"delete", "orders"}, "not confirmed, nothing was done"},
			{2, []string{"publsh"}, "did you mean publish?; see later topic --help"},
		} {
			r := c.runWith(t.Context(), "x\n", append([]string{"topic"}, test.args...)...)
			if test.args[0] == "delete" {
				r = c.run(append([]string{"topic"}, test.args...)...)
			}
			if r.exit != test.exit || !strings.Contains(r.stderr, test.want) {
				t.Errorf("later topic %.80q: exit %d, want %d with %q: %s", test.args, r.exit, test.exit,
					test.want, r.stderr)
			}
		}
		contains(t, c.fails(2, "work", "topic:orders"), `queue "topic:orders" belongs to a topic`)
	})
}

func TestTopicNamesAreCompleted(t *testing.T) {
	c := newCLI(t)
	c.ok("topic", "configure", "orders", "--history-count", "10")
	c.ok("topic", "subscribe", "orders", "mail")
	if got := c.ok("__complete", "topic", "publish", ""); !strings.HasPrefix(got, "orders\n:") {
		t.Errorf("got %q", got)
	}
	if got := c.ok("__complete", "topic", "subscribe", "orders", ""); !strings.HasPrefix(got, "mail\ntopic:orders\n:") {
		t.Errorf("got %q", got)
	}
}

func TestTopicTimesOfDayAreTheLast(t *testing.T) {
	for _, hour := range []time.Duration{-time.Hour, time.Hour} {
		now := time.Now()
		var got time.Time
		if err := (pastTimeValue{timeValue{&got}}).Set(now.Add(hour).Format("15:04:05")); err != nil {
			t.Fatal(err)
		}
		if age := now.Sub(got); age < 0 || age > 25*time.Hour {
			t.Errorf("%v is %v ago", got, age)
		}
	}
}

func TestTopicListPrintsTheOthersIfOneIsDamaged(t *testing.T) {
	c := newCLI(t)
	c.ok("topic", "subscribe", "orders", "mail")
	c.damage("topic:bad")
	r := c.run("topic", "list")
	if r.exit != 20 {
		t.Errorf("exit %d, want 20: %s", r.exit, r.stderr)
	}
	contains(t, r.stdout, "orders")
	contains(t, r.stderr, "topic:bad")
}

// A topic that is copied to another store with everything works there.
func TestTopicsAreCopied(t *testing.T) {
	from, to := newCLI(t), newCLI(t)
	from.ok("topic", "subscribe", "orders", "mail")
	from.ok("topic", "publish", "orders", "hello")
	from.ok("copy", "--from", from.store, "--to", to.store)
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	env := append(os.Environ(), "LATER_STORE="+to.store)
	if r := runMain(ctx, env, "", "work", "mail", "--max", "1"); r.stdout != "hello\n" {
		t.Errorf("exit %d: %q %s", r.exit, r.stdout, r.stderr)
	}
}
