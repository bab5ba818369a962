//go:build unix

package chaos

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later"
)

// telling is a command to workers.
type telling struct {
	command    string
	begin, end int64
	names      []string
	unheard    map[string]string // why workers did not obey, by name
}

// obedience is the report of a worker about a command.
type obedience struct {
	obeyed []record // fields: the command
	end    int64    // when Run returned
	ran    string   // its outcome
}

// fleetHistory has the commands to workers in the journals.
type fleetHistory struct {
	tellings map[string]*telling   // by number
	workers  map[string]*obedience // by actor
}

func (h *fleetHistory) worker(actor string) *obedience {
	if h.workers == nil {
		h.workers = map[string]*obedience{}
	}
	if h.workers[actor] == nil {
		h.workers[actor] = &obedience{}
	}
	return h.workers[actor]
}

// addWorker adds a record of a worker.
func (h *fleetHistory) addWorker(actor string, x record) {
	w := h.worker(actor)
	if x.kind == obeyed {
		w.obeyed = append(w.obeyed, x)
	} else {
		w.end, w.ran = x.at, x.field(0)
	}
}

// addTelling adds an event of the run.
func (h *fleetHistory) addTelling(x record) {
	switch x.field(0) {
	case "tell":
		if h.tellings == nil {
			h.tellings = map[string]*telling{}
		}
		h.tellings[x.field(1)] = &telling{command: x.field(2), begin: x.at, names: strings.Split(x.field(3), ","),
			unheard: map[string]string{}}
	case "tell-ended":
		if t := h.tellings[x.field(1)]; t != nil {
			t.end = x.at
			for of := range strings.SplitSeq(x.field(2), ",") {
				name, why, _ := strings.Cut(of, "=")
				t.unheard[name] = why
			}
		}
	}
}

// knownTo returns the commands to a worker, in order.
func (h *fleetHistory) knownTo(actor string) (all []*telling) {
	for _, t := range h.tellings {
		if slices.Contains(t.names, actor) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *telling) int { return cmp.Compare(a.begin, b.begin) })
	return all
}

// obeyAtLast is how long a worker that lives may take to obey. ControlWorkers need not have waited so long.
const obeyAtLast = int64(30 * time.Second / time.Microsecond)

// checkFleet checks that each worker obeyed each command to it once, and no other, such as one to an earlier generation
// of it.
func (ck *checker) checkFleet(result *Result) {
	for actor, w := range ck.fleet.workers {
		tellings := ck.fleet.knownTo(actor)
		used := map[*telling]bool{}
		for _, x := range w.obeyed {
			i := len(tellings) - 1 // the last one that fits: it need not have obeyed commands that did not reach it
			for ; i >= 0; i-- {
				if t := tellings[i]; t.command == x.field(0) && t.begin <= x.at && !used[t] {
					break
				}
			}
			if i < 0 {
				result.violate("untold-obeyed", "-", "%s obeyed %q, which it was not told, or not again",
					actor, x.field(0))
				continue
			}
			used[tellings[i]] = true
			result.Obeyed++
		}
		for _, t := range tellings {
			result.Told++
			if !used[t] && ck.mustHaveObeyed(actor, w, t) {
				result.violate("disobeyed", "-", "%s was told to %s from %d to %d, lived on, and did not obey",
					actor, t.command, t.begin, t.end)
			}
		}
		ck.checkRan(actor, w, result)
	}
}

// mustHaveObeyed reports whether a worker that did not obey a command should have.
func (ck *checker) mustHaveObeyed(actor string, w *obedience, t *telling) bool {
	lived := w.end
	if killed := ck.killed[actor]; killed != 0 && (lived == 0 || killed < lived) {
		lived = killed
	}
	switch why := t.unheard[actor]; why {
	case "": // ControlWorkers returned because it obeyed or had ended
		return lived > t.end
	case notAnswered:
		return lived > t.end+obeyAtLast && !ck.ending(w, t.end+obeyAtLast)
	default:
		return false
	}
}

// ending reports whether a worker had been told to end before a time. It listens to no further command.
func (ck *checker) ending(w *obedience, at int64) bool {
	return slices.ContainsFunc(w.obeyed, func(x record) bool { return endsWorker(x.field(0)) && x.at < at })
}

func endsWorker(command string) bool {
	return command == string(later.CommandDrain) || command == string(later.CommandRestart)
}

// checkRan checks that a worker that was told to drain or restart did so, and that no other did.
func (ck *checker) checkRan(actor string, w *obedience, result *Result) {
	want := ""
	for _, x := range w.obeyed {
		if endsWorker(x.field(0)) {
			want = x.field(0)
			break
		}
	}
	switch {
	case w.ran == "" && want != "" && ck.killed[actor] == 0:
		result.violate("stayed", "-", "%s obeyed %q and did not end", actor, want)
	case (w.ran == ranRestart || w.ran == ranDrain) && w.ran != want:
		result.violate("untold-obeyed", "-", "Run of %s ended with %q, but it obeyed %q", actor, w.ran, want)
	case w.ran == ranStopped && want != "":
		result.violate("stayed", "-", "%s obeyed %q and ended only when its context did", actor, want)
	}
}

// pauseWithin is how long after it obeyed a pause a worker may make a claim: one that it had begun.
const pauseWithin = int64(time.Second / time.Microsecond)

// checkPaused checks that a worker claimed nothing while it was paused.
func (ck *checker) checkPaused(m *message, violate violator) {
	for _, d := range m.deliveries {
		w := ck.fleet.workers[d.actor]
		if w == nil {
			continue
		}
		paused := int64(0)
		for _, x := range w.obeyed {
			switch {
			case x.at > d.call:
			case x.field(0) == string(later.CommandPause):
				paused = x.at
			case x.field(0) == string(later.CommandResume):
				paused = 0
			}
		}
		if paused != 0 && d.call > paused+pauseWithin && !ck.starvedIn(d.actor, paused, d.call) {
			violate("paused", "%s claimed attempt %d %d ms after it was paused", d.actor, d.attempt,
				(d.call-paused)/1000)
		}
	}
}
