//go:build unix

package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// urgencyJournal has the records of messages with an urgency. Times are in ms after 10 s.
type urgencyJournal struct{ flowJournal }

var urgencies = map[byte]string{'h': "high", 'n': "", 'l': "low"}

// send is a send that is answered 0.1 ms later.
func (j urgencyJournal) send(ms float64, id, key, urgency, outcome string) string {
	return fmt.Sprintf("s %d %s %s +0 - %s 0 0 %s q\nS %[7]d %[2]s %[6]s\n", j.at(ms), id, id, key, urgency, outcome,
		j.at(ms+0.1))
}

// of is a claim of messages with the classes in text, and their sends a second before.
func (j urgencyJournal) of(ms float64, key, text string) (all string) {
	for i := range text {
		id := fmt.Sprintf("m%v-%d", ms, i)
		all += j.send(-1000, id, key, urgencies[text[i]], "ok") + j.start(ms, id, key, urgencies[text[i]])
	}
	return all
}

// repeated is a claim that may have been executed from a time on.
func (j urgencyJournal) repeated(from, ms float64, text string) string {
	return strings.NewReplacer(fmt.Sprint(j.at(ms)-100), fmt.Sprint(j.at(from)-100),
		fmt.Sprint(j.at(ms)/1000+1000), fmt.Sprint(j.at(from)/1000+1000)).Replace(j.of(ms, "", text))
}

// start is a claim of a message that was due at 9 s, and its ack. Its lease has the name of the time.
func (j urgencyJournal) start(ms float64, id, key, urgency string) string {
	lease := fmt.Sprint("t", ms)
	return fmt.Sprintf("c %d %s %d %d %d %s q 9000 1 10 %s 0 %s\nx %d %s %s ack 0\nX %d %s %s ok\n", j.at(ms)+100, id,
		j.at(ms)-100, j.at(ms), (j.at(ms)+1_000_000)/1000, lease, key, urgency, j.at(ms)+200, id, lease, j.at(ms)+300,
		id, lease)
}

// row is a claim of a message each ms. The first three sort.
func (j urgencyJournal) row(from float64, text string) (all string) {
	for i := range text {
		all += j.of(from+float64(i), "", text[i:i+1])
	}
	return all
}

func (j urgencyJournal) urgent(key store.KeyFlow) string {
	return j.set(-1100, -1099, store.Flow{Urgency: true, Key: key})
}

func TestCheckerFindsUrgenciesWithoutTheirShare(t *testing.T) {
	var j urgencyJournal
	begin := j.urgent(store.KeyFlow{})
	h := func(n int) string { return strings.Repeat("h", n) }
	mixed := strings.Repeat("hhhhhhhn", 8)
	const share = "share"
	for name, c := range map[string]struct{ journal, want string }{
		"normal is the eighth":       {begin + j.row(0, "hhh"+h(7)+"n"), ""},
		"normal is the ninth":        {begin + j.row(0, "hhh"+h(8)+"n"), share},
		"normal is the ninth of two": {begin + j.row(0, "hhhl"+h(7)+"n"), share},
		"each eighth is normal":      {begin + j.row(0, "hhh"+mixed), ""},
		"normal was sent later": {
			begin + j.row(0, "hhh"+h(30)) + j.send(25, "n", "", "", "ok") + j.start(33, "n", "", ""), "",
		},
		"normal was not due": {
			begin + j.row(0, "hhh"+h(20)) + strings.Replace(j.of(23, "", "n"), "q 9000", "q 10020", 1), "",
		},
		"all others in one claim": {begin + j.row(0, "hhh") + j.of(3, "", h(8)) + j.row(4, "n"), share},
		"normal among others in one claim": {
			begin + j.row(0, "hhh") + j.of(3, "", h(7)+"n"+h(7)) + j.row(4, "n"), "",
		},
		"normal among too many others": {
			begin + j.row(0, "hhh") + j.of(3, "", h(8)+"n"+h(7)) + j.row(4, "n"), share,
		},
		"normal in a claim at an unknown time": {
			begin + j.row(0, "hhh"+h(8)) + j.repeated(4, 11.5, "n") +
				j.row(12, h(4)+"n"), "",
		},
		"a claim failed": {
			begin + j.row(0, "hhh"+h(20)+"n") + fmt.Sprintf("q %d - %d q unavailable\n", j.at(9.5), j.at(9.4)), "",
		},
		"low is one of 64":          {begin + j.row(0, "hhh"+h(63)+"l"), ""},
		"low is the 65th":           {begin + j.row(0, "hhh"+h(64)+"l"), share},
		"low is the 64th of others": {begin + j.row(0, "hhhn"+mixed[:62]+"l"), ""},
		"low is the 65th of others": {begin + j.row(0, "hhhn"+mixed[:63]+"l"), share},
		"without urgency since then": {
			begin + j.row(0, "hhh"+h(10)) + j.set(14, 15, store.Flow{Fair: true}) + j.row(16, "n"), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantViolationsOf(t, &run{lease: time.Second, grouped: true}, history{"actor": c.journal}, nil, c.want)
		})
	}
}

