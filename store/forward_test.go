package store

import (
	"errors"
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]Target{
		"queue:a b":    {Kind: TargetQueue, Name: "a b"},
		"topic:orders": {Kind: TargetQueue, Name: "topic:orders"},
		"list:{q}:x":   {Kind: TargetList, Name: "{q}:x"},
		"stream:a:b":   {Kind: TargetStream, Name: "a:b"},
		"channel:é":    {Kind: TargetChannel, Name: "é"},
	} {
		got, err := ParseTarget(text)
		if err != nil || got != want {
			t.Errorf("ParseTarget(%q) = %+v, %v", text, got, err)
		}
		if again, err := ParseTarget(got.String()); err != nil || again != want {
			t.Errorf("ParseTarget(%q) = %+v, %v", got, again, err)
		}
	}
	for _, text := range []string{"", "mail", "lst:k", "list:", "queue:", "queue:a{b", "channel:\xff", ":x",
		"stream:" + strings.Repeat("x", MaxTargetName+1)} {
		if got, err := ParseTarget(text); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseTarget(%.20q) = %+v, %v", text, got, err)
		}
	}
	if _, err := ParseTarget("mail"); !strings.Contains(err.Error(), `"mail"`) {
		t.Errorf("error is %v", err)
	}
}
