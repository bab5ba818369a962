package peertest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/laterq/later/recurrence"
)

// peerYears is how far robfig/cron searches. Where it finds nothing, the next time must be later than that.
const peerYears = 5

// TestCronInUTCEqualsRobfig compares the next times of 100,000 random expressions, from random moments.
func TestCronInUTCEqualsRobfig(t *testing.T) {
	expressions := 100_000
	if os.Getenv("LATER_LONG") != "" {
		expressions *= 20
	}
	random := rand.New(rand.NewPCG(17, 1))
	five := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)
	six := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	refused, found := 0, 0
	for range expressions {
		text, parser := randomExpression(random, five, six)
		peer, err := parser.Parse(text)
		if err != nil {
			t.Fatalf("robfig/cron refuses %q: %v", text, err)
		}
		after := time.Unix(random.Int64N(4_000_000_000), random.Int64N(1e9)).UTC()
		rule, err := recurrence.Compile(recurrence.Spec{Cron: text}, recurrence.Options{})
		if err != nil { // only expressions that never run
			refused++
			if next := peer.Next(after); !next.IsZero() || !strings.Contains(err.Error(), "never runs") {
				t.Fatalf("%q is refused: %v; robfig/cron has %s", text, err, next)
			}
			continue
		}
		for range 3 {
			got, ok := rule.Next(after)
			want := peer.Next(after)
			if want.IsZero() && ok && got.Nominal.Year() > after.Year()+peerYears {
				break
			}
			if !ok || !got.Nominal.Equal(want) || !got.Due.Equal(want) {
				t.Fatalf("%q after %s: got %+v %v, want %s", text, after, got, ok, want)
			}
			found++
			after = want
		}
	}
	t.Logf("%d times are equal; %d expressions never run", found, refused)
	if found < expressions*2 || refused > expressions/20 {
		t.Error("the expressions test too little")
	}
}

func randomExpression(r *rand.Rand, five, six cron.Parser) (string, cron.Parser) {
	if r.IntN(200) == 0 {
		names := []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
		return names[r.IntN(len(names))], five
	}
	months := []string{"", "JAN", "feb", "Mar", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "dec"}
	days := []string{"SUN", "mon", "Tue", "WED", "THU", "FRI", "SAT"}
	text := fmt.Sprintf("%s %s %s %s %s", field(r, 0, 59, nil), field(r, 0, 23, nil), field(r, 1, 31, nil),
		field(r, 1, 12, months), field(r, 0, 6, days))
	if r.IntN(4) == 0 {
		return field(r, 0, 59, nil) + " " + text, six
	}
	return text, five
}

// field returns a random field with one or more items.
func field(r *rand.Rand, low, high int, names []string) string {
	items := make([]string, 1+max(0, r.IntN(6)-3))
	for i := range items {
		items[i] = item(r, low, high, names)
	}
	return strings.Join(items, ",")
}

func item(r *rand.Rand, low, high int, names []string) string {
	value := func(n int) string {
		if names != nil && r.IntN(2) == 0 {
			return names[n]
		}
		return fmt.Sprint(n)
	}
	step := func() int { return 1 + r.IntN(high) }
	n := low + r.IntN(high-low+1)
	switch r.IntN(8) {
	case 0, 1:
		return "*"
	case 2:
		return fmt.Sprintf("*/%d", step())
	case 3:
		return fmt.Sprintf("%s/%d", value(n), step())
	case 4:
		return fmt.Sprintf("%s-%s", value(n), value(n+r.IntN(high-n+1)))
	case 5:
		return fmt.Sprintf("%s-%s/%d", value(n), value(n+r.IntN(high-n+1)), step())
	case 6:
		return "?"
	}
	return value(n)
}
