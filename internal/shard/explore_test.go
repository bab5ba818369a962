package shard

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// system is something to explore. Its steps and check panic with a violation when they find a broken promise.
type system[S comparable] interface {
	first() S
	// steps calls do with each step that can follow a state, and its name.
	steps(from *S, do func(name string, step func(s *S)))
	check(s *S)
}

// cameFrom is the step that has led to a state first.
type cameFrom[S comparable] struct {
	state S
	step  string
}

// explore visits all states that a system can reach. It returns their number, and the shortest history that breaks a
// promise, nil if none does.
func explore[S comparable](m system[S]) (states int, history []string) {
	first := m.first()
	seen := map[S]cameFrom[S]{first: {}}
	queue := []S{first}
	for at := 0; at < len(queue) && history == nil; at++ {
		from := queue[at]
		m.steps(&from, func(name string, step func(s *S)) {
			if history != nil {
				return
			}
			to := from
			if wrong := try(m, &to, step); wrong != "" {
				history = append(path(seen, from, first), name, "broken: "+wrong)
			} else if _, known := seen[to]; !known {
				seen[to] = cameFrom[S]{from, name}
				queue = append(queue, to)
			}
		})
	}
	return len(seen), history
}

// try makes a step, and returns the promise that it breaks, or "".
func try[S comparable](m system[S], s *S, step func(s *S)) (wrong string) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case violation:
			wrong = string(v)
		default:
			panic(v)
		}
	}()
	step(s)
	m.check(s)
	return ""
}

// path returns the steps that lead to a state.
func path[S comparable](seen map[S]cameFrom[S], to, first S) (steps []string) {
	for to != first {
		steps = append(steps, seen[to].step)
		to = seen[to].state
	}
	slices.Reverse(steps)
	return steps
}

const x, y, z = ids(1), ids(2), ids(4)

// systems returns models with all pairs of calls that matter, of the same id and of two, and some ids at the start.
func systems(bug string, loses uint8, starts ...ids) (all []model) {
	for _, calls := range [][]call{
		{{true, 0}, {false, 0}}, {{false, 0}, {false, 0}}, {{true, 0}, {true, 0}}, {{false, 0}, {true, 1}},
	} {
		for _, start := range starts {
			all = append(all, model{bug: bug, calls: calls, start: start, loses: loses})
		}
	}
	return all
}

func TestNoHistoryOfAMoveLosesOrDoublesAMessage(t *testing.T) {
	all := [][]model{systems("", 0, 0, x, x|y), systems("", 1, 0, x)}
	if os.Getenv("LATER_LONG") != "" {
		all = [][]model{systems("", 0, 0, x, x|y, x|y|z), systems("", 1, 0, x, x|y, x|y|z), systems("", 2, 0, x, x|y)}
	}
	for _, of := range all {
		states := 0
		for _, m := range of {
			n, history := explore(&m)
			if states += n; history != nil {
				t.Fatalf("calls %v, ids %03b at the start, %d failovers:\n%s", m.calls, m.start, m.loses,
					strings.Join(history, "\n"))
			}
		}
		t.Logf("%d failovers: %d states", of[0].loses, states)
	}
}

func TestTheExplorerFindsFaultsOfMoves(t *testing.T) {
	for _, test := range []struct {
		bug   string
		loses uint8
	}{
		{noFence, 0}, {arrivesTwice, 0}, {outboxIgnored, 0}, {finalisedEarly, 0},
		{answerUnconfirmed, 1}, {departUnconfirmed, 1}, {arriveUnconfirmed, 1}, {finalUnconfirmed, 1},
	} {
		t.Run(test.bug, func(t *testing.T) {
			for _, m := range systems(test.bug, test.loses, 0, x) {
				if states, history := explore(&m); history != nil {
					t.Logf("calls %v, ids %03b at the start, after %d states:\n%s", m.calls, m.start, states,
						strings.Join(history, "\n"))
					return
				}
			}
			t.Error("no history breaks a promise")
		})
	}
}
