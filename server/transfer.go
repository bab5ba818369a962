package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// leftOutTrailer is the trailer of an export that lacks messages which no store would accept.
const leftOutTrailer = "Later-Left-Out"

func registerTransfer(s *Server) {
	lines := map[string]*huma.MediaType{linesType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary",
		Description: "JSON objects, one a line: a header, the limits of queues and keys, a message each, and an end with " +
			"the number of messages"}}}
	route(s, access.Look, on("GET /v1/queues/{queue}/export", "transfer", "exportQueue",
		"Export the messages of a queue", fails(http.StatusNotFound),
		says("With the parameters of a list of messages only those that match, otherwise the whole queue with its "+
			"limits. It is complete if it has its end, a line with later_export_end. The trailer "+leftOutTrailer+
			" says what was left out because it is damaged."),
		sends("An export", lines)), s.exportQueue)
	route(s, access.Administer, on("POST /v1/import", "transfer", "importMessages",
		"Import messages that were exported", answers(http.StatusOK),
		says("A message whose id is live or within its dedup window changes nothing and is counted as a "+
			"duplicate, so an import can be repeated. A queue without limits gets those of the export. After an error the "+
			"lines before the one that it names are imported."),
		func(op *huma.Operation) { op.RequestBody = &huma.RequestBody{Required: true, Content: lines} }), s.importMessages)
}

type exportInput struct {
	QueuePath
	FilterQuery
}

func (s *Server) exportQueue(ctx context.Context, in *exportInput) (*huma.StreamResponse, error) {
	if hides(ctx) {
		return nil, hidden("payloads")
	}
	if err := store.CheckQueue(in.Queue); err != nil {
		return nil, field("path.queue", err)
	}
	cfg := migrate.ExportConfig{Queues: []string{in.Queue}}
	if !reflect.ValueOf(in.FilterQuery).IsZero() {
		filter, err := in.filter(ctx)
		if err != nil {
			return nil, err
		}
		cfg.Filter = &filter
	}
	if err := s.queueExists(ctx, in.Queue); errors.Is(err, store.ErrNotFound) { // one that cannot be counted can be read
		return nil, err
	}
	ctx, done, err := s.wait(ctx, s.transfers) // it may take long, and Close ends it
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer done()
		r, w := humago.Unwrap(hctx)
		s.writeExport(ctx, cfg, r, w)
	}}, nil
}

func (s *Server) writeExport(ctx context.Context, cfg migrate.ExportConfig, r *http.Request, w http.ResponseWriter) {
	to := &rollingWriter{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", linesType)
	result, err := migrate.Export(ctx, s.client, to, cfg)
	switch {
	case err == nil:
	case result.Complete:
		w.Header().Set(http.TrailerPrefix+leftOutTrailer, fmt.Sprintf("%+q", err.Error()))
	case to.began:
		s.log.Warn("export ended early", "queue", cfg.Queues[0], "messages", result.Messages, "error", err)
		panic(http.ErrAbortHandler) // so that the client knows
	default:
		s.reply(w, r, 0, nil, err)
	}
}

// rollingWriter limits the time of each write, and not of all together.
type rollingWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	began   bool
}

func (w *rollingWriter) Write(text []byte) (int, error) {
	w.began = true
	_ = w.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // not all can
	return w.w.Write(text)
}

type importInput struct {
	FromLine int64 `query:"from_line" minimum:"1" default:"1" doc:"Go on at this line of the body, after an import that ended early"`

	request *http.Request
	writer  http.ResponseWriter
}

// Resolve keeps the request, so that its body can be read line by line.
func (in *importInput) Resolve(ctx huma.Context) []error {
	in.request, in.writer = humago.Unwrap(ctx)
	return nil
}

// Imported is the result of an import.
type Imported struct {
	Queues     []wire.ImportedQueue `json:"queues" doc:"In the order in which they were met"`
	Imported   int64                `json:"imported"`
	Duplicates int64                `json:"duplicates"`
	Renamed    int64                `json:"renamed" doc:"Of both, those whose id, group or queue was . or .., which are now %2E and %2E%2E"`
}

func (s *Server) importMessages(ctx context.Context, in *importInput) (*output[Imported], error) {
	if err := access.Check(ctx, access.Administer, ""); err != nil { // the body names the queues
		return nil, err
	}
	ctx, done, err := s.wait(ctx, s.transfers) // it may take long, and Close ends it
	if err != nil {
		return nil, err
	}
	defer done()
	from, stop := newRollingReader(ctx, in.request.Body, in.writer, minProgress)
	defer stop()
	result, err := migrate.Import(ctx, s.client, from, migrate.ImportConfig{FromLine: in.FromLine})
	out := outputOf(Imported{Queues: []wire.ImportedQueue{}, Imported: result.Imported, Duplicates: result.Duplicates,
		Renamed: result.Renamed})
	for _, q := range result.Queues {
		out.Body.Queues = append(out.Body.Queues, wire.ImportedQueue{Queue: q.Queue, Imported: q.Imported,
			Duplicates: q.Duplicates, Renamed: q.Renamed, Limits: string(q.Limits)})
		if q.Limits == migrate.LimitsSet {
			s.Changed(ctx, "limits imported", slog.String("queue", q.Queue))
		}
	}
	if result.Imported > 0 {
		s.Changed(ctx, "messages imported", slog.Int("queues", len(result.Queues)), slog.Int64("count", result.Imported))
	}
	return out, importError(err, result)
}

// importError returns the error of an import, with the number of messages that were imported before it.
func importError(err error, result migrate.ImportResult) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, migrate.ErrIncomplete):
		err = store.Invalid("%v", err)
	}
	if done := result.Imported + result.Duplicates; done > 0 {
		err = fmt.Errorf("%d messages were imported, go on with from_line=%d: %w", done, result.NextLine, err)
	}
	if code := store.CodeOf(err); code == store.ErrInvalid.Code || code == store.ErrTooLarge.Code {
		return field("body", err)
	}
	return err
}

// minProgress is how many bytes of an import have to come within stallTimeout.
const minProgress = 4 << 10

// rollingReader limits the time of parts of a body, and not of all together. Reads end with ctx.
type rollingReader struct {
	ctx     context.Context
	r       io.Reader
	control *http.ResponseController
	every   int // renew the time whenever so many bytes have come; 0 for never
	read    int // since the last time
}

// newRollingReader returns a reader of a body. The caller calls stop.
func newRollingReader(ctx context.Context, body io.Reader, w http.ResponseWriter, every int) (r *rollingReader,
	stop func() bool) {
	r = &rollingReader{ctx: ctx, r: body, control: http.NewResponseController(w), every: every}
	r.renew()
	return r, context.AfterFunc(ctx, func() { _ = r.control.SetReadDeadline(time.Unix(1, 0)) })
}

// renew gives the client the whole time again.
func (r *rollingReader) renew() {
	r.read = 0
	_ = r.control.SetReadDeadline(time.Now().Add(stallTimeout)) // not all can
}

func (r *rollingReader) Read(to []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.r.Read(to)
	if r.read += n; r.every > 0 && r.read >= r.every {
		r.renew()
	}
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case r.ctx.Err() != nil:
		return n, context.Cause(r.ctx)
	}
	return n, bodyError(err, 0)
}
