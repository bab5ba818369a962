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
		Extensions: map[string]any{"x-ogen-raw-response": true}} // ogen generates no servers of such streams
}

// sseWriter writes server-sent events to one client.
type sseWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	text    []byte // not yet written
}

// newSSEWriter begins the reply to a request.
func newSSEWriter(ctx huma.Context) sseWriter {
	_, w := humago.Unwrap(ctx)
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", eventsType)
	w.Header().Set("X-Accel-Buffering", "no") // proxies are to pass on each event at once
	return sseWriter{w: w, control: control}
}

// keptText is how much of a buffer a client keeps between events.
const keptText = 4 << 10

// write writes the text that was added, and reports whether the client takes it.
func (w *sseWriter) write() bool {
	taken := w.send(w.text)
	if w.text = w.text[:0]; cap(w.text) > keptText {
		w.text = nil
	}
	return taken
}

// send writes a text, which clients can share, and reports whether the client takes it.
func (w *sseWriter) send(text []byte) bool {
	if len(text) == 0 {
		return true
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // not all can
	_, err := w.w.Write(text)
	return err == nil && w.control.Flush() == nil
}
