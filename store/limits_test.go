package store_test

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/laterq/later/store"
)

// checkError checks that err is of a kind and contains all words. If kind is nil, err must be nil.
func checkError(t *testing.T, what string, err error, kind error, words ...string) {
	t.Helper()
	if kind == nil {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	if !errors.Is(err, kind) {
		t.Errorf("%s: %v, want %v", what, err, kind)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: error %q does not contain %q", what, err, word)
		}
	}
}

func TestNamesHaveLimits(t *testing.T) {
	checks := []struct {
		field string
		check func(string) error
		limit int
	}{{"queue name", store.CheckQueue, store.MaxQueueName}, {"id", store.CheckID, store.MaxID},
		{"key", store.CheckKey, store.MaxKey}}
	for _, c := range checks {
		limit := fmt.Sprint(c.limit)
		for _, good := range []string{"a", " ", "a:b", "größe", "日本", strings.Repeat("x", c.limit)} {
			checkError(t, c.field+" "+good, c.check(good), nil)
		}
		checkError(t, "empty", c.check(""), store.ErrInvalid, c.field, limit)
		long := strings.Repeat("x", c.limit+1)
		checkError(t, "too long", c.check(long), store.ErrInvalid, c.field, limit, fmt.Sprint(len(long)))
		for _, bad := range []string{"\x00", "a\nb", "tab\t", "\x1f", "del\x7f"} {
			checkError(t, fmt.Sprintf("%q", bad), c.check(bad), store.ErrInvalid, c.field, "control character")
		}
		checkError(t, "not UTF-8", c.check("a\xff"), store.ErrInvalid, c.field, "UTF-8")
	}
	checkError(t, "slash", store.CheckID("a/b"), nil)
	checkError(t, "slash", store.CheckQueue("a/b"), nil)
	checkError(t, "slash", store.CheckKey("a/b"), store.ErrInvalid, "key", "slash", "leave it out")
	for _, bad := range []string{".", ".."} {
		checkError(t, bad, store.CheckKey(bad), store.ErrInvalid, "key", strconv.Quote(bad), "URLs")
	}
	for _, bad := range []string{"{", "}", "a{b}c"} {
		checkError(t, bad, store.CheckQueue(bad), store.ErrInvalid, "queue name", "brace")
		checkError(t, bad, store.CheckID(bad), nil)
	}
}

func TestNothingNewIsNamedByDots(t *testing.T) {
	for _, name := range []string{".", ".."} {
		for _, queue := range []string{name, "topic:" + name, "topic-history:" + name} {
			checkError(t, queue, store.CheckNewQueue(queue), store.ErrInvalid, strconv.Quote(name), "URLs")
			checkError(t, queue, store.CheckQueue(queue), nil)
			checkError(t, queue, store.CheckNewQueue(store.NewQueueName(queue)), nil)
		}
		checkError(t, name, store.CheckID(name), nil)
		for field, m := range map[string]store.Message{"id": {ID: name}, "group": {ID: "a", Group: name}} {
			checkError(t, field, (&store.Outgoing{Message: m}).Check(), store.ErrInvalid, field, strconv.Quote(name),
				"URLs")
			info := store.Info{Message: m, State: store.StateReady, Due: time.Now()}
			checkError(t, field, info.Check(), nil)
			checkError(t, field, info.CheckNew(), store.ErrInvalid, field)
		}
	}
	for _, name := range []string{"...", ".a", "a.", "%2E", "a:.", " ."} {
		checkError(t, name, store.CheckNewQueue(name), nil)
		if store.NewQueueName(name) != name || store.NewName(name) != name {
			t.Errorf("%q has a new name", name)
		}
	}
	if one, two := store.NewName("."), store.NewQueueName("topic:.."); one != "%2E" || two != "topic:%2E%2E" {
		t.Error(one, two)
	}
}

