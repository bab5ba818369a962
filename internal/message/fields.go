package message

import (
	"reflect"
	"sync"
	"time"

	"github.com/laterq/later/store"
)

// OptionsOf returns the options of a message, in whole milliseconds. It takes a pointer to a store.Message, or to
// another struct with fields of the same names and types.
func OptionsOf(message any) (o Options) {
	each(&o, message, func(option, field any) {
		switch option := option.(type) {
		case *Duration:
			*option = NewDuration(*field.(*time.Duration))
		case *Time:
			*option = NewTime(*field.(*time.Time))
		case *string:
			*option = *field.(*string)
		case *store.Urgency:
			*option = *field.(*store.Urgency)
		case *int:
			*option = *field.(*int)
		}
	})
	return o
}

// Set sets the options of a message that OptionsOf can read.
func (o *Options) Set(message any) {
	each(o, message, func(option, field any) {
		switch option := option.(type) {
		case *Duration:
			*field.(*time.Duration) = time.Duration(*option)
		case *Time:
			*field.(*time.Time) = option.Time
		case *string:
			*field.(*string) = *option
		case *store.Urgency:
			*field.(*store.Urgency) = *option
		case *int:
			*field.(*int) = *option
		}
	})
}

// each calls f with pointers to each option that the struct message has a field for, and to that field.
func each(o *Options, message any, f func(option, field any)) {
	options, fields := reflect.ValueOf(o).Elem(), reflect.ValueOf(message).Elem()
	for _, p := range pairsOf(fields.Type()) {
		f(options.FieldByIndex(p.option).Addr().Interface(), fields.FieldByIndex(p.field).Addr().Interface())
	}
}

// pair has the indexes of an option in Options and in a struct.
type pair struct{ option, field []int }

// known has the pairs of each type of struct.
var known sync.Map

func pairsOf(t reflect.Type) []pair {
	if pairs, ok := known.Load(t); ok {
		return pairs.([]pair)
	}
	var pairs []pair
	for _, option := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		if field, ok := t.FieldByName(option.Name); ok && !option.Anonymous {
			pairs = append(pairs, pair{option.Index, field.Index})
		}
	}
	known.Store(t, pairs)
	return pairs
}
