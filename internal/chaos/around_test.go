//go:build unix

package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laterq/later"
)

// history is the journals of some actors.
type history map[string]string

// wantViolations verifies a history and checks the kinds of its violations.
func wantViolations(t *testing.T, h history, left map[string]*later.Info, want string) *Result {
	t.Helper()
	return wantViolationsOf(t, &run{}, h, left, want)
}

// wantViolationsOf does so for a run with exceptions.
func wantViolationsOf(t *testing.T, r *run, h history, left map[string]*later.Info, want string) *Result {
	t.Helper()
	dir := t.TempDir()
	for actor, text := range h {
		if err := os.WriteFile(filepath.Join(dir, actor+journalSuffix), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.dir, r.result = dir, &Result{}
	if err := r.verify(left); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, v := range r.result.Violations {
		kinds = append(kinds, v.Kind)
	}
	slices.Sort(kinds)
	if got := strings.Join(slices.Compact(kinds), " "); got != want {
		t.Errorf("found %q; want %q: %+v", got, want, r.result.Violations)
	}
	return r.result
}