func TestMessagesHaveLimits(t *testing.T) {
	headers := func(n, size int) map[string]string {
		h := map[string]string{}
		for i := range n {
			h[fmt.Sprintf("%03d", i)] = strings.Repeat("v", size)
		}
		return h
	}
	day := 24 * time.Hour
	cases := []struct {
		name   string
		change func(m *store.Outgoing)
		kind   error
		words  []string
	}{
		{"only an id", func(*store.Outgoing) {}, nil, nil},
		{"no id", func(m *store.Outgoing) { m.ID = "" }, store.ErrInvalid, []string{"id", "128"}},
		{"payload at the limit", func(m *store.Outgoing) { m.Payload = make([]byte, store.MaxPayload) }, nil, nil},
		{"payload too large", func(m *store.Outgoing) {
			m.Payload = make([]byte, store.MaxPayload+1)
		}, store.ErrTooLarge, []string{"payload", "1048577", "1048576", "elsewhere"}},
		{"headers at the limit", func(m *store.Outgoing) { m.Headers = headers(store.MaxHeaders, 1) }, nil, nil},
		{"too many headers", func(m *store.Outgoing) {
			m.Headers = headers(store.MaxHeaders+1, 1)
		}, store.ErrTooLarge, []string{"headers", "65", "64"}},
		{"header bytes at the limit", func(m *store.Outgoing) {
			m.Headers = headers(1, store.MaxHeaderBytes-3)
		}, nil, nil},
		{"too many header bytes", func(m *store.Outgoing) {
			m.Headers = headers(1, store.MaxHeaderBytes-2)
		}, store.ErrTooLarge, []string{"headers", "16385", "16384"}},
		{"empty header name", func(m *store.Outgoing) {
			m.Headers = map[string]string{"": "v"}
		}, store.ErrInvalid, []string{"header name", "empty"}},
		{"control character in a header name", func(m *store.Outgoing) {
			m.Headers = map[string]string{"a\nb": "v"}
		}, store.ErrInvalid, []string{"header name", "control character"}},
		{"header name not UTF-8", func(m *store.Outgoing) {
			m.Headers = map[string]string{"\xff": "v"}
		}, store.ErrInvalid, []string{"header name", "UTF-8"}},
		{"header value of any characters", func(m *store.Outgoing) {
			m.Headers = map[string]string{"k": "a\nb\x00 é"}
		}, nil, nil},
		{"header value not UTF-8", func(m *store.Outgoing) {
			m.Headers = map[string]string{"k": "\xff"}
		}, store.ErrInvalid, []string{"header", `"k"`, "UTF-8"}},
		{"most attempts", func(m *store.Outgoing) { m.MaxAttempts = store.MaxAttempts }, nil, nil},
		{"too many attempts", func(m *store.Outgoing) {
			m.MaxAttempts = store.MaxAttempts + 1
		}, store.ErrInvalid, []string{"max attempts", "65536", "65535", "20"}},
		{"attempts below zero", func(m *store.Outgoing) {
			m.MaxAttempts = -1
		}, store.ErrInvalid, []string{"max attempts", "-1"}},
		{"longest timeout", func(m *store.Outgoing) { m.Timeout = store.MaxLease }, nil, nil},
		{"timeout too long", func(m *store.Outgoing) {
			m.Timeout = store.MaxLease + 1
		}, store.ErrInvalid, []string{"timeout", "24h"}},
		{"timeout below zero", func(m *store.Outgoing) {
			m.Timeout = -1
		}, store.ErrInvalid, []string{"timeout", "-1ns"}},
		{"longest expiry", func(m *store.Outgoing) { m.ExpireAfter = store.MaxDelay }, nil, nil},
		{"expiry too far", func(m *store.Outgoing) {
			m.ExpireAfter = store.MaxDelay + 1
		}, store.ErrInvalid, []string{"expiry", "876000h"}},
		{"expiry below zero", func(m *store.Outgoing) {
			m.ExpireAfter = -1
		}, store.ErrInvalid, []string{"expiry", "-1ns"}},
		{"expiry twice", func(m *store.Outgoing) {
			m.ExpireAfter, m.ExpireAt = day, time.Now()
		}, store.ErrInvalid, []string{"expiry", "twice"}},
		{"expiry at a time too far", func(m *store.Outgoing) {
			m.ExpireAt = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
		}, store.ErrInvalid, []string{"expiry", "2200", "2199"}},
		{"expiry before 1970", func(m *store.Outgoing) {
			m.ExpireAt = time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)
		}, store.ErrInvalid, []string{"expiry", "1970"}},
		{"longest dedup window", func(m *store.Outgoing) { m.DedupWindow = store.MaxDelay }, nil, nil},
		{"dedup window too long", func(m *store.Outgoing) {
			m.DedupWindow = store.MaxDelay + 1
		}, store.ErrInvalid, []string{"dedup window", "876000h"}},
		{"dedup window below zero", func(m *store.Outgoing) {
			m.DedupWindow = -1
		}, store.ErrInvalid, []string{"dedup window", "-1ns"}},
		{"longest delay", func(m *store.Outgoing) { m.Due.Delay = store.MaxDelay }, nil, nil},
		{"delay too long", func(m *store.Outgoing) {
			m.Due.Delay = store.MaxDelay + 1
		}, store.ErrInvalid, []string{"delay", "876000h"}},
		{"delay below zero", func(m *store.Outgoing) { m.Due.Delay = -day }, nil, nil},
		{"latest due time", func(m *store.Outgoing) {
			m.Due.At = time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC)
		}, nil, nil},
		{"due time too far", func(m *store.Outgoing) {
			m.Due.At = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
		}, store.ErrInvalid, []string{"due time", "2200", "2199"}},
		{"durable on disk, shortest timeout", func(m *store.Outgoing) {
			m.Durable.Timeout = store.MinConfirm
		}, nil, nil},
		{"most durable", func(m *store.Outgoing) {
			m.Durable = store.Durability{Replicas: store.MaxReplicas, Timeout: store.MaxConfirm}
		}, nil, nil},
		{"durability without a timeout", func(m *store.Outgoing) {
			m.Durable.Replicas = 1
		}, store.ErrInvalid, []string{"timeout", "0s", "1ms", "1h"}},
		{"too many replicas", func(m *store.Outgoing) {
			m.Durable = store.Durability{Replicas: 17, Timeout: time.Second}
		}, store.ErrInvalid, []string{"17 replicas", "16"}},
		{"replicas below zero", func(m *store.Outgoing) {
			m.Durable = store.Durability{Replicas: -1, Timeout: time.Second}
		}, store.ErrInvalid, []string{"-1 replicas", "0"}},
		{"durability's timeout too short", func(m *store.Outgoing) {
			m.Durable.Timeout = store.MinConfirm - 1
		}, store.ErrInvalid, []string{"timeout", "1ms"}},
		{"durability's timeout too long", func(m *store.Outgoing) {
			m.Durable.Timeout = store.MaxConfirm + 1
		}, store.ErrInvalid, []string{"timeout", "1h"}},
		{"durability's timeout below zero", func(m *store.Outgoing) {
			m.Durable.Timeout = -1
		}, store.ErrInvalid, []string{"timeout", "-1ns"}},
		{"due time before 1970", func(m *store.Outgoing) {
			m.Due.At = time.Unix(-1, 0)
		}, store.ErrInvalid, []string{"due time", "1970"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := store.Outgoing{Message: store.Message{ID: "m"}}
			c.change(&m)
			checkError(t, c.name, m.Check(), c.kind, c.words...)
		})
	}
}

