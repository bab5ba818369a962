package inspect

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/store"
)

const (
	// MaxQuery is the maximum length of the text of a query, in bytes.
	MaxQuery = 4096

	maxWords = 16 // of a Filter
)

var (
	// queryTerm matches a part of a query: characters other than spaces, and texts in quotes. The last quote may be
	// missing, as it is while a user types.
	queryTerm  = regexp.MustCompile(`(?s)(?:[^\s"]|"(?:[^"\\]|\\.)*"?)+`)
	quotedText = regexp.MustCompile(`(?s)"((?:[^"\\]|\\.)*)"?`)
	escaped    = regexp.MustCompile(`(?s)\\(.)`)
	named      = regexp.MustCompile(`(?s)^(\w+):(.+)$`)
	operator   = regexp.MustCompile(`^(?:!=|<=|>=|=|<|>|~)$`)
	// A value does not begin with =, so that base64 is a word.
	compared = regexp.MustCompile(`(?s)^([^\s"=<>!~]+)(!=|<=|>=|=|<|>|~)([^=].*)$`)
)

// ParseFilter returns the filter that a text states, without State, From and To. All of its conditions must be met:
//
//	refund                       a word that is in the id, the group, the key or the payload, whatever its case
//	"out of stock"               a word with spaces; a backslash escapes a quote
//	id:order-17  payload:refund  this is in the id, in the payload
//	error:timeout                this is in the error of a failed attempt
//	header:kind=mail             a header with this value
//	group:customer-9             messages of a group
//	pattern:"HTTP #"             the ErrorPattern of the last error
//	attempts>=3                  the number of failed attempts
//	order.total>=100             a value in a JSON payload; see Condition
//
// It returns ErrInvalid for another comparison of attempts, for a second condition of the same name, for conditions on
// two values of the payload, and for more than 16 words or 4,096 bytes.
func ParseFilter(text string) (f Filter, err error) {
	if len(text) > MaxQuery || !utf8.ValidString(text) {
		return f, store.Invalid("query is no UTF-8 of up to %d bytes, but has %d bytes: shorten it", MaxQuery, len(text))
	}
	for _, term := range joinComparisons(queryTerm.FindAllString(text, -1)) {
		if err := f.add(term); err != nil {
			return Filter{}, err
		}
	}
	if len(f.Words) > maxWords {
		return Filter{}, store.Invalid("query has %d words: the limit is %d; put a text with spaces in quotes",
			len(f.Words), maxWords)
	}
	checked := f
	if f.Group == "" {
		checked.State = store.StateReady // any will do
	}
	return f, checked.Check()
}

// joinComparisons joins the terms of comparisons with spaces, such as total >= 100.
func joinComparisons(terms []string) (joined []string) {
	for i := 0; i < len(terms); i++ {
		if i+2 < len(terms) && operator.MatchString(terms[i+1]) {
			joined = append(joined, terms[i]+terms[i+1]+terms[i+2])
			i += 2
			continue
		}
		joined = append(joined, terms[i])
	}
	return joined
}

// unquoted returns a term without its quotes, and without the backslashes before characters in quotes.
func unquoted(term string) string {
	return quotedText.ReplaceAllStringFunc(term, func(text string) string {
		return escaped.ReplaceAllString(quotedText.FindStringSubmatch(text)[1], "$1")
	})
}

// add adds the condition of a term.
func (f *Filter) add(term string) error {
	if parts := named.FindStringSubmatch(term); parts != nil {
		name, value := parts[1], parts[2]
		if name == "header" {
			if header, value, ok := strings.Cut(value, "="); ok {
				return f.addHeader(unquoted(header), unquoted(value))
			}
			return store.Invalid("query has %.100q: give header:name=value, or put it in quotes to find the text", term)
		}
		texts := map[string]*string{"id": &f.ID, "error": &f.Error, "group": &f.Group, "payload": &f.Payload,
			"pattern": &f.ErrorPattern}
		if to := texts[name]; to != nil {
			if *to != "" {
				return store.Invalid("query has %s: twice: give it once", name)
			}
			*to = unquoted(value)
			return nil
		}
	}
	if parts := compared.FindStringSubmatch(term); parts != nil {
		path, op, value := parts[1], parts[2], unquoted(parts[3])
		if path == "attempts" {
			if n, err := strconv.Atoi(value); err == nil {
				return f.addAttempts(op, n)
			}
		}
		if _, rest, err := jsontext.ParsePath(path); err == nil && rest == "" {
			if f.JSON != nil {
				return store.Invalid("query compares %s and %s: compare one value of the payload", f.JSON.Path, path)
			}
			f.JSON = &Condition{Path: path, Op: op, Value: value}
			return nil
		}
	}
	if word := unquoted(term); word != "" {
		f.Words = append(f.Words, word)
	}
	return nil
}

