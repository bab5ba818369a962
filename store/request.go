package store

import "context"

// Request identifies a call that changes something, so that repetitions of it have the effect of one call; see
// "Retries". A session makes one call at a time, with increasing numbers from 1 on.
type Request struct {
	Session string // 1 to MaxSession bytes
	Number  int64
}

// MaxSession is the maximum number of bytes of a Request.Session.
const MaxSession = 128

type requestKey struct{}

// WithRequest returns a context for one call of a Store that changes something. A server calls with it on behalf of its
// clients. A store that other processes use, or open later, executes only the first call of a Request; the others
// return its result, in any process. A store in memory ignores it.
func WithRequest(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// RequestOf returns the Request of a context that WithRequest returned. It returns false if there is none.
func RequestOf(ctx context.Context) (Request, bool) {
	r, ok := ctx.Value(requestKey{}).(Request)
	return r, ok
}