func TestLeasesAndDelaysHaveLimits(t *testing.T) {
	for d, kind := range map[time.Duration]error{
		store.MinLease: nil, store.MaxLease: nil, store.MinLease - 1: store.ErrInvalid,
		store.MaxLease + 1: store.ErrInvalid, 0: store.ErrInvalid, -1: store.ErrInvalid,
	} {
		checkError(t, fmt.Sprint("lease ", d), store.CheckLease(d), kind, "lease", "10ms", "24h")
	}
	for d, kind := range map[time.Duration]error{
		-time.Hour: nil, 0: nil, store.MaxDelay: nil, store.MaxDelay + 1: store.ErrInvalid,
	} {
		checkError(t, fmt.Sprint("delay ", d), store.CheckDelay(d), kind, "delay", "876000h")
	}
}

func TestSelectionsHaveLimits(t *testing.T) {
	none, ids, tooMany := []string(nil), []string{"a", "b"}, make([]string, store.MaxBatch+1)
	for _, c := range []struct {
		sel           store.Selection
		replay, purge error
	}{
		{store.Selection{State: store.StateDead}, nil, nil},
		{store.Selection{State: store.StateDead, IDs: ids}, nil, nil},
		{store.Selection{State: store.StateDead, IDs: tooMany[1:]}, nil, nil},
		{store.Selection{State: store.StateDead, IDs: tooMany}, store.ErrInvalid, store.ErrInvalid},
		{store.Selection{IDs: none}, store.ErrInvalid, nil},
		{store.Selection{IDs: ids}, store.ErrInvalid, store.ErrInvalid},
		{store.Selection{State: store.StateScheduled}, store.ErrInvalid, nil},
		{store.Selection{State: store.StateReady}, store.ErrInvalid, nil},
		{store.Selection{State: store.StateReady, IDs: ids}, store.ErrInvalid, store.ErrInvalid},
		{store.Selection{State: store.StateLeased}, store.ErrInvalid, store.ErrInvalid},
		{store.Selection{State: "asleep"}, store.ErrInvalid, store.ErrInvalid},
	} {
		what := fmt.Sprintf("%q with %d ids", c.sel.State, len(c.sel.IDs))
		checkError(t, "replay of "+what, c.sel.CheckReplay(), c.replay)
		checkError(t, "purge of "+what, c.sel.CheckPurge(), c.purge)
	}
}

