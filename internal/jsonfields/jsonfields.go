// Package jsonfields decodes JSON objects that people and programs write, into structs whose tags describe the fields,
// with errors that name the field. It is stricter than encoding/json, which accepts names in any case, unknown names,
// names that are given twice and text that is not Unicode. It may import gjson, package store and internal packages
// about text. Start with Decode.
package jsonfields

import (
	"cmp"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/nearest"
	"github.com/laterq/later/store"
)

// Decode sets the fields of the struct that into points to, by the names in their tags, from a JSON object. The tags
// are those of package huma, so that the OpenAPI description says what Decode accepts: minimum and maximum of numbers,
// minLength and maxLength of texts, minItems and maxItems of lists, and enum. A field without omitempty or omitzero is
// required.
//
// Decode returns an ErrInvalid, with its field, for everything that does not fit: a field that is unknown, missing,
// given twice, null, of a wrong type or out of its limits, JSON that is nested deeper than jsontext.MaxDepth, and text
// that is not Unicode. After an error some fields may be set. A json.RawMessage shares memory with the
// texts of the struct, and not with object.
func Decode(object []byte, into any) error {
	if err := jsontext.CheckDepth(object); err != nil {
		return err
	}
	if !gjson.ValidBytes(object) {
		var any json.RawMessage
		return store.Invalid("text is not one JSON object: %s", errorText(json.Unmarshal(object, &any)))
	}
	if err := jsontext.CheckText(object); err != nil {
		return err
	}
	return decodeObject(gjson.ParseBytes(object), reflect.ValueOf(into).Elem())
}

func errorText(err error) string {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("%v at byte %d", err, syntax.Offset)
	}
	return fmt.Sprint(err)
}

// Field is a field of a struct.
type Field struct {
	Name string
	Doc  string // of its doc tag

	index     []int
	required  bool
	isNumber  bool
	isText    bool
	number    int // its position among the fields
	min, max  int64
	minItems  int
	maxItems  int
	notEmpty  bool
	maxLength int // in characters
	enum      []string
}

// Fields returns the fields of the struct that a pointer points to, fields of embedded structs included, in order.
func Fields(of any) []*Field { return fieldsOf(reflect.TypeOf(of).Elem()).all }

// IsText reports whether the field is a text, a number, or of a type with a text: whether SetText can set it.
func (f *Field) IsText() bool { return f.isText }

// SetText sets the field in the struct that into points to, from a text as in a header or a flag. It returns an
// ErrInvalid for a text that the field cannot have.
func (f *Field) SetText(into any, text string) error {
	value := gjson.Result{Type: gjson.String, Str: text}
	if f.isNumber {
		value = gjson.Result{Type: gjson.Number, Raw: text}
	}
	return f.set(f.Value(into), value)
}

// Value returns the value of the field in the struct that into points to.
func (f *Field) Value(into any) reflect.Value {
	return reflect.ValueOf(into).Elem().FieldByIndex(f.index)
}

func decodeObject(object gjson.Result, into reflect.Value) (err error) {
	if !object.IsObject() {
		return store.Invalid("text is not a JSON object but %s", kindOf(object))
	}
	fields := fieldsOf(into.Type())
	var seen, unknown = uint64(0), ""
	object.ForEach(func(name, value gjson.Result) bool {
		f := fields.byName[name.Str]
		switch {
		case f == nil:
			unknown = cmp.Or(unknown, nearest.Clip(name.Str), `""`)
			return true
		case seen&(1<<f.number) != 0:
			err = store.Field(f.Name, store.Invalid("field %q is given twice: give it once", f.Name))
		default:
			err = f.set(into.FieldByIndex(f.index), value)
		}
		seen |= 1 << f.number
		return err == nil
	})
	switch {
	case err != nil:
		return err
	case unknown != "":
		return store.Field(unknown, store.Invalid("field %q is unknown%s", unknown,
			nearest.DidYouMean(unknown, fields.names, "give some of "+strings.Join(fields.names, ", "))))
	}
	for _, f := range fields.all {
		if f.required && seen&(1<<f.number) == 0 {
			return store.Field(f.Name, store.Invalid("field %q is missing: give it", f.Name))
		}
	}
	return nil
}

// set sets the field.
func (f *Field) set(to reflect.Value, value gjson.Result) error {
	err := f.decode(to, value)
	if err == nil || store.FieldOf(err) == "" || !strings.HasPrefix(store.FieldOf(err), f.Name+"[") {
		err = store.Field(f.Name, err)
	}
	return err
}

func (f *Field) refuse(format string, args ...any) error {
	return store.Invalid("field %q %s", f.Name, fmt.Sprintf(format, args...))
}

