//go:build unix

package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
)

// sentOK is the send of a message due at once, at 1 s. All times are in µs.
const sentOK = "s 1000000 m k-0-1 +0 -\nS 1000100 m ok\n"

// TestCheckerFindsViolations checks journals with one broken guarantee each.
func TestCheckerFindsViolations(t *testing.T) {
	const (
		first  = "c 1001000 m 1000900 1000950 1002 A q 1000 1 10\n" // held until 1.002 s
		acked  = "x 1001100 m A ack 0\nX 1001200 m A ok\n"
		again  = "s 1000000 m k-0-1 +0 -\nS 1000100 m unavailable\ns 1000200 m k-0-1 +0 "
		nacked = "x 1001100 m A nack 0\nX 1001200 m A ok\n"
	)
	const (
		// second is a claim after the first lease, and overlap one during it. Both are acked.
		second  = "c 1003000 m 1002900 1002950 1004 B q 1000 2 10\nx 1003100 m B ack 0\nX 1003200 m B ok\n"
		overlap = "c 1001900 m 1001800 1001850 1003 B q 1000 2 10\nx 1001950 m B ack 0\nX 1001960 m B ok\n"
		sentFar = "s 1000000 m k-0-1 +100000 f\nS 1000100 m ok\n"
		cancel  = "k 1001010 m\nK 1001050 m leased\n"
		worker  = "b 1 - worker\nz 2000000 -\n"
	)
	const (
		ending = "z 2000000 -\n"
		later3 = "c 1010000 m 1009900 1009950 1011 B q 1000 3 10\nx 1010100 m B ack 0\nX 1010200 m B ok\n"
		heldOn = "x 1003600 m A ack 0\nX 1003700 m A unavailable\n"
	)
	onlyAttempt := &later.Info{State: later.StateDead, DeadReason: later.DeadLeaseExpired, Attempts: 1}
	onlyAttempt.MaxAttempts = 1
	expired := &later.Info{State: later.StateDead, DeadReason: later.DeadExpired}
	dead := &later.Info{State: later.StateDead, DeadReason: later.DeadFailed, Attempts: 1}
	dead.MaxAttempts = 20
	waits := &later.Info{State: later.StateScheduled}
	for name, c := range map[string]struct {
		journal string
		left    *later.Info
		want    string // the kinds of violations
	}{
		"nothing":                {sentOK + first + acked, nil, ""},
		"still there":            {sentOK, waits, ""},
		"cancelled":              {sentOK + "k 1001000 m\nK 1001001 m scheduled\n", nil, ""},
		"ack without an answer":  {sentOK + first + "x 1001100 m A ack 0\n", nil, ""},
		"lost":                   {sentOK, nil, "lost"},
		"lost after a nack":      {sentOK + first + nacked, nil, "lost"},
		"a torn line is ignored": {sentOK + first + "x 1001100 m A ack 0", nil, "lost"},
		"not acknowledged":       {"s 1000000 m k-0-1 +0 -\nS 1000100 m unavailable\n", nil, ""},
		"before its due time": {
			sentOK + "c 1001000 m 1000900 1000950 1002 A q 1001 1 10\n" + acked,
			nil, "early",
		},
		"before its sender's time": {"s 1000000 m k-0-1 +5 -\nS 1000100 m ok\n" + first + acked, nil, "early"},
		"before the delay of a nack": {
			sentOK + first + "x 1001100 m A nack 100000\nX 1001200 m A ok\n" +
				"c 1003000 m 1002900 1002950 1004 B q 1001 2 10\nx 1003100 m B ack 0\nX 1003200 m B ok\n",
			nil, "early",
		},
		"while it was held": {sentOK + first + overlap, nil, "two-holders"},
		"a late ack is accepted": {
			sentOK + first + "c 1003000 m 1002900 1002950 1004 B q 1000 2 10\nx 1003100 m A ack 0\n" +
				"X 1003200 m A ok\n",
			nil, "two-holders",
		},
		"while it was held longer": {sentOK + first + "e 1001500 - 1001400 A 1008\n" + second, nil, "two-holders"},
		"after its lease":          {sentOK + first + second, nil, ""},
		"attempts shrink": {
			sentOK + first + "c 1003000 m 1002900 1002950 1004 B q 1000 1 10\nx 1003100 m B ack 0\n" +
				"X 1003200 m B ok\n",
			nil, "attempts",
		},
		"after its ack": {sentOK + first + acked + second, nil, "doubled"},
		"after its ack, sent once": {
			"s 1000000 m k-0-1 +0 -\n" + first + acked + second + "S 1004000 m ok\n",
			nil, "doubled",
		},
		"after its ack, but resent": {
			again + "-\n" + first + acked + "c 1003000 m 1002900 1002950 1004 B q 1000 1 10\n" +
				"x 1003100 m B ack 0\nX 1003200 m B ok\nS 1004000 m ok\n",
			nil, "",
		},
		"resent, with a dedup window": {
			strings.ReplaceAll(again, "+0 -", "+0 r") + "r\n" + first + acked +
				"c 1003000 m 1002900 1002950 1004 B q 1000 1 10\nx 1003100 m B ack 0\nX 1003200 m B ok\n" +
				"S 1004000 m ok\n",
			nil, "doubled",
		},
		"still there after its ack":    {sentOK + first + acked, waits, "doubled"},
		"still there after its cancel": {sentOK + "k 1000200 m\nK 1000300 m scheduled\n", waits, "cancelled"},
		"resent while it was held":     {again + "-\nS 1001010 m ok\n" + first + overlap, nil, "two-holders"},
		"more attempts than leases": {
			sentOK + first + "c 1003000 m 1002900 1002950 1004 B q 1000 4 10\nx 1003100 m B ack 0\n" +
				"X 1003200 m B ok\n",
			nil, "attempts unseen",
		},
		"a second attempt comes first": {
			sentOK + strings.Replace(first, "1000 1 10", "1000 2 10", 1) + acked,
			nil, "attempts unseen",
		},
		"before it was answered": {
			sentOK + strings.Replace(first, "1000950 1002", "1001950 1003", 1) + acked,
			nil, "clock",
		},
		"for less than was asked": {sentOK + strings.Replace(first, "1002 A", "1001 A", 1) + acked, nil, "lease"},
		"refused while it was held": {
			sentOK + first + "x 1001100 m A ack 0\nX 1001200 m A lease_lost\n" + second,
			nil, "refused",
		},
		"acked after its cancel": {sentOK + first + cancel + "x 1001100 m A ack 0\nX 1001200 m A ok\n", nil, "late"},
		"refused after its cancel": {
			sentOK + first + cancel + "x 1001100 m A ack 0\nX 1001200 m A lease_lost\n",
			nil, "",
		},
		"acked twice, cancelled before": {sentOK + first + cancel + "x 1001100 m A ack 0\nX 1009100 m A ok\n",
			nil, "late"},
		"nacked twice, and cancelled": {sentOK + first + cancel + "x 1001100 m A nack 0\nX 1009100 m A ok\n", nil,
			""},
		"rescheduled":               {sentFar + "m 1000200 m +0\nM 1000300 m ok\n" + first + acked, nil, ""},
		"rescheduled, and repeated": {sentFar + "m 1000200 m +0\nM 1009300 m leased\n" + first + acked, nil, ""},
		"its new time was refused": {sentFar + "m 1000200 m +0\nM 1000300 m leased\n" + first + acked,
			nil, "early"},
		"before its new time": {sentFar + "m 1000200 m +50\nM 1000300 m ok\n" + first + acked, nil, "early"},
		"rescheduled after its nack": {
			sentFar + "m 1000200 m +0\n" + first + "x 1001100 m A nack 100000\nX 1001200 m A ok\n" +
				"M 1001300 m ok\nc 1003000 m 1002900 1002950 1004 B q 1001 2 10\nx 1003100 m B ack 0\n" +
				"X 1003200 m B ok\n",
			nil, "",
		},
		"acked after its lease": {ending + sentOK + first + "x 1002100 m A ack 0\nX 1002200 m A ok\n", nil, "late"},
		"extended after its lease": {
			ending + sentOK + first + "e 1002300 - 1002200 A 1004\nx 1002400 m A ack 0\nX 1002500 m A ok\n",
			nil, "late",
		},
		"refused, and acked after its lease": {
			ending + sentOK + first + "e 1001600 - 1001500 A lease_lost\nx 1002100 m A ack 0\nX 1002200 m A ok\n", nil, "late"},
		"extended, and refused when repeated after the ack": {
			ending + sentOK + first + "x 1002100 m A ack 0\nX 1002200 m A ok\ne 1005500 - 1001500 A lease_lost\n", nil, ""},
		"perhaps extended": {
			ending + sentOK + first + "e 1002300 - 1001200 A unavailable\nx 1002400 m A ack 0\n" +
				"X 1002500 m A ok\n",
			nil, "",
		},
		"after its cancel": {
			sentOK + "k 1000200 m\nK 1000300 m scheduled\n" + first + acked,
			nil, "cancelled",
		},
		"damaged":    {sentOK + first + "h 1001050 m 1 - 0\n" + acked, nil, "damaged"},
		"never sent": {"z 2000000 -\n" + first + "h 1001050 m 1 actor-0-1 1\n" + acked, nil, "unknown"},
		"a first send is a duplicate": {
			"s 1000000 m k-0-1 +0 -\nS 1000100 m duplicate\n" + first + acked,
			nil, "duplicate",
		},
		"accepted twice": {
			sentOK + "s 1000200 m k-0-1 +0 -\nS 1000300 m ok\n" + first + acked,
			nil, "duplicate",
		},
		"refused the second time": {
			sentOK + "s 1000200 m k-0-1 +0 -\nS 1000300 m duplicate\n" + first + acked,
			nil, "",
		},
		"dead too soon":      {sentOK + first + nacked, dead, "dead"},
		"a claim nobody saw": {sentOK + first + later3, nil, "unseen"},
		"a claim failed": {
			sentOK + first + "q 1004500 - 1004000 q unavailable\n" + later3, nil, "",
		},
		"a claim failed that began late in its millisecond": {
			sentOK + first + "q 1008500 - 1007980 q unavailable\n" + later3, nil, "",
		},
		"a claim failed a millisecond too late": {
			sentOK + first + "q 1008500 - 1008000 q unavailable\n" + later3, nil, "unseen",
		},
		"a claim of another queue failed": {
			sentOK + first + "q 1004500 - 1004000 other unavailable\n" + later3, nil, "unseen",
		},
		"a claim failed too late": {
			sentOK + first + "q 1009500 - 1009000 q unavailable\n" + later3, nil, "unseen",
		},
		"a consumer died":          {sentOK + first + "! 1004500 - kill actor.1\n" + later3, nil, ""},
		"dead without a delivery":  {sentOK + worker, onlyAttempt, "unseen"},
		"dead, and a claim failed": {sentOK + "q 1001000 - 1000500 q context\n" + worker, onlyAttempt, ""},
		"dead with fewer attempts than deliveries": {
			sentOK + strings.Replace(first, "1 10", "3 10", 1) + nacked + worker +
				"! 1000001 - kill a\n! 1000002 - kill b\n",
			onlyAttempt, "attempts",
		},
		"replayed": {
			sentOK + first + nacked + "d 1002000 m 1\nr 1002100 m\nR 1002200 m ok\n" +
				strings.Replace(second, "2 10", "1 10", 1), nil, "",
		},
		"replayed in the microsecond in which it was found": {
			sentOK + first + nacked + "d 1002100 m 1\nr 1002100 m\nR 1002200 m ok\n" +
				strings.Replace(second, "2 10", "1 10", 1), nil, "",
		},
		"not replayed": {
			sentOK + first + nacked + "d 1002000 m 1\nr 1002100 m\nR 1002200 m not_found\n" +
				strings.Replace(second, "2 10", "1 10", 1), nil, "attempts",
		},
		"replayed with its attempts": {
			sentOK + first + nacked + "r 1002100 m\nR 1002200 m ok\n" + second, nil, "unseen",
		},
		"expired":                   {strings.Replace(sentOK, "+0 -", "+0 x", 1), expired, ""},
		"expired without an expiry": {sentOK, expired, "dead"},
		"extended once": {worker + sentOK + first + "e 1001600 - 1001500 A 1003\n" + heldOn, nil,
			"heartbeat"},
		"extended twice": {
			worker + sentOK + first + "e 1001600 - 1001500 A 1003\ne 1002600 - 1002500 A 1004\n" + heldOn, nil, "",
		},
		"extended once and stopped": {
			worker + "g 1003000 - 1002000\n" + sentOK + first + "e 1001600 - 1001500 A 1003\n" + heldOn, nil, "",
		},
		"extended once, then failed": {
			worker + sentOK + first + "e 1001600 - 1001500 A 1003\ne 1002900 - 1002500 A unavailable\n" + heldOn, nil,
			"",
		},
		"loss not reported": {worker + sentOK + first + second, nil, "unreported"},
		"loss reported":     {worker + sentOK + first + "L 1002000 m 1 lease_lost\n" + second, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			result := verifyJournal(t, c.journal, c.left)
			var kinds []string
			for _, v := range result.Violations {
				kinds = append(kinds, v.Kind)
				if v.ID != "m" || !strings.Contains(v.History, "claims attempt") &&
					strings.Contains(c.journal, "\nc ") {
					t.Errorf("violation without the history of the message: %+v", v)
				}
			}
			if got := strings.Join(slices.Compact(kinds), " "); got != c.want {
				t.Errorf("found %q; want %q", got, c.want)
			}
		})
	}
}