func TestHistogramsHaveLimits(t *testing.T) {
	from, hour := time.UnixMilli(1_700_000_000_000), time.Hour
	checkError(t, "one", store.CheckHistogram(from, from.Add(time.Millisecond), 1), nil)
	checkError(t, "most", store.CheckHistogram(from, from.Add(store.MaxBuckets*time.Millisecond), store.MaxBuckets),
		nil)
	checkError(t, "none", store.CheckHistogram(from, from.Add(hour), 0), store.ErrInvalid, "buckets", "500")
	tooMany := store.CheckHistogram(from, from.Add(hour), store.MaxBuckets+1)
	checkError(t, "too many", tooMany, store.ErrInvalid, "buckets", "501", "500")
	tooShort := store.CheckHistogram(from, from.Add(9*time.Millisecond), 10)
	checkError(t, "too short", tooShort, store.ErrInvalid, "millisecond", "fewer")
	checkError(t, "backwards", store.CheckHistogram(from, from.Add(-hour), 1), store.ErrInvalid)
	checkError(t, "start", store.CheckHistogram(time.Unix(-9, 0), from, 1), store.ErrInvalid, "histogram start")
	tooFar := store.CheckHistogram(from, time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	checkError(t, "end", tooFar, store.ErrInvalid, "histogram end")
}

func TestBoundsOfHistogramsHaveLimits(t *testing.T) {
	at := func(ms ...int64) (bounds []time.Time) {
		for _, n := range ms {
			bounds = append(bounds, time.UnixMilli(n))
		}
		return bounds
	}
	most := make([]int64, store.MaxBuckets+2)
	for i := range most {
		most[i] = int64(i + 1)
	}
	checkError(t, "two", store.CheckBounds(at(1, 2)), nil)
	checkError(t, "unequal parts", store.CheckBounds(at(1, 2, 1000, 1001)), nil)
	checkError(t, "most", store.CheckBounds(at(most[1:]...)), nil)
	checkError(t, "too many", store.CheckBounds(at(most...)), store.ErrInvalid, "502 bounds", "501")
	checkError(t, "one", store.CheckBounds(at(1)), store.ErrInvalid, "2 to 501")
	checkError(t, "equal", store.CheckBounds(at(1, 2, 2)), store.ErrInvalid, "bound 2", "increase")
	checkError(t, "same millisecond", store.CheckBounds([]time.Time{time.Unix(1, 1), time.Unix(1, 2)}),
		store.ErrInvalid)
	checkError(t, "early", store.CheckBounds(at(-9, 1)), store.ErrInvalid, "histogram bound")
}

func TestHistogramBoundsIncreaseFromStartToEnd(t *testing.T) {
	from := time.UnixMilli(1_700_000_000_000)
	for _, parts := range []struct{ length, buckets int }{{1, 1}, {10, 3}, {500, 500}, {501, 500}, {999, 500}} {
		to := from.Add(time.Duration(parts.length) * time.Millisecond)
		bounds := store.BoundMillis(store.HistogramBounds(from, to, parts.buckets))
		if len(bounds) != parts.buckets+1 || bounds[0] != from.UnixMilli() || bounds[parts.buckets] != to.UnixMilli() {
			t.Errorf("bounds of %+v are %v", parts, bounds)
		}
		for i := range parts.buckets {
			if bounds[i] >= bounds[i+1] {
				t.Errorf("bounds of %+v do not increase at %d", parts, i)
			}
		}
	}
}

func TestTimesAreRoundedUpToAMillisecond(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Hour: 0, -1: 0, 0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2,
		time.Hour: 3_600_000, store.MaxDelay: store.MaxDelay.Milliseconds(),
	} {
		if got := store.Millis(d); got != want {
			t.Errorf("Millis(%v) = %d, want %d", d, got, want)
		}
	}
	for ns, want := range map[int64]int64{0: 0, 1: 1, 999_999: 1, 1_000_000: 1, 1_000_001: 2} {
		if got := store.UnixMillis(time.Unix(0, ns)); got != want {
			t.Errorf("UnixMillis of %d ns after 1970 = %d, want %d", ns, got, want)
		}
	}
	if !store.Time(0).IsZero() || store.Time(5).UnixMilli() != 5 {
		t.Error("Time is not the inverse of UnixMillis")
	}
}

func FuzzUnixMillisIsNeverEarly(f *testing.F) {
	f.Add(int64(0), int64(1))
	f.Fuzz(func(t *testing.T, sec, nsec int64) {
		at := time.Unix(sec%math.MaxInt32, nsec)
		if late := time.UnixMilli(store.UnixMillis(at)).Sub(at); late < 0 || late >= time.Millisecond {
			t.Errorf("UnixMillis(%v) is off by %v", at, late)
		}
	})
}