func (f *Field) wrong(value gjson.Result, want string) error {
	return f.refuse("is %s: must be %s", kindOf(value), want)
}

// decode sets a value of the field, or a part of it.
func (f *Field) decode(to reflect.Value, value gjson.Result) error {
	pointer := to.Addr().Interface()
	if p, ok := pointer.(*json.RawMessage); ok {
		*p = unsafe.Slice(unsafe.StringData(value.Raw), len(value.Raw)) // payloads are large, and not copied again
		return nil
	}
	if value.Type == gjson.Null {
		return f.wrong(value, wanted(to.Type())+", or left out")
	}
	isText := value.Type == gjson.String
	switch p := pointer.(type) {
	case *[]byte:
		b, err := base64.StdEncoding.Strict().DecodeString(value.Str)
		if err != nil || !isText {
			return f.refuse("is not in base64: must be in the standard encoding with padding")
		}
		*p = append([]byte{}, b...)
		return nil
	case *map[string]string:
		return f.texts(p, value)
	case encoding.TextUnmarshaler:
		if !isText {
			return f.wrong(value, wanted(to.Type()))
		}
		return f.ofField(p.UnmarshalText([]byte(value.Str)))
	case json.Unmarshaler:
		return f.ofField(p.UnmarshalJSON([]byte(value.Raw)))
	}
	switch to.Kind() {
	case reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		return f.decode(to.Elem(), value)
	case reflect.String:
		return f.text(to, value)
	case reflect.Int, reflect.Int64:
		return f.whole(to, value)
	case reflect.Struct:
		return f.ofField(decodeObject(value, to))
	case reflect.Slice:
		return f.list(to, value)
	}
	return f.ofField(json.Unmarshal([]byte(value.Raw), pointer))
}

func (f *Field) text(to reflect.Value, value gjson.Result) error {
	switch text := value.Str; {
	case value.Type != gjson.String:
		return f.wrong(value, "a text, in quotes")
	case text == "" && f.notEmpty:
		return f.refuse("is empty: give a value, or leave it out")
	case len(text) > f.maxLength && utf8.RuneCountInString(text) > f.maxLength:
		return f.refuse("has more than %d characters: the limit is %d", f.maxLength, f.maxLength)
	case f.enum != nil && !slices.Contains(f.enum, text):
		return f.refuse("is %q: must be one of %s", nearest.Clip(text), strings.Join(f.enum, ", "))
	}
	to.SetString(value.Str)
	return nil
}

func (f *Field) whole(to reflect.Value, value gjson.Result) error {
	n, err := strconv.ParseInt(value.Raw, 10, 64)
	switch {
	case value.Type != gjson.Number:
		return f.wrong(value, "a whole number")
	case err != nil || n < f.min || n > f.max:
		return f.refuse("is %s: must be a whole number of %d to %d", nearest.Clip(value.Raw), f.min, f.max)
	}
	to.SetInt(n)
	return nil
}

// texts sets an object of texts.
func (f *Field) texts(to *map[string]string, object gjson.Result) (err error) {
	if !object.IsObject() {
		return f.wrong(object, "an object of texts")
	}
	*to = map[string]string{}
	object.ForEach(func(name, value gjson.Result) bool {
		_, twice := (*to)[name.Str]
		switch {
		case f.maxItems > 0 && len(*to) == f.maxItems && !twice:
			err = store.TooLarge("field %q has more than %d names: the limit is %d", f.Name, f.maxItems, f.maxItems)
		case twice:
			err = f.refuse("has %q twice: give it once", name.Str)
		case value.Type != gjson.String:
			err = f.refuse("has %s under %q: must be an object of texts", kindOf(value), nearest.Clip(name.Str))
		}
		(*to)[name.Str] = value.Str
		return err == nil
	})
	return err
}

func (f *Field) list(to reflect.Value, list gjson.Result) (err error) {
	if !list.IsArray() {
		return f.wrong(list, "a list")
	}
	list.ForEach(func(_, value gjson.Result) bool {
		n := to.Len()
		if f.maxItems > 0 && n == f.maxItems {
			err = f.refuse("has more than %d elements: the limit is %d", f.maxItems, f.maxItems)
			return false
		}
		to.Set(reflect.Append(to, reflect.Zero(to.Type().Elem())))
		if err = f.element(to.Index(n), value); err != nil {
			at := fmt.Sprintf("%s[%d]", f.Name, n)
			err = store.Field(at, fmt.Errorf("%s: %w", at, err))
		}
		return err == nil
	})
	if err == nil && to.Len() < f.minItems {
		err = f.refuse("has %d elements: must have at least %d", to.Len(), f.minItems)
	}
	return err
}

