// Package jsontext reads JSON that may be hostile: it limits how deep JSON is nested, and finds values by a subset of
// JSONPath in time that grows with the size of the JSON only. The package may import the standard library, gjson and
// package store. Start reading at Check and ParsePath.
package jsontext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/store"
)

const (
	// MaxBytes and MaxSteps limit a Path.
	MaxBytes = 1024
	MaxSteps = 32
)

// Path names values in JSON by a subset of JSONPath (RFC 9535), as in $.order.items[*].sku.
type Path struct{ steps []step }

// step selects a member of an object by its name, an element of a list by its index, or all of them.
type step struct {
	kind  kind
	name  string
	index int
}

type kind byte

const (
	member kind = iota
	element
	all
)

// ParsePath returns the path at the beginning of text, and the rest of the text. A path starts with $, which may be
// left out before a name: $.order.total and order.total are the same. It goes on with
//
//	.name       the member of an object; letters, digits and _, not beginning with a digit
//	['a name']  the member of an object with any name, in single or double quotes; a backslash escapes a quote
//	[2]         the element of a list, counted from 0
//	[*] or .*   all elements or members; once in a path
//
// The error is ErrInvalid. It names the position of the first part outside the subset, in bytes counted from 1.
func ParsePath(text string) (path Path, rest string, err error) {
	p := parser{text: text}
	switch {
	case p.skip("$"):
	case p.atName():
		p.member()
	default:
		p.fail(`give a path such as $.order.items[0].price`)
	}
	for p.err == nil && p.more() {
	}
	if p.err == nil && p.at > MaxBytes {
		p.err = store.Invalid("JSON path has %d bytes: the limit is %d", p.at, MaxBytes)
	}
	return Path{p.steps}, text[p.at:], p.err
}

// parser parses a path.
type parser struct {
	text     string
	at       int
	steps    []step
	wildcard bool
	err      error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = store.Invalid("JSON path at byte %d: %s", p.at+1, fmt.Sprintf(format, args...))
	}
}

func (p *parser) skip(prefix string) bool {
	if !strings.HasPrefix(p.text[p.at:], prefix) {
		return false
	}
	p.at += len(prefix)
	return true
}

// more parses the next step, and reports whether there is one.
func (p *parser) more() bool {
	switch {
	case strings.HasPrefix(p.text[p.at:], ".."):
		p.fail("descendants (..) are not supported: name each level")
	case p.skip(".*"), p.skip("[*]"):
		if p.wildcard {
			p.at -= len("*")
			p.fail("a second wildcard: use one")
		}
		p.wildcard = true
		p.add(step{kind: all})
	case p.skip("."):
		if !p.atName() {
			p.fail("give a name here, an index as [0], or a name with other characters as ['a name']")
			return false
		}
		p.member()
	case p.skip("['"), p.skip(`["`):
		p.quoted(p.text[p.at-1])
	case p.skip("["):
		p.element()
	default:
		return false
	}
	return true
}

func (p *parser) add(s step) {
	if p.steps = append(p.steps, s); len(p.steps) > MaxSteps {
		p.fail("step %d: the limit is %d", len(p.steps), MaxSteps)
	}
}

// atName reports whether a name can start here.
func (p *parser) atName() bool {
	return p.at < len(p.text) && isNameByte(p.text[p.at]) && (p.text[p.at] < '0' || p.text[p.at] > '9')
}

func isNameByte(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b >= utf8.RuneSelf
}

func (p *parser) member() {
	from := p.at
	for p.at < len(p.text) && isNameByte(p.text[p.at]) {
		p.at++
	}
	p.add(step{name: p.text[from:p.at]})
}

// quoted parses a name up to its closing quote and bracket.
func (p *parser) quoted(quote byte) {
	var name strings.Builder
	for ; p.at < len(p.text) && p.text[p.at] != quote; p.at++ {
		if p.text[p.at] == '\\' {
			if p.at++; p.at == len(p.text) || !strings.ContainsRune(`\'"`, rune(p.text[p.at])) {
				p.fail(`only \\, \' and \" can be escaped`)
				return
			}
		}
		name.WriteByte(p.text[p.at])
	}
	if !p.skip(string(quote) + "]") {
		p.fail("a name in quotes ends with %c]", quote)
		return
	}
	p.add(step{name: name.String()})
}

func (p *parser) element() {
	from := p.at
	for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
		p.at++
	}
	digits := p.text[from:p.at]
	index, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || len(digits) > 1 && digits[0] == '0' || !p.skip("]") {
		p.fail("give an index such as [0], a name such as ['a name'], or [*]; filters, slices and lists are " +
			"not supported")
		return
	}
	p.add(step{kind: element, index: int(index)})
}

// Find calls yield with each value that the path names, until it returns false. Of members with the same name the last
// one counts, as for encoding/json. The JSON has passed Check.
func (p Path) Find(json []byte, yield func(value gjson.Result) bool) {
	find(gjson.ParseBytes(json), p.steps, yield)
}

// find returns false when yield did. Each step reads a value once, so all together read it at most MaxSteps times.
func find(value gjson.Result, steps []step, yield func(gjson.Result) bool) (more bool) {
	if len(steps) == 0 {
		return yield(value)
	}
	s := steps[0]
	if s.kind == all && (value.IsObject() || value.IsArray()) {
		more = true
		value.ForEach(func(_, v gjson.Result) bool {
			more = find(v, steps[1:], yield)
			return more
		})
		return more
	}
	var found gjson.Result
	at := 0
	value.ForEach(func(key, v gjson.Result) bool {
		switch {
		case s.kind == member && value.IsObject() && key.Str == s.name:
			found = v
		case s.kind == element && value.IsArray() && at == s.index:
			found = v
			return false
		}
		at++
		return true
	})
	if !found.Exists() {
		return true
	}
	return find(found, steps[1:], yield)
}