// verifyJournal checks one journal of an actor called actor.
func verifyJournal(t *testing.T, text string, left *later.Info) *Result {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "actor"+journalSuffix), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &run{dir: dir, result: &Result{}, lease: 2 * time.Millisecond}
	infos := map[string]*later.Info{}
	if left != nil {
		infos["m"] = left
	}
	if err := r.verify(infos); err != nil {
		t.Fatal(err)
	}
	return r.result
}

func TestCheckerSteppedClockExcusesNoDeliveryBeforeDueTime(t *testing.T) {
	dir := t.TempDir()
	text := "s 1000000 m k-0-1 +3600000 f\nS 1000100 m ok\n" +
		"c 1001000 m 1000900 1000950 1002 A q 3601000 1 10\nx 1001100 m A ack 0\nX 1001200 m A ok\n"
	if err := os.WriteFile(filepath.Join(dir, "actor"+journalSuffix), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &run{dir: dir, result: &Result{}, slack: 2 * time.Hour}
	if err := r.verify(nil); err != nil || r.result.Early != 1 {
		t.Errorf("got %d early deliveries, %v", r.result.Early, err)
	}
}

func TestCheckerRedeliveryTimeExcludesUnrecordedLeases(t *testing.T) {
	for attempt, want := range map[int]int64{2: 3500, 3: 1500} { // a lease is 2 ms
		result := verifyJournal(t, sentOK+"c 1001000 m 1000900 1000950 1002 A q 1000 1 10\n! 1001500 - kill actor\n"+
			fmt.Sprintf("c 1005100 m 1005000 1005000 1007 B q 1000 %d 10\n"+
				"x 1005200 m B ack 0\nX 1005300 m B ok\n", attempt), nil)
		if got := result.AfterDeath.micros; got != want || len(result.Violations) > 0 {
			t.Errorf("attempt %d came %d µs after the death, want %d; %v", attempt, got, want, result.Violations)
		}
	}
}

func TestCheckerRedeliveryTimeCountsFromTheLastFault(t *testing.T) {
	const (
		claim = sentOK + "c 1001000 m 1000900 1000950 1002 A q 1000 1 10\n! 1001500 - kill actor\n"
		again = "c 1005100 m 1005000 1005000 1007 B q 1000 2 10\nx 1005200 m B ack 0\nX 1005300 m B ok\n"
	)
	for fault, want := range map[string]int64{
		"! 1003000 - half-open\n":                              2000,
		"! 1003000 - stop other\n! 1004000 - continue other\n": 1000,
		"! 1003000 - server-kill\n! 1004900 - serves 0 -\n":    100,
		"! 1003000 - stop actor\n":                             3500, // the same consumer
		"! 1003000 - kill other\n":                             3500,
		"! 1005050 - half-open\n":                              3500, // too late
	} {
		result := verifyJournal(t, claim+fault+again, nil)
		if got := result.AfterDeath.micros; got != want || len(result.Violations) > 0 {
			t.Errorf("after %q: %d µs, want %d; %v", fault, got, want, result.Violations)
		}
	}
}

func TestCheckerPermitsAndCountsUndoneWrites(t *testing.T) {
	dir := t.TempDir()
	text := sentOK + strings.ReplaceAll(sentOK, " m ", " after ") +
		strings.ReplaceAll(strings.ReplaceAll(sentOK, " m ", " durable "), "+0 -", "+0 d")
	text = strings.ReplaceAll(text, "s 1000000 after", "s 1900000 after")
	text = strings.ReplaceAll(text, "S 1000100 after", "S 1900100 after")
	if err := os.WriteFile(filepath.Join(dir, "actor"+journalSuffix), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &run{dir: dir, result: &Result{}, windows: []window{{from: 900_000, to: 1_500_000}}}
	if err := r.verify(map[string]*later.Info{}); err != nil {
		t.Fatal(err)
	}
	if r.result.LostPermitted != 1 || r.result.Lost != 2 {
		t.Errorf("%d lost as permitted, %d in violation; want 1 and 2", r.result.LostPermitted, r.result.Lost)
	}
}

func TestCheckerFindsOversizedClaim(t *testing.T) {
	var text strings.Builder
	for i := range 11 {
		fmt.Fprintf(&text, "c 1001000 m%d 1000900 1000950 1002 A q 1000 1 500000\n", i)
	}
	result := verifyJournal(t, text.String(), nil)
	if len(result.Violations) != 1 || result.Violations[0].Kind != "heavy" {
		t.Errorf("found %+v; want one heavy claim", result.Violations)
	}
}

func TestResultRoundTrips(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	old := "before\n" + beginMark + "\nwritten before\n" + endMark + "\nafter\n"
	if err := os.WriteFile(page, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Result{Command: "the command", Fault: "locks", Seed: 7, Sent: 100, Lost: 1, Stall: Longest{1_500_000, 3},
		LocksHeld: 4321, LockFreed: Longest{1_250_000, 1}}
	r.violate("lost", "m", "is nowhere")
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	results, err := Read(strings.NewReader(string(line) + "\n" + string(line)))
	if err != nil || len(results) != 2 {
		t.Fatalf("read %d results of 2: %v", len(results), err)
	}
	if err := Report(page, results[:1]); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"before\n", "seeds 7 to 7", "`the command`", "| 1 | 100 | 1 |", "1.50", "| 4321 |", "| 1.25 |",
		"1 runs broke a promise", "\nafter\n",
	} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the page lacks %q:\n%s", part, text)
		}
	}
	if strings.Contains(string(text), "written before") {
		t.Error("the old results are still there")
	}
}