// element sets an element of a list.
func (f *Field) element(to reflect.Value, value gjson.Result) error {
	switch p := to.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
	case json.Unmarshaler:
		return asInvalid(p.UnmarshalJSON([]byte(value.Raw)))
	default:
		if to.Kind() == reflect.Struct {
			return decodeObject(value, to)
		}
	}
	return f.decode(to, value)
}

// ofField returns an error with the name of the field.
func (f *Field) ofField(err error) error {
	if err == nil {
		return nil
	}
	if err = asInvalid(err); strings.HasPrefix(err.Error(), "is ") {
		return fmt.Errorf("field %q %w", f.Name, err)
	}
	return fmt.Errorf("field %q: %w", f.Name, err)
}

func asInvalid(err error) error {
	if err == nil || store.CodeOf(err) != store.Internal {
		return err
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return store.Invalid("is of type %s: must be %s", wrong.Value, wanted(wrong.Type))
	}
	if wrong, ok := errors.AsType[*time.ParseError](err); ok {
		return store.Invalid("%q is no time: give one such as 2030-12-31T15:04:05Z", nearest.Clip(wrong.Value))
	}
	return store.Invalid("%s", strings.TrimPrefix(err.Error(), "json: "))
}

// kindOf describes a value.
func kindOf(value gjson.Result) string {
	switch {
	case value.Type == gjson.Null:
		return "null"
	case value.IsBool():
		return "true or false"
	case value.Type == gjson.Number:
		return "a number"
	case value.Type == gjson.String:
		return "a text"
	case value.IsArray():
		return "a list"
	}
	return "an object"
}

// wanted describes the JSON of a type.
func wanted(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "a time such as 2030-12-31T15:04:05Z"
	case t.ConvertibleTo(reflect.TypeFor[time.Duration]()) && t.Kind() == reflect.Int64:
		return `a duration such as "90s"`
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return "a text"
	}
	switch t.Kind() {
	case reflect.String:
		return "a text, in quotes"
	case reflect.Slice:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object with fields"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
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

// fields are the fields of a type of structs.
type fields struct {
	all    []*Field
	byName map[string]*Field
	names  []string
}

var fieldsOfTypes sync.Map // of *fields by reflect.Type

func fieldsOf(t reflect.Type) *fields {
	if known, ok := fieldsOfTypes.Load(t); ok {
		return known.(*fields)
	}
	made := &fields{byName: map[string]*Field{}}
	made.add(t, nil)
	if len(made.all) > 64 {
		panic(fmt.Sprintf("jsonfields: %v has more than 64 fields", t))
	}
	known, _ := fieldsOfTypes.LoadOrStore(t, made)
	return known.(*fields)
}

// add adds the fields of a struct, and the fields of structs that are embedded in it.
func (fs *fields) add(t reflect.Type, index []int) {
	for i := range t.NumField() {
		v, at := t.Field(i), append(slices.Clone(index), i)
		name, options, _ := strings.Cut(v.Tag.Get("json"), ",")
		if name == "" && v.Anonymous {
			fs.add(v.Type, at)
		}
		if name == "" || name == "-" {
			continue
		}
		most := int64(math.MaxInt32)
		if v.Type.Kind() == reflect.Int64 {
			most = math.MaxInt64
		}
		f := &Field{
			Name: name, Doc: v.Tag.Get("doc"), index: at, number: len(fs.all),
			required: !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero"),
			isNumber: v.Type.Kind() == reflect.Int, notEmpty: v.Tag.Get("minLength") != "",
			maxLength: int(number(v, "maxLength", math.MaxInt32)),
			min:       number(v, "minimum", 0), max: number(v, "maximum", most),
			minItems: int(number(v, "minItems", 0)),
			maxItems: int(max(number(v, "maxItems", 0), number(v, "maxProperties", 0))),
			isText:   isText(v.Type),
		}
		if enum := v.Tag.Get("enum"); enum != "" {
			f.enum = strings.Split(enum, ",")
		}
		if fs.byName[name] != nil {
			panic(fmt.Sprintf("jsonfields: %v has the field %s twice", t, name))
		}
		fs.all = append(fs.all, f)
		fs.byName[name] = f
		fs.names = append(fs.names, name)
	}
}

// isText reports whether a type is a text, a number or one with a text.
func isText(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.String || t.Kind() == reflect.Int ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// number returns the number in a tag, or a default.
func number(f reflect.StructField, tag string, without int64) int64 {
	text := f.Tag.Get(tag)
	if text == "" {
		return without
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("jsonfields: tag %s of field %s: %v", tag, f.Name, err))
	}
	return n
}
