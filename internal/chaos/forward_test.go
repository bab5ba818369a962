//go:build unix

package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/laterq/later"
)

func TestCheckerFollowsMessagesToTheList(t *testing.T) {
	const (
		claimed = "c 1001000 m 1000900 1000950 1002 A q 1000 1 10\nx 1001100 m A ack 0\nX 1001200 m A ok\n"
		unknown = "s 1000000 m k-0-1 +0 -\nS 1000100 m unavailable\n"
		resent  = "s 1000200 m k-0-1 +0 -\nS 1000300 m ok\n"
	)
	waits := &later.Info{State: later.StateScheduled}
	for name, c := range map[string]struct {
		journal string
		listed  int
		left    *later.Info
		want    string // the kind of a violation
	}{
		"once":                        {sentOK, 1, nil, ""},
		"never":                       {sentOK, 0, nil, "lost"},
		"twice":                       {sentOK, 2, nil, "doubled"},
		"and claimed":                 {sentOK + claimed, 1, nil, "doubled"},
		"and still in a queue":        {sentOK, 1, waits, "doubled"},
		"after its cancel":            {sentOK + "k 1000200 m\nK 1000300 m ready\n", 1, nil, "cancelled"},
		"cancelled when it was there": {sentOK + "k 1000200 m\nK 1000300 m not_found\n", 1, nil, ""},
		"sent twice":                  {unknown + resent, 2, nil, ""},
		"sent again after its cancel": {sentOK + "k 1000150 m\nK 1000160 m ready\n" + resent, 1, nil, ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "actor"+journalSuffix), []byte(c.journal), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &run{dir: dir, result: &Result{}, listed: map[string]int{"k-0-1": c.listed}}
		left := map[string]*later.Info{}
		if c.left != nil {
			left["m"] = c.left
		}
		if err := r.verify(left); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, v := range r.result.Violations {
			got += v.Kind
		}
		if got != c.want {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}

func TestCheckerCountsWhatAListOrStreamHolds(t *testing.T) {
	r := &run{result: &Result{}, listed: map[string]int{}}
	whole := string(makePayload("k-0-1", normal, 30))
	r.countPayloads("list", []string{whole})
	r.countPayloads("stream", []string{whole, whole[:len(whole)-1]})
	r.countPayloads("stream", nil)
	var kinds []string
	for _, v := range r.result.Violations {
		kinds = append(kinds, v.Kind)
	}
	if n := r.listed["k-0-1"]; n != 2 || !slices.Equal(kinds, []string{"damaged", "lost"}) {
		t.Errorf("counted %d, found %q", n, kinds)
	}
}
