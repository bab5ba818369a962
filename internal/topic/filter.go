package topic

import (
	"slices"
	"strconv"
	"strings"

	"github.com/laterq/later/store"
)

// maxFilter is the maximum length of a filter, in bytes.
const maxFilter = 2048

// Filter is the conditions of a subscription, which must all hold.
type Filter []condition

// condition is met by a message that has a header, with one of the values if there are any.
type condition struct {
	name   string
	values []string
	not    bool // it is met by the others
}

func (f Filter) Matches(headers map[string]string) bool {
	for _, c := range f {
		value, ok := headers[c.name]
		if met := ok && (c.values == nil || slices.Contains(c.values, value)); met == c.not {
			return false
		}
	}
	return true
}

// CheckFilter returns the ErrInvalid or ErrTooLarge with which Subscribe refuses Where with a filter, or nil.
func CheckFilter(filter string) error {
	_, err := ParseFilter(filter)
	return err
}

// ParseFilter parses a filter; see Where. An empty one matches every message.
func ParseFilter(text string) (Filter, error) {
	if len(text) > maxFilter {
		return nil, store.TooLarge("filter is %d bytes long: the limit is %d", len(text), maxFilter)
	}
	p := filterParser{text: text}
	var f Filter
	for p.skip(); p.at < len(text); p.skip() {
		if len(f) > 0 && !p.accept(",") {
			return nil, p.expected("a comma")
		}
		c, err := p.condition()
		if err != nil {
			return nil, err
		}
		f = append(f, c)
	}
	return f, nil
}

type filterParser struct {
	text string
	at   int
}

func (p *filterParser) expected(what string) error {
	return store.Invalid("filter %q has no %s at byte %d: write it like region=eu, kind in (a, b), !debug", p.text,
		strings.TrimPrefix(what, "a "), p.at)
}

func (p *filterParser) skip() {
	for p.at < len(p.text) && strings.IndexByte(" \t\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// accept skips a symbol and reports whether it was there.
func (p *filterParser) accept(symbol string) bool {
	p.skip()
	if !strings.HasPrefix(p.text[p.at:], symbol) {
		return false
	}
	p.at += len(symbol)
	return true
}

// word reads a name or value.
func (p *filterParser) word(what string) (string, error) {
	p.skip()
	if quoted, err := strconv.QuotedPrefix(p.text[p.at:]); err == nil {
		p.at += len(quoted)
		return strconv.Unquote(quoted)
	}
	from := p.at
	for p.at < len(p.text) && isWordByte(p.text[p.at]) {
		p.at++
	}
	if p.at == from {
		return "", p.expected(what)
	}
	return p.text[from:p.at], nil
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80 ||
		strings.IndexByte("._-/:@", c) >= 0
}

func (p *filterParser) condition() (c condition, err error) {
	c.not = p.accept("!")
	if c.name, err = p.word("header"); err != nil || c.not {
		return c, err
	}
	end := p.at
	equal := p.accept("==") || p.accept("=")
	if c.not = !equal && p.accept("!="); equal || c.not {
		value, err := p.word("value")
		c.values = []string{value}
		return c, err
	}
	if p.skip(); p.at == len(p.text) || p.text[p.at] == ',' {
		return c, nil // the header exists
	}
	if p.at == end || !isWordByte(p.text[p.at]) {
		return c, p.expected("in, notin, = or !=")
	}
	operator, err := p.word("operator")
	if err != nil || operator != "in" && operator != "notin" {
		p.at -= len(operator)
		return c, p.expected("in, notin, = or !=")
	}
	c.not = operator == "notin"
	if !p.accept("(") {
		return c, p.expected("a (")
	}
	for {
		value, err := p.word("value")
		if err != nil {
			return c, err
		}
		c.values = append(c.values, value)
		if p.accept(")") {
			return c, nil
		}
		if !p.accept(",") {
			return c, p.expected("comma or )")
		}
	}
}
