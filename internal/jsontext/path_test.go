package jsontext

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/store"
)

// TestPathFindsValues has the semantics of RFC 9535 for the subset.
func TestPathFindsValues(t *testing.T) {
	const doc = `{"order":{"total":7,"items":[{"sku":"a"},{"sku":"b"},7],"a name":1,"it's":2,"":3},"list":[[1,2],[3]],
		"twice":1,"twice":2,"@this":4,"ключ":5,"esc\u0061ped":6}`
	for path, want := range map[string][]string{
		"order.total":              {"7"},
		"$.order.total":            {"7"},
		"$['order'][\"total\"]":    {"7"},
		"order.items[1].sku":       {`"b"`},
		"order.items[*].sku":       {`"a"`, `"b"`},
		"order.items.*.sku":        {`"a"`, `"b"`},
		"list[*][0]":               {"1", "3"},
		"list[*]":                  {"[1,2]", "[3]"},
		"order['a name']":          {"1"},
		`order['it\'s']`:           {"2"},
		"order['']":                {"3"},
		"twice":                    {"2"},
		"$['@this']":               {"4"},
		"ключ":                     {"5"},
		"escaped":                  {"6"},
		"order.items[9]":           nil,
		"order.items.sku":          nil,
		"order[0]":                 nil,
		"order.total.x":            nil,
		"order.total[*]":           nil,
		"none":                     nil,
		"order['items'][0]['sku']": {`"a"`},
	} {
		p, rest, err := ParsePath(path)
		if err != nil || rest != "" {
			t.Errorf("%s: rest %q, %v", path, rest, err)
			continue
		}
		var got []string
		p.Find([]byte(doc), func(v gjson.Result) bool { got = append(got, v.Raw); return true })
		if !slices.Equal(got, want) {
			t.Errorf("%s finds %q, want %q", path, got, want)
		}
	}
}

func TestPathEndsWhereItsConditionBegins(t *testing.T) {
	for text, want := range map[string]string{
		"a.b >= 3": " >= 3", "a=1": "=1", "$['x = y'] = 1": " = 1", "a[0]~b.c": "~b.c", "$": "", "$ = 1": " = 1",
	} {
		if _, rest, err := ParsePath(text); err != nil || rest != want {
			t.Errorf("%q: rest %q, %v; want %q", text, rest, err, want)
		}
	}
}

func TestPathOutsideTheSubsetIsRefusedWithItsPosition(t *testing.T) {
	for path, want := range map[string]string{
		"":                                   "at byte 1: give a path",
		"@this":                              "at byte 1",
		"[@this,@this]":                      "at byte 1",
		"{a,b}":                              "at byte 1",
		"#.a":                                "at byte 1",
		"0.a":                                "at byte 1",
		"a.0":                                "at byte 3: give a name here, an index as [0]",
		"a.#":                                "at byte 3",
		"a.@reverse":                         "at byte 3",
		"$..a":                               "at byte 2: descendants",
		"a[-1]":                              "at byte 3",
		"a[01]":                              "at byte 5",
		"a[1:2]":                             "at byte 4",
		"a[?(@.b)]":                          "at byte 3",
		"a['b','c']":                         "at byte 5",
		`a['\x']`:                            "at byte 5",
		"a['b":                               "at byte 5",
		"a[99999999999]":                     "at byte 14",
		"a[*].b[*]":                          "at byte 9: a second wildcard",
		strings.Repeat("a.", MaxSteps) + "a": fmt.Sprintf("step %d", MaxSteps+1),
		strings.Repeat("a", MaxBytes+1):      "1025 bytes",
	} {
		if _, _, err := ParsePath(path); !errors.Is(err, store.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%.40q: %v; want %q", path, err, want)
		}
	}
}

func TestDepthIsLimited(t *testing.T) {
	nested := func(open, close string, n int) []byte {
		return []byte(strings.Repeat(open, n) + "1" + strings.Repeat(close, n))
	}
	for _, text := range [][]byte{nested("[", "]", MaxDepth), nested(`{"a":`, "}", MaxDepth), []byte(`["[[[[\"[[{{"]`),
		[]byte("[" + strings.Repeat("[1],", 1000) + "1]")} {
		if err := Check(text); err != nil {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	for _, text := range [][]byte{nested("[", "]", MaxDepth+1), nested(`{"a":[`, "]}", MaxDepth),
		nested("[", "", 8_000_000)} {
		if err := Check(text); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "64 deep at byte") {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	if err := Check([]byte(`{"a":`)); err == nil {
		t.Error("half of an object passes")
	}
}

// FuzzFind checks that no path and no JSON make ParsePath or Find panic, and that no value is found twice.
func FuzzFind(f *testing.F) {
	f.Add("$.a[*].b", []byte(`{"a":[{"b":1},{"b":[[[]]]}]}`))
	f.Add("a['b'][0]", []byte(strings.Repeat("[", 70)))
	f.Add("[@this,@this]|[@this,@this]", []byte(`{"@this":1}`))
	f.Fuzz(func(t *testing.T, path string, doc []byte) {
		p, rest, err := ParsePath(path)
		if err != nil || Check(doc) != nil {
			return
		}
		if !strings.HasSuffix(path, rest) {
			t.Fatalf("the rest %q is not the end of %q", rest, path)
		}
		values := 0
		p.Find(doc, func(v gjson.Result) bool { values += len(v.Raw); return true })
		if values > len(doc) {
			t.Fatalf("%s finds %d bytes in %d bytes", path, values, len(doc))
		}
	})
}
