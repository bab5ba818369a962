//go:build unix

package chaos

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/laterq/later"
)

func TestCheckerFollowsCopiesOfATopic(t *testing.T) {
	const handled = "c 1001000 m 1000900 1000950 1002 A subscribed-1 1000 1 10\nx 1001100 m A ack 0\nX 1001200 m A ok\n"
	for name, c := range map[string]struct {
		journal string
		listed  int
		expired bool // in the queue that is forwarded
		want    string
	}{
		"both":                       {sentOK + handled, 1, false, ""},
		"one":                        {sentOK + handled, 0, false, "lost"},
		"one, and the other expired": {sentOK + handled, 0, true, ""},
		"twice":                      {sentOK + handled, 2, false, "doubled"},
		"the other":                  {sentOK, 1, false, "lost"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "actor"+journalSuffix), []byte(c.journal), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &run{
			dir: dir, result: &Result{}, listed: map[string]int{"k-0-1": c.listed},
			awayLeft: map[string]bool{"m": c.expired},
		}
		if err := r.verify(map[string]*later.Info{}); err != nil {
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
