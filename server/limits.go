package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/quota"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// Limits of the requests and replies that a server holds at a time. Each sender may have half of the room that the
// others leave; see quota.Quota. Together the limits allow less than 400 MiB.
const (
	defaultMaxWaits = 20_000
	maxStreams      = 1000 // of messages that arrive line by line
	maxTransfers    = 8    // exports and imports, which hold some pages of messages each
	maxFinds        = 8    // searches of all queues, which hold a page of messages of four queues each
	maxBodyBytes    = 64 << 20
	maxDecodedBytes = 96 << 20
	maxReplyBytes   = 64 << 20

	// smallReply is how many bytes of a reply do not count: the network has room for them.
	smallReply = 64 << 10
	// roomWithin is how long a request waits for others to end before it is refused.
	roomWithin = 5 * time.Second
)

// share is something that a server has a limited number of, which it divides between the senders of requests.
type share struct {
	*quota.Quota[access.Sender]
	what string // as in "8 bulk changes run"
}

func newShare(limit int64, what string) share {
	return share{quota.New[access.Sender](limit), what}
}

// take takes n for the sender of a request, or returns an error with the status 503, or 429 if the sender has its
// share.
func (s share) take(ctx context.Context, n int64) (give func(), err error) {
	who := senderOf(ctx)
	if err := s.refusal(s.Take(who, n)); err != nil {
		return nil, err
	}
	return func() { s.Give(who, n) }, nil
}

// await is take, but waits for roomWithin.
func (s share) await(ctx context.Context, n int64) (give func(), err error) {
	who := senderOf(ctx)
	if err := s.awaitFor(ctx, who, n); err != nil {
		return nil, err
	}
	return func() { s.Give(who, n) }, nil
}

// awaitFor waits for roomWithin to take n for a sender. The caller gives them back.
func (s share) awaitFor(ctx context.Context, who access.Sender, n int64) error {
	if s.Take(who, n) == quota.None {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomWithin)
	defer cancel()
	return s.refusal(s.Wait(ctx, who, n))
}

func (s share) refusal(why quota.Refusal) error { return refusal(why, s.Limit(), s.what) }

func refusal(why quota.Refusal, limit int64, what string) error {
	switch why {
	case quota.Exhausted:
		return fmt.Errorf("%d %s, which is the limit of this server: try again later: %w", limit, what,
			store.ErrUnavailable)
	case quota.Greedy:
		return &problem.Error{Status: http.StatusTooManyRequests, Err: fmt.Errorf("so many %s that no more of %d are "+
			"left for you, which others need too: end some, or try again later: %w", what, limit, store.ErrUnavailable)}
	}
	return nil
}

// work waits for one of the places for work that takes milliseconds of a CPU, for roomWithin.
func (s *Server) work(ctx context.Context) (done func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, roomWithin)
	defer cancel()
	done, why := s.cpu.Work(waiting, senderOf(ctx))
	return done, refusal(why, s.cpu.Limit(), "lists and large bodies are worked on already")
}

type senderKey struct{}

// withSender returns the context of a request with its sender.
func withSender(r *http.Request) context.Context {
	return context.WithValue(r.Context(), senderKey{}, access.SenderOf(r))
}

// senderOf returns the sender of the request of ctx.
func senderOf(ctx context.Context) access.Sender {
	who, _ := ctx.Value(senderKey{}).(access.Sender)
	return who
}

// wait takes one of the places for requests that last. The context that it returns ends with the request, with the
// access of its sender and with Close; the caller calls done.
func (s *Server) wait(ctx context.Context, places share) (_ context.Context, done func(), err error) {
	if s.ending.Err() != nil {
		return nil, nil, errEnding
	}
	give, err := places.take(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ending, func() { cancel(errEnding) })
	hold := access.OnRevoke(ctx, cancel)
	return ctx, func() {
		hold()
		stop()
		cancel(nil)
		give()
	}, nil
}

// oneOfFewReads has a route take one of the places for work until its reply is there.
func (s *Server) oneOfFewReads(ctx huma.Context, next func(huma.Context)) {
	done, err := s.work(ctx.Context())
	if err != nil {
		r, w := humago.Unwrap(ctx)
		s.reply(w, r, 0, nil, err)
		return
	}
	c := ctx.(*requestContext)
	c.ready = done
	defer c.isReady()
	next(ctx)
}

// readBody reads a body, so that its memory is known before it is decoded.
func (s *Server) readBody(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	body, give, err := s.readAll(w, r, ctx.Operation().MaxBodyBytes)
	if err != nil {
		s.reply(w, r, 0, nil, err)
		return
	}
	defer give()
	if t := contentType(ctx.Header("Content-Type")); len(body) > 0 && t != jsonType && t != "json" &&
		!strings.HasSuffix(t, "+json") {
		s.reply(w, r, 0, nil, field("header.Content-Type", &problem.Error{Status: http.StatusUnsupportedMediaType,
			Err: store.Invalid("is %.80q: must be %s", t, jsonType)}))
		return
	}
	c := ctx.(*requestContext)
	giveDecoded, decoded, err := s.admitJSON(ctx.Context(), body, c.ready != nil)
	if err != nil {
		s.reply(w, r, 0, nil, field("body", err))
		return
	}
	defer giveDecoded()
	defer decoded()
	c.body, c.ctx = body, context.WithValue(c.ctx, readKey{}, &bodyRead{body, decoded})
	next(ctx)
}

// bodyRead is the body of a request, and a function to call when it is decoded.
type bodyRead struct {
	text    []byte
	decoded func()
}

// readKey is the key of the bodyRead in a request's context.
type readKey struct{}

const (
	// smallJSON is the length of JSON that does not count: even as values it takes little memory.
	smallJSON = 16 << 10
	// quickJSON is the memory of JSON values that take less than a millisecond or two of a CPU to decode.
	quickJSON = 1 << 20
)

// admitJSON waits for room for a text as JSON values, which can take fifty times as much memory. If they are many, it
// also waits for a place to decode the text, unless the caller works already. The caller calls decoded, and then give
// when the values are not needed.
func (s *Server) admitJSON(ctx context.Context, text []byte, works bool) (give, decoded func(), err error) {
	nothing := func() {}
	if len(text) <= smallJSON {
		return nothing, nothing, nil
	}
	size := jsontext.Memory(text)
	if limit := s.decoded.Limit() / 2; size > limit {
		return nil, nil, store.TooLarge("has so many values that they take %d MiB of memory, and the limit is %d MiB: send "+
			"fewer messages at a time, or payloads that are JSON as text", size>>20, limit>>20)
	}
	if give, err = s.decoded.await(ctx, size); err != nil || works || size <= quickJSON {
		return give, nothing, err
	}
	if decoded, err = s.work(ctx); err != nil {
		give()
	}
	return give, decoded, err
}
