package kind

import (
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later/store"
)

func TestKindRulesNameWhatIsWrong(t *testing.T) {
	long := strings.Repeat("x", Max)
	for kind, want := range map[string]string{
		"order": "", "order.cancel": "", "Bestellung.löschen 2": "", long: "",
		"": "is empty: must have 1 to 128 bytes", long + "x": "has 129 bytes: the limit is 128", "a\xff": "is not UTF-8",
		"a\n": "control character", "a.*": "belongs to patterns", "*": "belongs to patterns",
		"a..b": "empty segment", ".a": "empty segment", "a.": "empty segment", ".": "empty segment",
	} {
		wantText(t, Check(kind), want)
	}
	for pattern, want := range map[string]string{
		"": "", "*": "", "order": "", "order.*": "", "a.b.*": "", long: "",
		long + ".*": "has 130 bytes", "a*": "last segment", "*.a": "last segment", "a.*.b": "last segment",
		"**": "last segment", ".*": "is empty", "a..*": "empty segment", "a.": "empty segment", "\x00": "control",
	} {
		wantText(t, CheckPattern(pattern), want)
	}
}

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error is %v; want none", err)
	case want != "" && (!errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want)):
		t.Errorf("error is %v; want an ErrInvalid with %q", err, want)
	}
}