func TestCheckerFindsMoreUrgentMessagesThatWait(t *testing.T) {
	var j urgencyJournal
	begin := j.urgent(store.KeyFlow{})
	h := func(n int) string { return strings.Repeat("h", n) }
	one := j.urgent(store.KeyFlow{Concurrency: 1})
	const urgent = "urgent"
	for name, c := range map[string]struct{ journal, want string }{
		"high first":                     {begin + j.row(0, "hhhhhnnnlll"), ""},
		"normal after seven":             {begin + j.row(0, "hhhnhhhhhhhnh"), ""},
		"normal after six":               {begin + j.row(0, "hhhnhhhhhhnh"), urgent},
		"normal after six, then no high": {begin + j.row(0, "hhhnhhhhhhn"), ""},
		"high was sent later": {
			begin + j.row(0, "hhhnnnnnnnn") + j.send(10.5, "h", "", "high", "ok") + j.start(12, "h", "", "high"), "",
		},
		"two normal in one claim":           {begin + j.row(0, "hhh") + j.of(3, "", "nn") + j.row(4, "h"), urgent},
		"two normal in one claim with many": {begin + j.row(0, "hhh") + j.of(3, "", "n"+h(7)+"n") + j.row(4, "h"), ""},
		"low after normal":                  {begin + j.row(0, "hhhnnnnlll"), ""},
		"low after 62":                      {begin + j.row(0, "hhhl"+h(62)+"lh"), ""},
		"low after 61":                      {begin + j.row(0, "hhhl"+h(61)+"lh"), urgent},
		"low before normal":                 {begin + j.row(0, "hhhllln"), urgent},
		"in claims at unknown times": {
			begin + j.row(0, "hhhn") + j.repeated(1, 8, "n") + j.row(9, "h"), "",
		},
		"its key is full": {
			one + j.keyed(0, "a", "k") + j.row(1, "hhhnnnnnn") + j.ack(10, "a", 0) +
				j.send(-1000, "h", "k", "high", "ok") + j.start(11, "h", "k", "high"), "",
		},
		"its key is free": {
			one + j.keyed(0, "a", "k") + j.ack(0.5, "a", 0) + j.row(1, "hhhnnnnnn") +
				j.send(-1000, "h", "k", "high", "ok") + j.start(11, "h", "k", "high"), urgent,
		},
		"its queue had no urgency when it was sent": {
			j.set(-1100, -1099, store.Flow{Fair: true}) + j.set(-900, -899, store.Flow{Urgency: true}) +
				strings.ReplaceAll(j.row(0, "hhhnnnnnnh"), " ok", " unavailable"), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantViolationsOf(t, &run{lease: time.Second, grouped: true}, history{"actor": c.journal}, nil, c.want)
		})
	}
}

