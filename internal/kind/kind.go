// Package kind has the rules for kinds of messages. Package later and the later command use it; it imports store.
package kind

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/laterq/later/store"
)

// Header is the header that holds the kind of a message.
const Header = "kind"

// Max is the maximum length of a kind or pattern, in bytes.
const Max = 128

// Check returns an ErrInvalid unless a message can have the kind.
func Check(kind string) error { return check("kind", kind) }

// CheckPattern returns an ErrInvalid unless messages can be matched with the pattern: a kind, one followed by ".*",
// "*", or "" for messages without a kind.
func CheckPattern(pattern string) error {
	if pattern == "" || pattern == "*" {
		return nil
	}
	if len(pattern) > Max {
		return tooLong("pattern", pattern)
	}
	return check("pattern", strings.TrimSuffix(pattern, ".*"))
}

func check(what, kind string) error {
	switch {
	case kind == "":
		return store.Invalid("%s is empty: must have 1 to %d bytes", what, Max)
	case len(kind) > Max:
		return tooLong(what, kind)
	case !utf8.ValidString(kind):
		return store.Invalid("%s %q is not UTF-8", what, kind)
	case strings.ContainsFunc(kind, unicode.IsControl):
		return store.Invalid("%s %q has a control character: leave it out", what, kind)
	case strings.Contains(kind, "*") && what == "kind":
		return store.Invalid("kind %q has a *, which belongs to patterns: leave it out", kind)
	case strings.Contains(kind, "*"):
		return store.Invalid("pattern %q has a * within: it can only be the last segment, as in order.*", kind)
	case strings.Contains("."+kind+".", ".."):
		return store.Invalid("%s %q has an empty segment: put text before and after each dot", what, kind)
	}
	return nil
}

func tooLong(what, text string) error {
	return store.Invalid("%s %.20q… has %d bytes: the limit is %d", what, text, len(text), Max)
}
