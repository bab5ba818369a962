package server

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

// aboutField is before and after the name of a field at the beginning of an error's text, see fieldIn.
const aboutField = "\x00"

// decodeBody is decodeJSON for huma, which keeps only the text of an error: it begins with the field.
func decodeBody(text []byte, to any) error {
	err := decodeJSON(text, to)
	if e, ok := errors.AsType[*problem.Error](err); ok && e.Field != "" {
		return errors.New(aboutField + e.Field + aboutField + err.Error())
	}
	return err
}

// fieldIn returns the field at the beginning of a text of decodeBody, and the rest of the text.
func fieldIn(text string) (field, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, aboutField); ok {
		field, rest, ok = strings.Cut(rest, aboutField)
	}
	return field, rest, ok
}

// decodeJSON decodes JSON. It refuses JSON that is nested too deep, which costs its readers a lot of memory, text that
// encoding/json would change, and names that are given twice.
func decodeJSON(text []byte, to any) error {
	first, ok := to.(*any) // huma decodes twice
	if !ok {
		return wrongValue(text, json.Unmarshal(text, to))
	}
	if err := cmp.Or(jsontext.CheckDepth(text), jsontext.CheckText(text)); err != nil {
		return err
	}
	// Decode would take text after the value, and Unmarshal refuses numbers beyond those of a float64.
	if !json.Valid(text) {
		return json.Unmarshal(text, to)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(first); err != nil {
		return err
	}
	*first = withFloats(*first)
	return jsonfields.CheckNames(text)
}

// withFloats replaces the numbers in a value, because huma does not know json.Number. Those that are too large for a
// float64 may be in payloads, and become infinite; fields with numbers are not that large.
func withFloats(value any) any {
	switch v := value.(type) {
	case json.Number:
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = withFloats(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = withFloats(v[name])
		}
	}
	return value
}

// wrongValue returns an error of encoding/json, which may have names of Go, as one about a field: there are values that
// the description of a request allows and its fields do not take.
func wrongValue(text []byte, err error) error {
	if err == nil {
		return nil
	}
	whole := gjson.ParseBytes(text)
	where := pathTo(whole, "", func(name string, value gjson.Result) bool {
		_, err := base64.StdEncoding.DecodeString(value.Str)
		return name == "payload_base64" && err != nil
	})
	if where != "" {
		return field(where, store.Invalid("is not base64: must be in the standard encoding, with padding"))
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	text = text[:min(int(wrong.Offset), len(text))]
	number := ""
	where = pathTo(whole, "", func(_ string, value gjson.Result) bool {
		number = value.Raw
		return value.Type == gjson.Number && value.Index < len(text) && len(text) <= value.Index+len(value.Raw)
	})
	if where == "" {
		return store.Invalid("has a %s where it is not allowed", wrong.Value)
	}
	return field(where, store.Invalid("is %.40s: must be a whole number, without a point or an exponent", number))
}

// pathTo returns the path of the first value in JSON that matches, such as messages[1].max_attempts, or "". It does not
// look into payloads.
func pathTo(value gjson.Result, path string, matches func(name string, value gjson.Result) bool) (found string) {
	i, isObject := 0, value.IsObject()
	value.ForEach(func(name, inner gjson.Result) bool {
		at := fmt.Sprintf("%s[%d]", path, i)
		if isObject {
			at = strings.TrimPrefix(path+"."+name.Str, ".")
		}
		i++
		switch {
		case name.Str == "payload":
		case inner.IsObject() || inner.IsArray():
			found = pathTo(inner, at, matches)
		case matches(name.Str, inner):
			found = at
		}
		return found == ""
	})
	return found
}
