package reserved_test

import (
	"strings"
	"testing"

	"github.com/laterq/later/internal/reserved"
)

func TestReservedNamesAreCutFromTheirPrefixes(t *testing.T) {
	for queue, want := range map[string][2]string{
		"mail": {"", "mail"}, "topics": {"", "topics"}, "topic": {"", "topic"}, "my-topic:news": {"", "my-topic:news"},
		"topic:news": {reserved.Topic, "news"}, "topic:": {reserved.Topic, ""},
		"topic:topic:a":      {reserved.Topic, "topic:a"},
		"topic-history:news": {reserved.History, "news"}, "schedules:": {reserved.Schedules, ""},
		"logouts:": {reserved.Logouts, ""}, "changes:": {reserved.Changes, ""},
		"worker:": {reserved.Worker, ""}, "worker:1": {reserved.Worker, "1"},
	} {
		if prefix, rest := reserved.Cut(queue); prefix != want[0] || rest != want[1] {
			t.Errorf("Cut(%q) = %q, %q, want %q", queue, prefix, rest, want)
		}
	}
	for queue, want := range map[string]string{"topic:news": "news", "topic:": "", "topic-history:news": "",
		"mail": ""} {
		if topic, ok := reserved.CutTopic(queue); ok != (want != "") || ok && topic != want {
			t.Errorf("CutTopic(%q) = %q, %v", queue, topic, ok)
		}
	}
	for queue, want := range map[string]string{"worker:1": "1", "worker:": "", "workers": "", "topic:worker:1": ""} {
		if id, ok := reserved.CutWorker(queue); ok != (want != "") || ok && id != want {
			t.Errorf("CutWorker(%q) = %q, %v", queue, id, ok)
		}
	}
}

func TestReservedQueuesAreRefusedAsTheTableSays(t *testing.T) {
	// The letters are the refused uses: open, change, handle, subscribe; then whether it is listed, and idle.
	for queue, want := range map[string]string{
		"mail":               "---- l-",
		"topic:":             "--hs --",
		"topic:news":         "--h- l-",
		"topic-history:news": "--hs li",
		"topic-history:":     "--hs li",
		"schedules:":         "-chs li",
		"schedules:mine":     "---- l-",
		"logouts:":           "---- li",
		"worker:":            "ochs --",
		"worker:1":           "ochs --",
		"changes:":           "ochs -i",
		"changes:mine":       "---- l-",
	} {
		var got strings.Builder
		mark := func(set bool, letter byte) {
			if !set {
				letter = '-'
			}
			got.WriteByte(letter)
		}
		uses := [...]reserved.Use{reserved.Open, reserved.Change, reserved.Handle, reserved.Subscribe}
		for i, use := range uses {
			why := reserved.Check(queue, use)
			mark(why != "", "ochs"[i])
			if why != "" && !strings.Contains(why, `"`+queue+`"`) {
				t.Errorf("the refusal of %q does not name it: %s", queue, why)
			}
		}
		got.WriteByte(' ')
		mark(reserved.IsListed(queue), 'l')
		mark(reserved.IsIdle(queue), 'i')
		if got.String() != want {
			t.Errorf("%q is %q, want %q", queue, got.String(), want)
		}
	}
}
