package codec

import (
	"errors"
	"reflect"

	"github.com/laterq/later/store"
)

// encodedError is an encoded error: its text, the codes of all its kinds, first the code that store.CodeOf returns, and
// its field.
type encodedError struct {
	Text  string
	Codes []store.Code
	Field string
}

// Error is an error that was decoded. It has the text of the encoded one and the same kinds, for errors.Is and
// store.CodeOf. In store.Field it also keeps the field.
type Error struct {
	text  string
	kinds []error
}

func (e *Error) Error() string   { return e.text }
func (e *Error) Unwrap() []error { return e.kinds }

var kinds = func() map[store.Code]*store.Error {
	all := map[store.Code]*store.Error{}
	for _, kind := range store.Kinds() {
		all[kind.Code] = kind
	}
	return all
}()

func errorForm() *form { return formOf(reflect.TypeFor[encodedError]()) }

func appendError(b []byte, v reflect.Value) []byte {
	var e encodedError
	if err, _ := v.Interface().(error); err != nil {
		e = encodedError{err.Error(), []store.Code{store.CodeOf(err)}, store.FieldOf(err)}
		for _, kind := range store.Kinds() {
			if kind.Code != e.Codes[0] && errors.Is(err, kind) {
				e.Codes = append(e.Codes, kind.Code)
			}
		}
	}
	return errorForm().encode(b, reflect.ValueOf(&e).Elem())
}

func (d *decoder) error(v reflect.Value) {
	var e encodedError
	errorForm().decode(d, reflect.ValueOf(&e).Elem())
	if d.err != nil || len(e.Codes) == 0 {
		v.SetZero()
		return
	}
	err := e.decoded()
	if e.Field != "" {
		err = store.Field(e.Field, err)
	}
	v.Set(reflect.ValueOf(err))
}

func (e *encodedError) decoded() error {
	decoded := &Error{text: e.Text}
	for _, code := range e.Codes {
		kind := kinds[code]
		if kind == nil {
			continue // of a later version, or internal
		}
		if len(e.Codes) == 1 && kind.Error() == e.Text {
			return kind
		}
		decoded.kinds = append(decoded.kinds, kind)
	}
	return decoded
}
