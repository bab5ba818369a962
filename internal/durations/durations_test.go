package durations

import (
	"errors"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestDurationsCanHaveDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"500ms":  500 * time.Millisecond,
		"1h30m":  90 * time.Minute,
		"2d":     48 * time.Hour,
		"2d12h":  60 * time.Hour,
		"1.5d":   36 * time.Hour,
		"0s":     0,
		"10d5ms": 240*time.Hour + 5*time.Millisecond,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "30", "d", "xd", "1d-2h", "-1s", "-1d", "1d2", "1e300d", "NaNd", "Infd", "1d1d", "12h2d", "100y",
		"36500d1ms",
		"3000000h",
	} {
		if got, err := Parse(text); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q is %v, %v; want ErrInvalid", text, got, err)
		}
	}
}

func TestDurationsAreWrittenShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		500 * time.Microsecond:              "500µs",
		12 * time.Millisecond:               "12ms",
		12345 * time.Millisecond:            "12.3s",
		3 * time.Minute:                     "3m",
		3*time.Minute + 4*time.Second:       "3m4s",
		2 * time.Hour:                       "2h",
		48 * time.Hour:                      "2d",
		60*time.Hour + 30*time.Second:       "2d12h1m",
		49*time.Hour + 5*time.Minute:        "2d1h5m",
		24*time.Hour - 100*time.Millisecond: "1d",
	} {
		if got := Format(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