// TestCheckerKnowsTheUrgencyOfOrderedKeys has high messages of an ordered key, which wait for the normal one before.
func TestCheckerKnowsTheUrgencyOfOrderedKeys(t *testing.T) {
	var j urgencyJournal
	begin := j.urgent(store.KeyFlow{Order: store.OrderContinue})
	fenced := func(ms float64, urgency string, fence int) string {
		text := j.send(-1000+ms/1000, fmt.Sprint("k", ms), "k", urgency, "ok") +
			j.start(ms, fmt.Sprint("k", ms), "k", urgency)
		return strings.Replace(text, "10 k 0", fmt.Sprint("10 k ", fence), 1)
	}
	removed := j.send(-1000, "x", "k", "", "ok") + fmt.Sprintf("k %d x\nK %d x scheduled\n", j.at(8), j.at(8.1))
	for name, c := range map[string]struct{ journal, want string }{
		"it waits behind one": {begin + j.row(0, "hhhhnn") + fenced(6, "", 1) + fenced(7, "high", 2), ""},
		"it is next":          {begin + fenced(0, "", 1) + j.row(1, "hhhnnnnnn") + fenced(10, "high", 2), "urgent"},
		"it is next, perhaps": {
			begin + removed + fenced(0, "", 1) + j.row(1, "hhhnnnnnn") + fenced(10, "high", 2), "",
		},
		"turns of one urgency":   {begin + fenced(0, "", 1) + j.turns(1, "n") + fenced(10, "", 2), "turn"},
		"turns of another":       {begin + fenced(0, "", 1) + j.turns(1, "h") + fenced(10, "", 2), ""},
		"turns of one, with two": {begin + fenced(0, "", 1) + j.turns(5, "n") + fenced(10, "", 2), ""},
	} {
		t.Run(name, func(t *testing.T) { wantViolations(t, history{"actor": c.journal}, nil, c.want) })
	}
}

// turns has claims of one other key until 9.
func (j urgencyJournal) turns(from int, class string) (all string) {
	for ms := from; ms < 10; ms++ {
		all += j.of(float64(ms), "", class)
	}
	return all
}

func TestCheckerFindsWrongRefusals(t *testing.T) {
	var j urgencyJournal
	with, without := j.urgent(store.KeyFlow{}), j.set(-1100, -1099, store.Flow{Fair: true})
	mixed := func(outcome string) string {
		return j.send(0, "a", "", "mixed", outcome) + j.send(0, "b", "", "high", outcome)
	}
	both := j.start(1, "a", "", "") + j.start(2, "b", "", "high")
	scheduled := map[string]*later.Info{"a": {State: later.StateScheduled}}
	const broken = "urgency"
	for name, c := range map[string]struct {
		journal, want string
		left          map[string]*later.Info
	}{
		"taken":                    {with + mixed("ok") + both, "", nil},
		"refused":                  {without + mixed("invalid"), "", nil},
		"taken without urgency":    {without + mixed("ok") + both, broken, nil},
		"refused with urgency":     {with + mixed("invalid"), broken, nil},
		"refused while it ends":    {with + j.set(-1, 1, store.Flow{}) + mixed("invalid"), "", nil},
		"taken while it ends":      {with + j.set(-1, 1, store.Flow{}) + mixed("ok") + both, "", nil},
		"refused without a reason": {without + j.send(0, "a", "", "", "invalid"), broken, nil},
		"without an answer": {
			with + j.set(-9, -8, store.Flow{Urgency: true}) + strings.Split(mixed("ok"), "\n")[0] + "\n" + both, "", nil,
		},
		"normal":                {without + j.send(0, "a", "", "", "ok") + j.start(1, "a", "", ""), "", nil},
		"refused and delivered": {without + mixed("invalid") + both, broken, nil},
		"refused and left":      {without + mixed("invalid"), broken, scheduled},
		"perhaps refused": {
			without + strings.ReplaceAll(mixed("invalid"), "S 10000100", "S 10009000") + j.start(10, "b", "", "high"),
			"", nil,
		},
		"another urgency than sent": {
			with + j.send(0, "a", "", "low", "ok") + j.start(1, "a", "", "high"), broken, nil,
		},
	} {
		t.Run(name, func(t *testing.T) { wantViolations(t, history{"actor": c.journal}, c.left, c.want) })
	}
}

func TestCheckerCountsUrgencies(t *testing.T) {
	var j urgencyJournal
	journal := j.urgent(store.KeyFlow{}) + j.row(0, "hhhnhhhhhhhnhl") + j.send(0, "r", "", "low", "unavailable")
	got := wantViolations(t, history{"actor": journal}, nil, "").Urgency
	want := ShareFacts{Taken: 12, High: 11, Normal: 2, Low: 1, Several: 10, NormalShare: 2}
	if got != want {
		t.Errorf("got %+v; want %+v", got, want)
	}
}
