package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/message"
)

// addOptions defines the flags of the options of a message, which are the fields of the struct that of points to,
// without some of them.
func addOptions(flags *pflag.FlagSet, of any, without ...string) {
	for _, f := range jsonfields.Fields(of) {
		if slices.Contains(without, f.Name) {
			continue
		}
		usage, byDefault, ok := strings.Cut(f.Doc, ". Default: ")
		if usage = strings.ToLower(usage[:1]) + usage[1:]; ok {
			usage += " (default: " + byDefault + ")"
		}
		flags.Var(&optionValue{field: f, of: of}, message.FlagName(f.Name), usage)
	}
}

// optionValue is the value of a flag that sets an option of a message.
type optionValue struct {
	field *jsonfields.Field
	of    any
	given string
}

func (v *optionValue) Set(text string) error {
	v.given = text
	if at, ok := v.field.Value(v.of).Addr().Interface().(*message.Time); ok {
		return timeValue{&at.Time}.Set(text)
	}
	if err := v.field.SetText(v.of, text); err != nil {
		_, remedy, _ := strings.Cut(err.Error(), ": ") // pflag says the name and the value before
		return errors.New(remedy)
	}
	return nil
}

func (v *optionValue) String() string { return v.given }

func (v *optionValue) Type() string {
	switch v.field.Value(v.of).Interface().(type) {
	case message.Duration:
		return durationValue{}.Type()
	case message.Time:
		return timeValue{}.Type()
	case int:
		return "N"
	}
	return strings.ToUpper(v.field.Name)
}

// describeOptions calls show for each option of a message or schedule, except some, with its name in words and its
// value.
func describeOptions(of json.Marshaler, show func(name, value string), without ...string) {
	var o message.Options
	if text, err := of.MarshalJSON(); err != nil || json.Unmarshal(text, &o) != nil {
		return // the message cannot be read, so its options are unknown
	}
	for _, f := range jsonfields.Fields(&o) {
		value := f.Value(&o)
		if value.IsZero() || slices.Contains(without, f.Name) {
			continue
		}
		show(strings.ReplaceAll(f.Name, "_", " "), optionText(value))
	}
}

func optionText(value reflect.Value) string {
	switch v := value.Interface().(type) {
	case message.Duration:
		return durations.Format(time.Duration(v))
	case message.Time:
		return v.Local().Format("2006-01-02 15:04:05.000 -07:00") + " (" + formatRelative(v.Time, time.Now()) + ")"
	}
	return fmt.Sprint(value)
}
