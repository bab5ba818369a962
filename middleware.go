package later

import (
	"errors"

	"github.com/laterq/later/store"
)

// InvalidMiddleware returns a middleware in place of one with a configuration that is not allowed: Worker.Run returns
// err, as an ErrInvalid, and delivers nothing. It is for packages with middleware, because their constructors return no
// error. err says how to change the configuration.
func InvalidMiddleware(err error) func(HandlerFunc) HandlerFunc {
	if !errors.Is(err, ErrInvalid) {
		err = store.Invalid("middleware: %v", err)
	}
	return func(HandlerFunc) HandlerFunc { panic(refusal{err}) }
}

// refusal is the panic of a middleware that is not allowed. It ends in Worker.Run, also through middleware that calls
// other middleware.
type refusal struct{ error }

// recoverRefusal is deferred by callers of middleware, and sets the error that it returns.
func recoverRefusal(err *error) {
	switch p := recover().(type) {
	case nil:
	case refusal:
		*err = p.error
	default:
		panic(p)
	}
}
