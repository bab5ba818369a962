package remote

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/store"
)

// operation is a call of the store contract with arguments A and result R. The server runs it on its store, and so does
// a client whose store is in its own process.
type operation[A, R any] struct {
	name string
	run  func(ctx context.Context, s store.Store, args *A) (R, error)
	kind kind
	// takes is how long the call may wait in the store beyond what others do; nil is not at all.
	takes func(args *A) time.Duration
	// change describes an executed call to Server.OnChange. It is nil for reads and for the everyday work of programs.
	change func(args *A, result R) Change
	// repeated marks the arguments of a repeated call. It may be nil.
	repeated func(args *A)
	// reuse takes memory that a caller lends out of the arguments and returns a result that uses it. It may be nil.
	reuse func(args *A) R
}

// Change is an administrative change that a client has made.
type Change struct {
	What  string // such as "purge"
	Queue string
	Count int // messages that it concerned, if it is about messages
}

// kind says what a repetition of a call does.
type kind uint8

const (
	reads   kind = iota // it changes nothing
	changes             // it has an effect, once for each store.Request
	once                // it is not repeated
	waits               // it waits until something happens, or the server ends
	long                // it may take any time, and can be repeated
)

// takesLong reports whether a server sends beats until it replies.
func (k kind) takesLong() bool { return k == waits || k == long }

// endpoint is an operation, or a stream, as a server sees it.
type endpoint interface {
	path() string
	serve(s *Server, w http.ResponseWriter, r *http.Request, body []byte) error
}

// callable is an endpoint with one reply.
type callable interface {
	endpoint
	// call returns the encoded reply.
	call(ctx context.Context, s *Server, body []byte) ([]byte, error)
	// endsWithClient reports whether a call need not go on when its client is gone.
	endsWithClient() bool
	// takesLong reports whether the reply is in a stream of frames.
	takesLong() bool
}

func (op *operation[A, R]) path() string { return op.name }

func (op *operation[A, R]) serve(s *Server, w http.ResponseWriter, r *http.Request, body []byte) error {
	return s.reply(w, r, op, body)
}

func (op *operation[A, R]) endsWithClient() bool { return op.kind != changes }

func (op *operation[A, R]) takesLong() bool { return op.kind.takesLong() }

func (op *operation[A, R]) call(ctx context.Context, s *Server, body []byte) ([]byte, error) {
	var req request[A]
	if err := codec.Decode(body, &req); err != nil {
		return nil, err
	}
	if op.kind != changes {
		return op.answer(s.reading(ctx, req.Patient, op.kind), s, &req), nil
	}
	id := store.Request{Session: req.Session, Number: req.Number}
	if id.Session == "" || len(id.Session) > store.MaxSession || id.Number < 1 {
		return nil, store.Invalid("session of a request has %d bytes and its number is %d: give 1 to %d bytes, and 1 or more",
			len(id.Session), id.Number, store.MaxSession)
	}
	return s.memory.do(ctx, id, func() []byte {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit(req.Timeout))
		defer cancel()
		return op.answer(call{store.WithRequest(ctx, id), func() {}}, s, &req)
	})
}

// answer runs the operation and returns the encoded reply.
func (op *operation[A, R]) answer(c call, s *Server, req *request[A]) []byte {
	defer c.end()
	var answer reply[R]
	if args, ok := any(&req.Args).(checked); ok {
		answer.Err = args.check()
	}
	if answer.Err == nil {
		answer.Result, answer.Err = op.run(c.ctx, s.store, &req.Args)
	}
	if answer.Err == nil && op.change != nil && s.OnChange != nil {
		s.OnChange(c.ctx, op.change(&req.Args, answer.Result))
	}
	if op.kind == waits && c.ctx.Err() != nil {
		answer.Err = nil // it returns early for the server's own reasons
	}
	buffer := bodies.Get().(*[]byte) // since the reply is kept, in no more memory than it needs
	defer bodies.Put(buffer)
	*buffer = codec.Append((*buffer)[:0], &answer)
	return bytes.Clone(*buffer)
}

// limit returns how long the server goes on with a call. The caller's own context ends first, and says why.
func limit(timeout time.Duration) time.Duration {
	if timeout <= 0 || timeout > maxCall {
		return maxCall
	}
	return timeout + time.Second
}
