package server

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	// heartbeatEvery is how often a stream of events shows that it is alive.
	heartbeatEvery = 15 * time.Second
	eventsType     = "text/event-stream"
	// maxZipped is how many streams are compressed at a time. Each takes about 0.8 MB.
	maxZipped = 64
)

func registerEvents(s *Server) {
	route(s, access.Look, on("GET /v1/events", "events", "watchEvents", "Watch events live",
		says("A stream of server-sent events (text/event-stream) of all processes that use the store: the "+
			"data of each is an event as JSON. Reconnect with Last-Event-ID, as EventSource does, to miss none of the last "+
			strconv.Itoa(maxRecent)+" within "+lingerTime.String()+". An event of the kind missed says how many were "+
			"missed, of any kind, or that an unknown number was. A comment every 15 s keeps the stream alive."),
		sends("Events", s.streamOf(eventsType, typeOf[wire.Event]()))), s.events)
	for _, p := range s.api.OpenAPI().Paths["/v1/events"].Get.Parameters {
		if p.Name == "kind" { // only described so: newEventFilter says more than a schema does of a kind that is wrong
			described := *p.Schema
			described.Items = s.schemaOf(typeOf[later.EventKind]())
			p.Schema = &described
		}
	}
}

type eventsInput struct {
	Queues      []string `query:"queue,explode" maxItems:"100" doc:"Only events of these queues, which need not exist yet. Default: all queues, also those that are created later"`
	Kinds       []string `query:"kind,explode" maxItems:"100" doc:"Only events of these kinds, such as sent, acked, nacked and died"`
	ID          string   `query:"id" maxLength:"128" doc:"Only events of messages with this id"`
	LastEventID string   `header:"Last-Event-ID" maxLength:"128" doc:"The id of the last event that was received"`
}

func (s *Server) events(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	filter, err := newEventFilter(ctx, in)
	if err != nil {
		return nil, err
	}
	ctx, done, err := s.wait(ctx, s.waits)
	if err != nil {
		return nil, err
	}
	f, err := s.feeds.join(ctx, s, filter.queues)
	if err != nil {
		done()
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer done()
		defer s.feeds.leave(f)
		stream := &eventStream{feed: f, filter: filter, sseWriter: newSSEWriter(hctx)}
		if hctx.Method() == http.MethodHead {
			return
		}
		var known bool
		if stream.next, known = f.position(in.LastEventID); !known && in.LastEventID != "" {
			stream.missed(0)
		}
		stream.run(ctx, s.heartbeat)
	}}, nil
}

// eventFilter selects the events of a stream.
type eventFilter struct {
	queues []string // sorted; none for all
	kinds  []string
	id     string
	hide   bool
	see    func(queue string) bool
}

func newEventFilter(ctx context.Context, in *eventsInput) (*eventFilter, error) {
	if err := checkQueues(ctx, in.Queues); err != nil {
		return nil, err
	}
	for _, kind := range in.Kinds {
		if !slices.Contains(view.EventKinds, later.EventKind(kind)) {
			return nil, field("query.kind", store.Invalid("%q is no kind of event: give some of %s", kind,
				view.Kinds(view.EventKinds)))
		}
	}
	return &eventFilter{queues: sortedSet(in.Queues), kinds: in.Kinds, id: in.ID, hide: hides(ctx), see: visible(ctx)}, nil
}

// matches reports whether a stream shows an event. An EventMissed of no queue concerns all.
func (f *eventFilter) matches(e *wire.Event) bool {
	if e.Queue != "" && (len(f.queues) > 0 && !slices.Contains(f.queues, e.Queue) || !f.see(e.Queue)) {
		return false
	}
	if e.Kind == later.EventMissed {
		return true
	}
	return (len(f.kinds) == 0 || slices.Contains(f.kinds, string(e.Kind))) && (f.id == "" || f.id == e.ID)
}

