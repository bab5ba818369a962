package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/jsonfields"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/store"
)

// parseTime parses a time in RFC 3339, a local date and time, or a local time of day, which means the next one after
// now.
func parseTime(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02 15:04:05.999"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04", "15:04:05"} {
		clock, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		for day := 0; ; day++ { // calendar days, which may have 23 or 25 hours
			t := time.Date(now.Year(), now.Month(), now.Day()+day,
				clock.Hour(), clock.Minute(), clock.Second(), 0, now.Location())
			if t.After(now) {
				return t, nil
			}
		}
	}
	return time.Time{}, errors.New(
		`give a time such as 15:04 (the next one), "2030-12-31 15:04:05" (both local) or 2030-12-31T15:04:05Z`)
}

// durationValue and timeValue are flag values.
type (
	durationValue struct{ d *time.Duration }
	timeValue     struct{ t *time.Time }
)

func (v durationValue) Set(text string) (err error) {
	*v.d, err = durations.Parse(text)
	return err
}

func (v durationValue) String() string {
	if v.d == nil || *v.d == 0 {
		return ""
	}
	return durations.Format(*v.d)
}

func (durationValue) Type() string { return "DURATION" }

// delayValue is a durationValue that takes a delay below zero for none, as later.In does.
type delayValue struct{ durationValue }

func (v delayValue) Set(text string) (err error) {
	*v.d, err = durations.ParseDelay(text)
	return err
}

func (v timeValue) Set(text string) (err error) {
	*v.t, err = parseTime(text, time.Now())
	if err == nil && v.t.IsZero() { // which would mean that there is none
		err = errors.New("must be a time from 1970 on, or omitted")
	}
	return err
}

func (v timeValue) String() string {
	if v.t == nil || v.t.IsZero() {
		return ""
	}
	return v.t.Format(time.RFC3339)
}

func (timeValue) Type() string { return "TIME" }

// onceValue refuses the second value of a flag, where pflag takes the last one.
type onceValue struct {
	pflag.Value
	given bool
}

func (v *onceValue) Set(text string) error {
	if v.given {
		return errors.New("it is given twice: give it once")
	}
	v.given = true
	return v.Value.Set(text)
}

// onlyOnce refuses a flag of a command, or of a command below it, that is given twice, unless it is a list.
func onlyOnce(cmd *cobra.Command) {
	once := func(f *pflag.Flag) {
		switch f.Value.(type) {
		case pflag.SliceValue, *offsetsValue:
		default:
			f.Value = &onceValue{Value: f.Value}
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(once)
	cmd.PersistentFlags().VisitAll(once)
	for _, sub := range cmd.Commands() {
		onlyOnce(sub)
	}
}

// take sets a setting to the value of a flag, if the flag is given.
func take[T any](flags *pflag.FlagSet, name string, setting *T, given T) {
	if flags.Changed(name) {
		*setting = given
	}
}

func durationFlag(flags *pflag.FlagSet, d *time.Duration, name, usage string) {
	flags.Var(durationValue{d}, name, usage)
}

func timeFlag(flags *pflag.FlagSet, t *time.Time, name, usage string) {
	flags.Var(timeValue{t}, name, usage)
}

// whenFlags are --in and --at.
type whenFlags struct {
	set *pflag.FlagSet
	in  time.Duration
	at  time.Time
}

func (w *whenFlags) add(flags *pflag.FlagSet) {
	w.set = flags
	flags.Var(delayValue{durationValue{&w.in}}, "in", "due after this delay, by the store's clock: 500ms, 30m, 2d12h")
	timeFlag(flags, &w.at, "at",
		`due at 15:04 (the next), "2030-12-31 15:04:05" (local) or 2030-12-31T15:04:05Z`)
}

// when returns the due time that the flags set. ok is false if neither is set.
func (w *whenFlags) when() (when later.When, ok bool, err error) {
	in, at := w.set.Changed("in"), w.set.Changed("at")
	switch {
	case in && at:
		return when, false, store.Invalid("--in and --at are both given: use one of them")
	case in:
		return later.In(w.in), true, nil
	case at:
		return later.At(w.at), true, nil
	}
	return when, false, nil
}

// due returns the due time that the flags set, where now is the store's clock. It is rounded up to a millisecond, like
// in the store.
func (w *whenFlags) due(now time.Time) time.Time {
	due := w.at
	if w.set.Changed("in") {
		due = now.Add(w.in)
	}
	return store.Time(store.UnixMillis(due))
}

// formatRelative formats t relative to now: "in 12.3s", "3m ago".
func formatRelative(t, now time.Time) string {
	switch d := t.Sub(now); {
	case d >= time.Millisecond:
		return "in " + durations.Format(d)
	case d <= -time.Millisecond:
		return durations.Format(-d) + " ago"
	}
	return "now"
}

// formatTime formats a local time, without the date if it is today.
func formatTime(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() == now.YearDay() && t.Year() == now.Year() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// formatWhen formats a local time, with its distance from now.
func formatWhen(t, now time.Time) string {
	return formatTime(t, now) + " (" + formatRelative(t, now) + ")"
}

// formatMillis formats a duration in milliseconds: 0.6ms.
func formatMillis(d time.Duration) string {
	return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
}

// percentile returns the smallest of the sorted durations that p percent of them do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}

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
