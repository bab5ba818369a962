package server

import (
	"bytes"
	"io"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/tidwall/gjson"

	"github.com/laterq/later/internal/wire"
)

// sendFast sends a message from a body of JSON as it usually is. Any other goes on to huma, which knows what is wrong
// with it. Decoding a body twice to check it, as huma does, would take as long as all else that a send costs.
func (s *Server) sendFast(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	body, err := readAll(w, r, wire.MaxMessage)
	if err != nil {
		s.reply(w, r, 0, nil, err)
		return
	}
	o, ok := usualOutgoing(body)
	if !ok {
		r.Body = io.NopCloser(bytes.NewReader(body))
		next(ctx)
		return
	}
	message, err := o.outgoing()
	s.answerSend(ctx, message, err)
}

// usualOutgoing returns the message that a body describes with fields that most messages have. It returns false for a
// body with other fields, and for one that is not as its description says.
func usualOutgoing(body []byte) (o Outgoing, ok bool) {
	ok = eachField(body, o.setUsual)
	return o, ok
}

// eachField calls set with the fields of an object, and reports whether body is one, without a name twice, and set
// returned true for each field.
func eachField(body []byte, set func(name string, value gjson.Result) bool) (ok bool) {
	if !gjson.ValidBytes(body) || wire.CheckText(body) != nil {
		return false
	}
	object := gjson.ParseBytes(body)
	if !object.IsObject() {
		return false
	}
	ok = true
	seen := make([]string, 0, 16)
	object.ForEach(func(name, value gjson.Result) bool {
		ok = !slices.Contains(seen, name.Str) && set(name.Str, value)
		seen = append(seen, name.Str)
		return ok
	})
	return ok
}

// setUsual sets a field and reports whether it is one that usualOutgoing knows, with a value that is allowed.
func (o *Outgoing) setUsual(name string, value gjson.Result) bool {
	isText := value.Type == gjson.String
	switch name {
	case "payload":
		o.Payload = Text(value.Raw)
		return true
	case "in":
		o.In = Duration(value.Str)
	case "at":
		return isText && setTime(&o.At, value.Str) == nil
	case "id":
		o.ID = value.Str
	case "group":
		o.Group = value.Str
	case "timeout":
		o.Timeout = Duration(value.Str)
	case "dedup_window":
		o.DedupWindow = Duration(value.Str)
	case "max_attempts":
		return value.Type == gjson.Number && setCount(&o.MaxAttempts, value.Raw) == nil
	case "headers":
		return value.IsObject() && o.setHeaders(value)
	default:
		return false
	}
	return isText && value.Str != ""
}

func (o *Outgoing) setHeaders(object gjson.Result) (ok bool) {
	o.Headers, ok = map[string]string{}, true
	object.ForEach(func(name, value gjson.Result) bool {
		_, twice := o.Headers[name.Str]
		ok = !twice && value.Type == gjson.String
		o.Headers[name.Str] = value.Str
		return ok
	})
	return ok
}
