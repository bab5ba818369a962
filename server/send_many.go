package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

const (
	maxBatchBody = 16 << 20

	// A streamed part is sent when it has so many messages or bytes, or when no further line has arrived yet.
	partMessages = store.MaxBatch
	partBytes    = 1 << 20
)

type batchInput struct {
	QueuePath
	IdempotencyKey
	Body Batch
}

// Batch is several messages to send.
type Batch struct {
	Messages []Outgoing `json:"messages" minItems:"1" maxItems:"1000"`
}

// BatchResults are the results of several messages.
type BatchResults struct {
	Results []BatchResult `json:"results" doc:"One for each message, in order"`
}

// BatchResult is the result of one message: the reply of a single send, or the problem of the message.
type BatchResult struct {
	ID      string            `json:"id,omitempty"`
	Due     string            `json:"due,omitempty"`
	Outcome later.SendOutcome `json:"outcome,omitempty"`
	Error   *problem.Problem  `json:"error,omitempty"`
}

func (s *Server) sendBatch(ctx context.Context, in *batchInput) (*output[BatchResults], error) {
	return s.sendBodies(ctx, s.queueTarget(in.Queue), &in.Body, in.IdempotencyKey)
}

func (s *Server) sendBodies(ctx context.Context, to target, batch *Batch,
	key IdempotencyKey) (*output[BatchResults], error) {
	messages := make([]later.Outgoing, len(batch.Messages))
	for i := range messages {
		var err error
		if messages[i], err = batch.Messages[i].outgoing(); err != nil {
			return nil, field(fmt.Sprintf("messages[%d]", i), err)
		}
	}
	results, err := to.batchOnce(ctx, messages, key)
	if len(results) == 0 && err != nil {
		return nil, err
	}
	out := &output[BatchResults]{}
	out.Body.Results = make([]BatchResult, len(results))
	for i := range results {
		out.Body.Results[i] = s.batchResult(ctx, &messages[i], &results[i])
	}
	return out, nil
}

func (s *Server) batchResult(ctx context.Context, m *later.Outgoing, r *later.SendResult) BatchResult {
	result := BatchResult{ID: r.ID, Outcome: r.Outcome}
	if r.Err != nil {
		result.Error = s.problemOf(ctx, keyError(m.Once, r.Err))
	} else if !r.Duplicate || !r.Due.IsZero() {
		result.Due = dueOf(r, m.When)
	}
	return result
}

// problemOf returns the problem of an error as a part of a reply.
func (s *Server) problemOf(ctx context.Context, err error) *problem.Problem {
	return &s.failure(ctx, err).Problem
}

// sendStream takes requests with a message a line from sendBatch.
func (s *Server) sendStream(ctx huma.Context, next func(huma.Context)) {
	if contentType(ctx.Header("Content-Type")) != linesType {
		next(ctx)
		return
	}
	r, w := humago.Unwrap(ctx)
	if r.Header[keyHeader] != nil {
		problem.Write(w, 0, errKeyRefused)
		return
	}
	lasting, done, err := s.wait(ctx.Context(), s.streams)
	if err != nil {
		s.reply(w, r, 0, nil, err)
		return
	}
	defer done()
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // HTTP/1.1 would otherwise read the whole body before the first result
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // the rest of a body that ends early is not a request
	}
	w.Header().Set("Content-Type", linesType)
	body, stop := newRollingReader(lasting, r.Body, w, 0)
	defer stop()
	stream := &sendStream{Server: s, target: s.targetOf(ctx), control: control, to: w, body: body,
		from: bufio.NewReaderSize(body, 16<<10)}
	stream.run(ctx.Context())
}

// sendStream is a request with a message a line.
type sendStream struct {
	*Server
	target  target
	control *http.ResponseController
	body    *rollingReader
	from    *bufio.Reader
	to      io.Writer

	part    []later.Outgoing
	size    int
	give    []func()      // give back the room that the part takes
	results []BatchResult // of the lines since the last reply; empty for messages of part
	indices []int         // of the part's messages in results
}

