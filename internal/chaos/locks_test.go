//go:build unix

package chaos

import (
	"fmt"
	"testing"
	"time"
)

// lockedID is the id of a message with a lock key, like all messages of the tests of locks.
func lockedID(t *testing.T, key string, n int) string {
	t.Helper()
	for i := 0; ; i++ {
		if id := fmt.Sprint("m", i); lockKey(id) == key {
			if n--; n < 0 {
				return id
			}
		}
	}
}

func TestCheckerFindsBrokenLocks(t *testing.T) {
	const key = "key7"
	a, b := lockedID(t, key, 0), lockedID(t, key, 1)
	ttl := int(lockTTL.Microseconds())
	// at returns a time in µs that is some ms after 10 s.
	at := func(ms int) int { return 10_000_000 + ms*1000 }
	take := func(ms int) string { return fmt.Sprintf("l %d - %d take %s o ok\n", at(ms)+100, at(ms), key) }
	extend := func(ms int, outcome string) string {
		return fmt.Sprintf("l %d - %d extend %s o %s\n", at(ms)+100, at(ms), key, outcome)
	}
	begin := func(ms int, id string) string { return fmt.Sprintf("i %d %s %s 1\n", at(ms)+200, id, key) }
	end := func(ms int, id, outcome string) string {
		return fmt.Sprintf("I %d %s %s 1 %s\n", at(ms), id, key, outcome)
	}
	told := func(ms int, id string) string { return fmt.Sprintf("j %d %s %s 1\n", at(ms), id, key) }
	claim := func(ms int, id string) string {
		return fmt.Sprintf("c %d %s %d %d %d L%s q 1000 1 10\n", at(ms), id, at(ms)-50, at(ms)-20, 90_000, id)
	}
	ack := func(ms int, id string) string {
		return fmt.Sprintf("x %d %s L%s ack 0\nX %d %s L%s ok\n", at(ms), id, id, at(ms)+100, id, id)
	}
	const worker, ended = "b 1 - worker 1\n", "z 99000000 -\n"
	until := ttl / 1000 // ms after a call at 0
	for name, c := range map[string]struct {
		first, second, run string
		want               string
	}{
		"one after the other": {
			take(0) + begin(0, a) + end(500, a, "ok"), take(500) + begin(501, b) + end(600, b, "ok"), "", "",
		},
		"two at a time": {
			take(0) + begin(0, a) + end(800, a, "ok"), take(500) + begin(500, b) + end(600, b, "ok"), "", "two-in-lock",
		},
		"two at a time, after an extension": {
			take(0) + begin(0, a) + extend(300, "ok") + end(1200, a, "ok"),
			take(until+100) + begin(until+100, b) + end(until+150, b, "ok"), "", "two-in-lock",
		},
		"after an extension that failed": {
			take(0) + begin(0, a) + extend(300, "failed") + told(until, a) + end(until+200, a, "lease_lost"),
			take(until+100) + begin(until+100, b) + end(until+150, b, "ok"), "", "",
		},
		"a holder that died": {
			take(0) + begin(0, a), take(500) + begin(500, b) + end(600, b, "ok"),
			fmt.Sprintf("! %d - kill first.1\n", at(400)), "",
		},
		"beside a holder that dies later": {
			take(0) + begin(0, a), take(500) + begin(500, b) + end(600, b, "ok"),
			fmt.Sprintf("! %d - kill first.1\n", at(700)), "two-in-lock",
		},
		"an expired holder that is not told": {take(0) + begin(0, a) + end(until+2000, a, "ok"), "", "", "untold"},
		"an expired holder that is told late": {
			take(0) + begin(0, a) + told(until+1900, a) + end(until+2000, a, "lease_lost"), "", "", "untold",
		},
		"an expired holder that did not run": {
			take(0) + begin(0, a) + end(until+2000, a, "ok") + fmt.Sprintf("g %d - %d\n", at(until+1900), at(10)), "",
			"", "",
		},
		"told without reason": {
			take(0) + begin(0, a) + told(100, a) + end(200, a, "lease_lost"), "", "", "false-loss",
		},
		"told, although it was extended": {
			take(0) + begin(0, a) + extend(until-100, "ok") + told(until, a) + end(until+10, a, "lease_lost"), "", "",
			"false-loss",
		},
		"told, extended too late": {
			take(0) + begin(0, a) + fmt.Sprintf("l %d - %d extend %s o ok\n", at(until)-10, at(until-500), key) +
				told(until, a) + end(until+10, a, "lease_lost"), "", "", "",
		},
		"told because the extension was refused": {
			take(0) + begin(0, a) + extend(50, "lease_lost") + told(100, a) + end(200, a, "lease_lost"), "", "", "",
		},
		"acked under the lock": {claim(-10, a) + take(0) + begin(0, a) + end(100, a, "ok") + ack(101, a), "", "", ""},
		"acked without the lock": {
			claim(-10, a) + ack(101, a), take(0) + begin(0, b) + end(100, b, "ok"), "", "unlocked",
		},
		"acked after the loss": {
			claim(-10, a) + take(0) + begin(0, a) + extend(50, "lease_lost") + end(100, a, "lease_lost") + ack(101, a),
			"", "",
			"lost-acked",
		},
		"the key of a dead holder does not go on": {
			take(0) + begin(0, a), claim(40_000, b), fmt.Sprintf("! %d - kill first.1\n", at(400)), "no-progress",
		},
		"the key of a dead holder goes on late": {
			take(0) + begin(0, a), take(40_000) + begin(40_000, b) + end(40_001, b, "ok"),
			fmt.Sprintf("! %d - kill first.1\n", at(400)), "no-progress",
		},
		"the key of a dead holder goes on": {
			take(0) + begin(0, a), take(2000) + begin(2000, b) + end(2001, b, "ok") + claim(40_000, b),
			fmt.Sprintf("! %d - kill first.1\n", at(400)), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := history{"run": c.run, "first.1": worker + c.first + ended, "second.1": worker + c.second + ended}
			wantViolations(t, h, nil, c.want)
		})
	}
}

// TestLocksExpireBeforeLeases checks an assumption of the fault locks.
func TestLocksExpireBeforeLeases(t *testing.T) {
	f, err := findFault("locks")
	if err != nil || lockTTL >= f.load.lease || f.load.lease > 10*time.Second {
		t.Errorf("locks last %v and leases %v: %v", lockTTL, f.load.lease, err)
	}
}
