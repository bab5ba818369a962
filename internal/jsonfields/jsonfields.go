// Package jsonfields decodes JSON objects that people write, with errors that name the field.
package jsonfields

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// Decode sets the variables that fields points to, by the names of their fields in a JSON object. A field that is not
// among them and a value of a wrong type are an ErrInvalid. Fields that the object does not have are left alone.
func Decode(object []byte, fields map[string]any) error {
	if err := jsontext.CheckDepth(object); err != nil {
		return err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil {
		return store.Invalid("not a JSON object: %v", asInvalid(err))
	}
	unknown := ""
	for _, name := range slices.Sorted(maps.Keys(values)) {
		variable, ok := fields[name]
		if !ok {
			unknown = name
			continue
		}
		if err := json.Unmarshal(values[name], variable); err != nil {
			return fmt.Errorf("field %q: %w", name, asInvalid(err))
		}
	}
	if unknown != "" {
		names := slices.Sorted(maps.Keys(fields))
		return store.Invalid("field %q is unknown%s", unknown,
			nearest.DidYouMean(unknown, names, "give some of "+strings.Join(names, ", ")))
	}
	return nil
}

func asInvalid(err error) error {
	if store.CodeOf(err) != store.Internal {
		return err
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return store.Invalid("it is of type %s: give %s", wrong.Value, wanted(wrong.Type))
	}
	if wrong, ok := errors.AsType[*time.ParseError](err); ok {
		return store.Invalid("%q is no time: give one such as 2030-12-31T15:04:05Z", nearest.Clip(wrong.Value))
	}
	return store.Invalid("%s", strings.TrimPrefix(err.Error(), "json: "))
}

// wanted describes the JSON of a type.
func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[*Duration]() || t == reflect.TypeFor[Duration]() {
		return `a duration such as "90s"`
	}
	switch t.Kind() {
	case reflect.String:
		return "a text, in quotes"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object with fields"
	case reflect.Int:
		return "a whole number"
	}
	return "a number"
}

// Duration is a time.Duration whose JSON is a text for time.ParseDuration, such as "1h30m", or with days, as in 2d12h.
type Duration time.Duration

// MarshalText returns the text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText returns an ErrInvalid for a text that is no duration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		parsed, err = durations.Parse(string(text))
	}
	if err != nil {
		return store.Invalid("%q is no duration: give one such as 90s, 15m or 1h30m", nearest.Clip(string(text)))
	}
	*d = Duration(parsed)
	return nil
}