// run sends messages until the body, the access of the sender or the server ends.
func (st *sendStream) run(ctx context.Context) {
	for {
		line, giveLine, err := st.readLine(ctx)
		if len(line) > 0 {
			st.take(ctx, line)
			st.body.renew() // an empty line does not count as progress
		}
		giveLine()
		full := len(st.results) == partMessages || st.size >= partBytes
		if (err != nil || full || !st.hasLine()) && !st.flush(ctx) {
			return
		}
		switch {
		case err == io.EOF:
			return
		case err != nil: // the rest of the body is unknown
			st.results = append(st.results, BatchResult{Error: st.problemOf(ctx, bodyError(err, wire.MaxMessage))})
			st.flush(ctx)
			return
		}
	}
}

// hasLine reports whether a line has arrived as a whole, so that reading it does not wait while a part takes memory.
func (st *sendStream) hasLine() bool {
	arrived, _ := st.from.Peek(st.from.Buffered())
	return bytes.IndexByte(arrived, '\n') >= 0
}

// take adds a line to the part.
func (st *sendStream) take(ctx context.Context, line []byte) {
	message, err := st.decode(ctx, line)
	if err == nil {
		err = message.Check()
	}
	if err == nil {
		err = st.hold(ctx, &message)
	}
	if err != nil {
		st.results = append(st.results, BatchResult{Error: st.problemOf(ctx, err)})
		return
	}
	st.indices = append(st.indices, len(st.results))
	st.part = append(st.part, message)
	st.results = append(st.results, BatchResult{})
	st.size += len(message.Payload)
}

// hold counts the bytes of a message until the part is sent.
func (st *sendStream) hold(ctx context.Context, message *later.Outgoing) error {
	give, err := st.bodies.await(ctx, int64(len(message.Payload)))
	if err == nil {
		st.give = append(st.give, give)
	}
	return err
}

// decode returns the message of a line, which is checked like the body of a single send.
func (st *sendStream) decode(ctx context.Context, line []byte) (later.Outgoing, error) {
	give, decoded, err := st.admitJSON(ctx, line, false)
	if err != nil {
		return later.Outgoing{}, field("line", err)
	}
	defer give()
	defer decoded()
	return decodeOutgoing(line)
}

// flush sends the part, writes the results and reports whether the client takes them.
func (st *sendStream) flush(ctx context.Context) bool {
	if len(st.results) == 0 {
		return true
	}
	if len(st.part) > 0 {
		sent, err := st.target.batch(ctx, st.part)
		for i, at := range st.indices {
			if len(sent) > 0 {
				st.results[at] = st.batchResult(ctx, &st.part[i], &sent[i])
			} else {
				st.results[at].Error = st.problemOf(ctx, err)
			}
		}
	}
	var lines bytes.Buffer
	for i := range st.results {
		_ = encodeJSON(&lines, &st.results[i]) // texts can always be encoded
	}
	for _, give := range st.give {
		give()
	}
	clear(st.part)
	st.part, st.indices, st.results, st.size, st.give = st.part[:0], st.indices[:0], st.results[:0], 0, st.give[:0]
	_ = st.control.SetWriteDeadline(time.Now().Add(stallTimeout)) // not all can
	_, err := st.to.Write(lines.Bytes())
	return err == nil && st.control.Flush() == nil
}

// readLine returns the next line without its end, or the rest of the input. Blank lines are empty. Its bytes are valid
// until give is called. A line that is longer than the buffer counts towards the limit of bodies as it arrives.
func (st *sendStream) readLine(ctx context.Context) (line []byte, give func(), err error) {
	line, err = st.from.ReadSlice('\n')
	counted, who := int64(0), senderOf(ctx)
	give = func() { st.bodies.Give(who, counted) }
	if errors.Is(err, bufio.ErrBufferFull) {
		long := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = st.from.ReadSlice('\n')
			if len(long)+len(line) > wire.MaxMessage {
				return nil, give, &http.MaxBytesError{Limit: wire.MaxMessage}
			}
			if err := st.bodies.refusal(st.bodies.Take(who, int64(len(line)))); err != nil {
				return nil, give, err
			}
			counted += int64(len(line))
			long = append(long, line...)
		}
		line = long
	}
	return bytes.TrimSpace(line), give, err
}