// eventStream is a client that receives events.
type eventStream struct {
	sseWriter
	feed   *feed
	filter *eventFilter
	next   uint64 // the number of the event to send next
}

// run writes events until the client is gone or too slow, or ctx or the feed ends.
func (st *eventStream) run(ctx context.Context, heartbeat time.Duration) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	client := st.feed.streams.join()
	defer client.leave()
	st.heartbeat()
	for st.write() {
		events, missed := st.feed.read(st.next, client)
		if missed > 0 {
			st.next += missed
			st.missed(missed)
		}
		for i := range events {
			st.add(&events[i])
		}
		if len(events) > 0 || missed > 0 {
			continue
		}
		select {
		case <-client.C:
		case <-tick.C:
			st.heartbeat()
		case <-ctx.Done():
			return
		case <-st.feed.ended:
			return // the client connects again, and learns why if that fails
		}
	}
}

// add appends the next event to the text that is written next.
func (st *eventStream) add(e *recentEvent) {
	st.next++
	if !st.filter.matches(&e.Event) {
		return
	}
	text := e.text
	if st.filter.hide && (e.Error != "" || e.Headers != nil) {
		hidden := e.Event
		hidden.Error, hidden.Headers = "", nil
		text = jsontext.Append(nil, &hidden)
	}
	st.append(text)
}

// missed adds an EventMissed; 0 stands for an unknown number.
func (st *eventStream) missed(n uint64) {
	event := &wire.Event{Time: wire.FormatTime(time.Now()), Kind: later.EventMissed, Missed: int(n)}
	st.append(jsontext.Append(nil, event))
}

func (st *eventStream) append(data []byte) {
	st.text = fmt.Appendf(st.text, "id: %s\ndata: %s\n\n", st.feed.idBefore(st.next), data)
}

// heartbeat adds a comment. The id after it is not the id of an event, but the client continues from it after a
// reconnect.
func (st *eventStream) heartbeat() {
	st.text = fmt.Appendf(st.text, ":\nid: %s\n\n", st.feed.idBefore(st.next))
}

// streamOf describes a stream with data of a type.
func (s *Server) streamOf(mediaType string, data reflect.Type) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{mediaType: {Schema: s.schemaOf(data),
		Extensions: map[string]any{"x-ogen-raw-response": true}}} // ogen generates no servers of such streams
}

// sseWriter writes server-sent events to one client.
type sseWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	text    []byte       // not yet written
	zip     *gzip.Writer // nil if the client is sent plain text
	written int          // bytes
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
	var err error
	if w.zip != nil {
		_, err = w.zip.Write(text)
		err = errors.Join(err, w.zip.Flush())
	} else {
		_, err = w.writeCounted(text)
	}
	return err == nil && w.control.Flush() == nil
}

// countedWriter writes the compressed text of an sseWriter.
type countedWriter struct{ *sseWriter }

func (w countedWriter) Write(text []byte) (int, error) { return w.writeCounted(text) }

func (w *sseWriter) writeCounted(text []byte) (int, error) {
	n, err := w.w.Write(text)
	w.written += n
	return n, err
}

// zip compresses a stream that has not begun, if the client takes gzip and not too many others do, and returns a
// function that ends the compression. Each event is sent at once. Events are compressed with the ones before them, of
// which most repeat a lot.
func (s *Server) zip(ctx huma.Context, w *sseWriter) (end func()) {
	r, _ := humago.Unwrap(ctx)
	w.w.Header().Add("Vary", "Accept-Encoding")
	free := func() { s.zipped.Add(-1) }
	if s.zipped.Add(1) > maxZipped || !takesGzip(r.Header["Accept-Encoding"]) {
		return free
	}
	w.w.Header().Set("Content-Encoding", "gzip")
	w.zip = gzip.NewWriter(countedWriter{w})
	return func() {
		_ = w.zip.Close() // the client may be gone
		free()
	}
}
