//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/laterq/later"
)

func TestCheckerFindsMistakesOfGroups(t *testing.T) {
	const (
		sent      = "y 1000000 m g\ns 1000000 m m +0 -\nS 1000100 m ok\n"
		ended     = "k 1000200 m\nK 1000300 m group\n"
		cancelled = ended + "U 1000300 - g cancel 1000200 0 ok 1 0\n"
		failed    = ended + "U 1000300 - g cancel 1000200 0 unavailable 0 0\n"
		before    = "U 999000 - g cancel 998000 0 ok 0 0\n"
		claimed   = "c 1001000 m 1000900 1000950 1002 A q 1000 1 10\n"
		early     = "c 1000180 m 1000150 1000170 1002 A q 1000 1 10\nx 1000185 m A ack 0\nX 1000190 m A ok\n"
		far       = "y 1000000 m g\ns 1000000 m m +14400000 f\nS 1000100 m ok\n"
		moved     = "m 1000200 m +500\nM 1000300 m group\nU 1000300 - g reschedule 1000200 500 ok 1 0\n"
		delivered = "c 1600000 m 1599000 1599500 3000 A q 1500 1 10\nx 1600100 m A ack 0\nX 1600200 m A ok\n"
		unseen    = "q 1510000 - 1505000 q unavailable\n"
		again     = "c 9600000 m 9599000 9599500 12000 B q 9510 2 10\nx 9600100 m B ack 0\nX 9600200 m B ok\n"
		wrongly   = "c 1600000 m 1599000 1599500 3000 A q 1400 1 10\nx 1600100 m A ack 0\nX 1600200 m A ok\n"
	)
	info := func(state later.State, due int64) *later.Info {
		return &later.Info{State: state, Due: time.UnixMilli(due)}
	}
	for name, c := range map[string]struct {
		journal string
		left    *later.Info
		want    string // kinds of violations
	}{
		"cancelled":                {sent + cancelled, nil, ""},
		"left after its cancel":    {sent + cancelled, info(later.StateDead, 1000), "uncancelled"},
		"claimed after its cancel": {sent + cancelled + claimed, nil, "uncancelled"},
		"acked before its cancel":  {sent + early + "U 1000300 - g cancel 1000200 0 ok 0 0\n", nil, ""},
		"acked, and counted":       {sent + early + cancelled, nil, "miscounted"},
		"cancelled, and not counted": {sent + "U 1000300 - g cancel 1000200 0 ok 0 0\n", nil,
			"lost miscounted"},
		"counted twice": {sent + ended + "U 1000300 - g cancel 1000200 0 ok 2 0\n", nil,
			"miscounted"},
		"left after a cancel that failed":     {sent + failed, info(later.StateDead, 1000), ""},
		"sent after the cancel":               {before + sent, info(later.StateDead, 1000), ""},
		"rescheduled":                         {far + moved, info(later.StateScheduled, 1500), ""},
		"rescheduled and delivered":           {far + moved + delivered, nil, ""},
		"left where it was":                   {far + moved, info(later.StateScheduled, 15400), "unmoved"},
		"delivered before it was rescheduled": {far + moved + wrongly, nil, "unmoved"},
		"delivered again, the first unseen":   {far + moved + unseen + again, nil, ""},
		"rescheduled and gone":                {far + moved, nil, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			left := map[string]*later.Info{}
			if c.left != nil {
				left["m"] = c.left
			}
			wantViolations(t, history{"actor": c.journal}, left, c.want)
		})
	}
}