func (f *Filter) addHeader(name, value string) error {
	if _, twice := f.Headers[name]; twice {
		return store.Invalid("query has header:%.100s= twice: give it once", name)
	}
	if f.Headers == nil {
		f.Headers = map[string]string{}
	}
	f.Headers[name] = value
	return nil
}

func (f *Filter) addAttempts(op string, n int) error {
	if n < 1 || op == "<" && n < 2 || op == "!=" || op == "~" {
		return store.Invalid("attempts counts failed attempts: give a comparison such as attempts>=1 or attempts<=3, " +
			"or put it in quotes to find the text")
	}
	switch op {
	case ">":
		f.MinAttempts = n + 1
	case ">=", "=":
		f.MinAttempts = n
	}
	switch op {
	case "<":
		f.MaxAttempts = n - 1
	case "<=", "=":
		f.MaxAttempts = n
	}
	return nil
}

// hasWords reports whether each word is in the id, the group, the key or the payload, whatever its case.
func (f *Filter) hasWords(m *store.Info) bool {
	for _, word := range f.Words {
		if !hasFold(m.ID, word) && !hasFold(m.Group, word) && !hasFold(m.Key, word) &&
			(f.NamesOnly || !hasFold(m.Payload, word)) {
			return false
		}
	}
	return true
}

// shortSearch is the product of the lengths of a text and a word up to which hasFold compares them at each position.
// It takes no memory, but a text such as aaa… would take as long as the product.
const shortSearch = 1 << 14

// hasFold reports whether a text contains a word if case is ignored.
func hasFold[T string | []byte](text T, word string) bool {
	switch {
	case len(text) < len(word) && isASCII(word):
		return false
	case !isASCII(word):
		return bytes.Contains(bytes.ToLower([]byte(text)), []byte(strings.ToLower(word)))
	case len(text)*len(word) > shortSearch:
		return bytes.Contains(lowered(text), lowered(word))
	}
	first := lower(word[0])
	for i := 0; i+len(word) <= len(text); i++ {
		if lower(text[i]) == first && equalFold(text[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// lowered returns a text with its ASCII letters in lower case.
func lowered[T string | []byte](text T) []byte {
	to := make([]byte, len(text))
	for i := range len(text) {
		to[i] = lower(text[i])
	}
	return to
}

func equalFold[T string | []byte](text T, word string) bool {
	for i := range len(word) {
		if lower(text[i]) != lower(word[i]) {
			return false
		}
	}
	return true
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + ('a' - 'A')
	}
	return b
}

// onlyWords reports whether a filter has words and no other condition on a message.
func (f *Filter) onlyWords() bool {
	rest := *f
	rest.Words = nil
	return len(f.Words) > 0 && f.Group == "" && !rest.LooksInside()
}

// Text returns the conditions of a filter in words, such as "order" and "42" in id, group, key or payload. It leaves
// out the state and the range.
func (f *Filter) Text() string {
	var all []string
	if len(f.Words) > 0 {
		words := make([]string, len(f.Words))
		for i, word := range f.Words {
			words[i] = strconv.Quote(word)
		}
		where := "id, group, key or payload"
		if f.NamesOnly {
			where = "id, group or key"
		}
		all = append(all, strings.Join(words, " and ")+" in "+where)
	}
	for _, part := range []struct{ what, text string }{{"id has", f.ID}, {"payload has", f.Payload},
		{"error has", f.Error}, {"pattern of the error is", f.ErrorPattern}, {"group is", f.Group}} {
		if part.text != "" {
			all = append(all, fmt.Sprintf("%s %q", part.what, part.text))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		all = append(all, fmt.Sprintf("header %s is %q", name, f.Headers[name]))
	}
	if f.JSON != nil {
		all = append(all, fmt.Sprintf("payload has %s %s %s", f.JSON.Path, f.JSON.Op, f.JSON.Value))
	}
	if f.MinAttempts > 0 {
		all = append(all, fmt.Sprintf("failed attempts >= %d", f.MinAttempts))
	}
	if f.MaxAttempts > 0 {
		all = append(all, fmt.Sprintf("failed attempts <= %d", f.MaxAttempts))
	}
	return strings.Join(all, "; ")
}
