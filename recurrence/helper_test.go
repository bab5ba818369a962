package recurrence

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/laterq/later/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long reports whether tests shall try everything instead of a sample.
func long() bool { return os.Getenv("LATER_LONG") != "" }

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func mustCompile(t testing.TB, spec Spec) *Rule {
	t.Helper()
	r, err := Compile(spec, Options{Name: "test"})
	if err != nil {
		t.Fatalf("Compile(%+v): %v", spec, err)
	}
	return r
}

// local returns a time of a zone from text such as "2026-03-29 02:30:00".
func local(t testing.TB, loc *time.Location, text string) time.Time {
	t.Helper()
	at, err := time.ParseInLocation(time.DateTime, text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// upcoming returns the first n times after a moment, with their offsets.
func upcoming(r *Rule, after time.Time, n int) []string {
	var texts []string
	for o := range r.After(after) {
		if len(texts) == n {
			break
		}
		texts = append(texts, o.Nominal.Format("2006-01-02 15:04:05 -0700"))
	}
	return texts
}

func wantTimes(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// wantInvalid checks that an error is an ErrInvalid with a text.
func wantInvalid(t testing.TB, what string, err error, text string) {
	t.Helper()
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %q", what, err, text)
	}
}
