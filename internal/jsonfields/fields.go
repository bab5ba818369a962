package jsonfields

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

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
