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
// a client with a store in its own process.
type operation[A, R any] struct {
	name string
	run  func(ctx context.Context, s store.Store, args *A) (R, error)
	kind kind
	// runAt runs it at a server, if that differs from run. It may be nil.
	runAt func(ctx context.Context, s *Server, args *A) (R, error)
	// check returns an ErrInvalid or ErrTooLarge for arguments that a server refuses, since any program can be the
	// sender. nil allows all.
	check func(args *A) error
	// queue returns the queue that the call is about. It is nil for calls that administers does not report.
	queue func(args *A) string
	// takes is how much longer than others the call may wait in the store; nil is not at all.
	takes func(args *A) time.Duration
	// change describes an executed call to Server.OnChange. It is nil for reads and for the everyday work of programs.
	change func(args *A, result R) Change
	// large returns about how many bytes the reply has at most, if that can be more than a few. It may be nil.
	large func(args *A) int
	// undo returns a function that undoes an executed call and returns the result for a repetition, or nil if there is
	// nothing to undo. It is called when no reply could be delivered. undo itself is nil for calls that are worth
	// keeping.
	undo func(args *A, result R) func(ctx context.Context, s store.Store) (R, error)
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

// kind is the effect of a repetition of a call.
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
	serve(s *Server, w http.ResponseWriter, r *http.Request, buffer *[]byte) error
}

// callable is an endpoint with one reply.
type callable interface {
	endpoint
	// call executes the call in a buffer, which it empties, and returns the reply.
	call(ctx context.Context, s *Server, buffer *[]byte) (response, error)
	// endsWithClient reports whether a call need not go on when its client is gone.
	endsWithClient() bool
	// takesLong reports whether the reply is in a stream of frames.
	takesLong() bool
	// undoes reports whether the call is undone when its reply cannot be delivered. Then it is not executed either when
	// its caller has gone.
	undoes() bool
}

// response is an encoded reply.
type response struct {
	body        []byte
	undelivered func() // nil if nothing is to be done
	taken       int64  // of the budget for replies
	from        *budget
}

// free says that the reply was sent, or could not be.
func (r *response) free() {
	if r.from != nil {
		r.from.give(r.taken)
		r.from = nil
	}
}

// undo says that the reply could not be delivered.
func (r *response) undo() {
	if r.undelivered != nil {
		r.undelivered()
	}
}

func (op *operation[A, R]) path() string { return op.name }

func (op *operation[A, R]) serve(s *Server, w http.ResponseWriter, r *http.Request, buffer *[]byte) error {
	return s.reply(w, r, op, buffer)
}

func (op *operation[A, R]) endsWithClient() bool { return op.kind != changes }

func (op *operation[A, R]) takesLong() bool { return op.kind.takesLong() }

func (op *operation[A, R]) undoes() bool { return op.undo != nil }

func (op *operation[A, R]) call(ctx context.Context, s *Server, buffer *[]byte) (answer response, err error) {
	var req request[A]
	if err := codec.Decode(*buffer, &req); err != nil {
		return response{}, err
	}
	emptyBody(buffer) // it was copied
	var taken int64
	if op.large != nil {
		if taken, err = s.budgets.replies.take(s.closing, int64(op.large(&req.Args))); err != nil {
			return response{}, err
		}
	}
	if op.kind == changes {
		answer, err = op.callOnce(ctx, s, &req)
	} else {
		answer.body = op.answer(s.reading(ctx, req.Patient, op.kind), s, &req).reply
	}
	size := int64(0)
	if len(answer.body) > largeFrame {
		size = min(int64(len(answer.body)), taken)
	}
	s.budgets.replies.give(taken - size)
	answer.taken, answer.from = size, s.budgets.replies
	return answer, err
}

// callOnce executes a call that changes something, unless it was executed before.
func (op *operation[A, R]) callOnce(ctx context.Context, s *Server, req *request[A]) (response, error) {
	id := store.Request{Session: req.Session, Number: req.Number}
	if id.Session == "" || len(id.Session) > store.MaxSession || id.Number < 1 {
		return response{}, store.Invalid(
			"session of a request has %d bytes and its number is %d: must have 1 to %d bytes, and 1 or more",
			len(id.Session),
			id.Number, store.MaxSession)
	}
	return s.memory.do(ctx, id, func() result {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit(req.Timeout))
		defer cancel()
		return op.answer(call{store.WithRequest(ctx, id), func() {}}, s, req)
	})
}

// answer runs the operation and returns the encoded reply.
func (op *operation[A, R]) answer(c call, s *Server, req *request[A]) result {
	defer c.end()
	var answer reply[R]
	if op.check != nil {
		answer.Err = op.check(&req.Args)
	}
	switch {
	case answer.Err != nil:
	case op.runAt != nil:
		answer.Result, answer.Err = op.runAt(c.ctx, s, &req.Args)
	default:
		answer.Result, answer.Err = op.run(c.ctx, s.store, &req.Args)
	}
	if answer.Err == nil && op.change != nil && s.OnChange != nil {
		s.OnChange(c.ctx, op.change(&req.Args, answer.Result))
	}
	switch {
	case op.kind == waits && c.ctx.Err() != nil:
		answer.Err = nil // it returns early for the server's own reasons
	case op.kind == long && answer.Err != nil && s.closing.Err() != nil:
		answer.Err = store.ErrClosed // here, and the client goes on elsewhere
	}
	done := result{reply: encodeReply(&answer)}
	if op.undo != nil && answer.Err == nil {
		done.undo = undoing(s, op.undo(&req.Args, answer.Result))
	}
	return done
}

// undoing returns a function that undoes a call and returns the encoded reply for a repetition.
func undoing[R any](s *Server, undo func(ctx context.Context, s store.Store) (R, error)) func() []byte {
	if undo == nil {
		return nil
	}
	return func() []byte {
		ctx, cancel := context.WithTimeout(context.Background(), maxCall)
		defer cancel()
		instead, err := undo(ctx, s.store)
		if err != nil {
			s.log.Warn("later: the caller of a claim has gone; its messages come again when their lease ends",
				"cause", err)
		}
		return encodeReply(&reply[R]{Result: instead})
	}
}

// encodeReply returns a reply in no more memory than it needs, since it is kept.
func encodeReply[R any](answer *reply[R]) []byte {
	buffer := bodies.Get().(*[]byte)
	defer putBody(buffer)
	*buffer = codec.Append((*buffer)[:0], answer)
	if len(*buffer) > maxPooled {
		return *buffer // it does not go back
	}
	return bytes.Clone(*buffer)
}

// limit returns how long the server goes on with a call. The caller's own context ends first, and says why.
func limit(timeout time.Duration) time.Duration {
	if timeout <= 0 || timeout > maxCall {
		return maxCall
	}
	return timeout + time.Second
}
