package topic

import (
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later/store"
)

func TestFilterMatches(t *testing.T) {
	headers := map[string]string{"region": "eu", "kind": "order/new", "empty": "", "with space": "a, b", "é": "ü"}
	for text, want := range map[string]bool{
		"": true, "  ": true, "region=eu": true, "region == eu": true, "region=us": false, "region!=us": true,
		"region!=eu": false, "unknown!=x": true, "unknown=x": false, "region": true, "unknown": false, "!unknown": true,
		"!region": false, "region in (us, eu)": true, "region in(us)": false, "region notin (us)": true,
		"region notin (us,eu)": false, "unknown notin (x)": true, "unknown in (x)": false,
		"unknown notin (x, y)": true, "unknown in (x, y)": false, "region notin (us, uk)": true, "region in (us, uk)": false,
		"kind=order/new,region=eu": true, "kind=order/new , region=us": false, `empty=""`: true, `region=""`: false,
		`"with space"="a, b"`: true, `"with space" in ("a, b", c)`: true, "é=ü": true, "region , kind": true,
		"region in (eu), !unknown": true,
	} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := f.Matches(headers); got != want {
			t.Errorf("%q matches: %t", text, got)
		}
	}
}

func TestFilterThatDoesNotParseSaysWhere(t *testing.T) {
	for text, want := range map[string]string{
		"=": "header at byte 0", "a=": "value at byte 2", "a=b c=d": "comma at byte 4", "a in": "( at byte 4",
		"a in (": "value at byte 6", "a in (b": "comma or ) at byte 7",
		"a>b": "in, notin, = or != at byte 1", "a >b": "in, notin, = or != at byte 2",
		"a like b": "in, notin, = or != at byte 2",
		"!":        "header at byte 1", "a=b,": "header at byte 4", `"a`: "header at byte 0", "a=b,,c": "header at byte 4",
		"a in ()": "value at byte 6",
	} {
		_, err := ParseFilter(text)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an ErrInvalid with %q", text, err, want)
		}
	}
	_, err := ParseFilter(strings.Repeat("a", maxFilter+1))
	if !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a long filter: %v, want ErrTooLarge", err)
	}
}

func FuzzFilter(f *testing.F) {
	f.Add(`region=eu, kind in (a, "b"), !c`)
	f.Fuzz(func(t *testing.T, text string) {
		if x, err := ParseFilter(text); err == nil {
			x.Matches(map[string]string{"region": "eu"})
		}
	})
}
