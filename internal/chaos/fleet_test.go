//go:build unix

package chaos

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheckerFindsWorkersThatDoNotObeyOnce(t *testing.T) {
	const (
		tell     = "! 1000000 - tell 1 restart worker.1\n"
		answered = tell + "! 1100000 - tell-ended 1 -\n"
		silent   = tell + "! 1100000 - tell-ended 1 worker.1=does,-\n"
		obeys    = "b 1 - worker 1\na 1050000 - restart\n"
		restarts = "n 1200000 - restart\nz 1300000 -\n"
		stops    = "n 9000000 - stopped\nz 9000000 -\n"
		lives    = "n 99000000 - stopped\nz 99000000 -\n"
	)
	pause := strings.ReplaceAll(answered, "restart", "pause") +
		"! 5000000 - tell 2 resume worker.1\n! 5100000 - tell-ended 2 -\n"
	const (
		paused = "b 1 - worker 1\na 1050000 - pause\na 5050000 - resume\n"
		claim  = "c %d m %d %d 99002 A q 900 1 10\n"
	)
	claimAt := func(at int64) string { return fmt.Sprintf(claim, at+100, at, at+50) }
	const begins = "b 1 - worker 1\n"
	for name, c := range map[string]struct{ run, worker, next, want string }{
		"once":       {answered, obeys + restarts, "", ""},
		"twice":      {answered, obeys + "a 1060000 - restart\n" + restarts, "", "untold-obeyed"},
		"not at all": {answered, begins + stops, "", "disobeyed"},
		"not at all, killed meanwhile": {
			answered + "! 1050000 - kill worker.1\n", begins + "n 1 - x\n", "", "",
		},
		"not at all, killed later": {
			answered + "! 1150000 - kill worker.1\n", begins + "n 9000000 - x\n", "", "disobeyed",
		},
		"something else": {answered, strings.Replace(obeys, "restart", "pause", 1) + stops, "",
			"disobeyed untold-obeyed"},
		"before it was told": {
			answered, strings.Replace(obeys, "1050000", "990000", 1) + restarts, "", "disobeyed untold-obeyed",
		},
		"its next generation": {
			answered, obeys + restarts, "b 2 - worker 2\na 1400000 - restart\nn 1500000 - restart\n", "untold-obeyed",
		},
		"and does not answer":     {silent, obeys + restarts, "", ""},
		"no answer, ends soon":    {silent, begins + stops, "", ""},
		"no answer, and lives on": {silent, begins + lives, "", "disobeyed"},
		"and does not end":        {answered, obeys + stops, "", "stayed"},
		"and never ends":          {answered, obeys, "", "stayed"},
		"and drains instead":      {answered, obeys + "n 1200000 - drain\n", "", "untold-obeyed"},
		"ends without a command":  {"", begins + restarts, "", "untold-obeyed"},
		"a command that failed, then another": {
			strings.ReplaceAll(tell+"! 1010000 - tell-ended 1 worker.1=failed,-\n", "! 1000000 - tell 1",
				"! 900000 - tell 1") +
				strings.ReplaceAll(answered, " 1 ", " 2 "), obeys + restarts, "", "",
		},
		"a pause":                 {pause, paused + stops, "", ""},
		"claims before its pause": {pause, paused + claimAt(1_040_000) + stops, "", ""},
		"claims in its pause":     {pause, paused + claimAt(4_000_000) + stops, "", "paused"},
		"claims after its pause":  {pause, paused + claimAt(5_060_000) + stops, "", ""},
		"a claim in flight":       {pause, paused + claimAt(1_900_000) + stops, "", ""},
		"claims when it runs late": {
			pause, paused + "g 3900000 - 1040000\n" + claimAt(4_000_000) + stops, "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := wantViolations(t, history{"run": c.run, "worker.1": c.worker, "worker.2": c.next}, nil, c.want)
			if c.run != "" && r.Told == 0 {
				t.Error("no command was counted")
			}
		})
	}
}
