package server

import (
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// eventsOf describes a stream of server-sent events with data of a type.
func (s *Server) eventsOf(data reflect.Type) *huma.MediaType {
	return &huma.MediaType{Schema: s.schemaOf(data),
		Extensions: map[string]any{"x-ogen-raw-response": true}} // it has no servers of such streams
}

// sseWriter writes server-sent events to one client.
type sseWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	text    []byte // what is to be written
}

// newSSEWriter begins the reply to a request.
func newSSEWriter(ctx huma.Context) sseWriter {
	_, w := humago.Unwrap(ctx)
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // else the client would count as gone after it; not all can
	w.Header().Set("Content-Type", eventsType)
	w.Header().Set("X-Accel-Buffering", "no") // proxies are to pass on each event at once
	return sseWriter{w: w, control: control}
}

// write writes what was added, and reports whether the client takes it.
func (w *sseWriter) write() bool {
	if len(w.text) == 0 {
		return true
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // not all can
	_, err := w.w.Write(w.text)
	w.text = w.text[:0]
	return err == nil && w.control.Flush() == nil
}