func FuzzCutReason(f *testing.F) {
	for _, s := range []string{
		"", "short", strings.Repeat("x", store.MaxReason+1), strings.Repeat("é", store.MaxReason),
		"a" + strings.Repeat("日", store.MaxReason), strings.Repeat("a\xff", store.MaxReason),
		strings.Repeat("\x80", store.MaxReason+1),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := store.CutReason(s)
		if len(got) > store.MaxReason {
			t.Errorf("the reason has %d bytes, more than %d", len(got), store.MaxReason)
		}
		if !utf8.ValidString(got) {
			t.Error("the reason is not UTF-8")
		}
		if utf8.ValidString(s) {
			if !strings.HasPrefix(s, got) {
				t.Error("the reason is not a prefix of the text")
			}
			if len(s) <= store.MaxReason && got != s {
				t.Error("a reason within the limit was changed")
			}
			if len(s) > store.MaxReason && len(got) <= store.MaxReason-utf8.UTFMax {
				t.Errorf("a text of %d bytes was cut to %d: too much", len(s), len(got))
			}
		}
	})
}

func FuzzChecksAgreeWithUTF8(f *testing.F) {
	f.Add("queue")
	f.Add("\xc3")
	f.Fuzz(func(t *testing.T, s string) {
		bad := !utf8.ValidString(s) || strings.ContainsAny(s, "{}\x00\n\x7f") || s == "" || len(s) > store.MaxQueueName
		if bad && store.CheckQueue(s) == nil {
			t.Errorf("queue name %q is accepted", s)
		}
		queueErr := store.CheckQueue(strings.NewReplacer("{", "(", "}", ")").Replace(s))
		if err := store.CheckID(s); (err == nil) != (queueErr == nil) {
			t.Errorf("id %q: %v, unlike the same queue name without braces", s, err)
		}
	})
}

func TestActionsHaveNames(t *testing.T) {
	for action, want := range map[store.Action]string{
		store.Ack: "ack", store.Nack: "nack", store.Snooze: "snooze", store.Release: "release", store.Bury: "bury",
		0: "action 0", 9: "action 9",
	} {
		if got := action.String(); got != want {
			t.Errorf("action %d is %q, want %q", uint8(action), got, want)
		}
	}
}

func TestPropertiesHaveLimits(t *testing.T) {
	many := func(n int) map[string]string {
		set := map[string]string{}
		for i := range n {
			set[fmt.Sprint(i)] = "v"
		}
		return set
	}
	for _, c := range []struct {
		name  string
		set   map[string]string
		kind  error
		words []string
	}{
		{"one", map[string]string{"a": "1"}, nil, nil},
		{"removal", map[string]string{"a": ""}, nil, nil},
		{"any characters in a value", map[string]string{"größe": "a\nb\x00 é"}, nil, nil},
		{"longest", map[string]string{strings.Repeat("n", 256): strings.Repeat("v", 4096)}, nil, nil},
		{"most", many(store.MaxBatch), nil, nil},
		{"nil", nil, store.ErrInvalid, []string{"no properties", "1 to 500"}},
		{"none", many(0), store.ErrInvalid, []string{"no properties", "1 to 500"}},
		{"too many", many(501), store.ErrTooLarge, []string{"501 properties", "500", "several"}},
		{"empty name", map[string]string{"": "1"}, store.ErrInvalid, []string{"property name", "empty", "256"}},
		{"long name", map[string]string{strings.Repeat("n", 257): "1"}, store.ErrInvalid,
			[]string{"property name", "257", "256"}},
		{"control character in a name", map[string]string{"a\tb": "1"}, store.ErrInvalid,
			[]string{"property name", "control character"}},
		{"name not UTF-8", map[string]string{"\xff": ""}, store.ErrInvalid, []string{"property name", "UTF-8"}},
		{"long value", map[string]string{"a": strings.Repeat("v", 4097)}, store.ErrTooLarge,
			[]string{`property "a"`, "4097", "4096"}},
		{"value not UTF-8", map[string]string{"a": "\xff"}, store.ErrInvalid, []string{`property "a"`, "UTF-8"}},
	} {
		checkError(t, c.name, store.CheckProperties(c.set), c.kind, c.words...)
	}
	checkError(t, "number", store.CheckPropertyCount(store.MaxProperties), nil)
	checkError(t, "number", store.CheckPropertyCount(store.MaxProperties+1), store.ErrTooLarge, "1001 properties",
		"1000", "remove")
}
