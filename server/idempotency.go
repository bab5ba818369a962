package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const (
	keyHeader = "Idempotency-Key"
	keyField  = "header." + keyHeader
	maxKey    = 255 // bytes
)

// IdempotencyKey makes it safe to repeat a request that sends messages. A request type that embeds it takes the header;
// every other request that may change something is refused with it, see refuseKey.
type IdempotencyKey struct {
	Key string `header:"Idempotency-Key" doc:"Names the request, in 1 to 255 printable ASCII characters: if it is repeated within 24 hours, it changes nothing, and is answered like the first with the outcome duplicate"`

	who     string // the sender, so that no sender learns of the requests of others
	request []byte // the fingerprint
}

// Resolve refuses a key that is not allowed, because a request with it would not be safe to repeat.
func (k *IdempotencyKey) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	var err error
	if *k, err = keyOf(r, ctx.(*requestContext).fingerprint); err != nil {
		return []error{&huma.ErrorDetail{Location: keyField, Message: err.Error()}}
	}
	return nil
}

// keyOf returns the key of a request with a fingerprint. It may be in quotes, as in a structured field. The error does
// not name the header.
func keyOf(r *http.Request, fingerprint hash.Hash) (k IdempotencyKey, err error) {
	values := r.Header[keyHeader]
	if len(values) == 0 {
		return k, nil
	}
	k.Key = values[0]
	if inner, ok := strings.CutPrefix(k.Key, `"`); ok {
		k.Key, ok = strings.CutSuffix(inner, `"`)
		if !ok {
			return k, store.Invalid("begins with a quote and does not end with one: leave out both, or give both")
		}
	}
	switch {
	case len(values) > 1:
		err = store.Invalid("is given twice: give it once")
	case k.Key == "":
		err = store.Invalid("is empty: must have 1 to %d characters, or be left out", maxKey)
	case len(k.Key) > maxKey:
		err = store.Invalid("has %d characters: must have 1 to %d", len(k.Key), maxKey)
	case strings.ContainsFunc(k.Key, func(c rune) bool { return c < ' ' || c > '~' }):
		err = store.Invalid("is not printable ASCII: give letters, digits and punctuation")
	}
	who, _ := access.FromContext(r.Context())
	k.who, k.request = who.Key(), fingerprint.Sum(nil)
	return k, err
}

// newFingerprint returns a hash of a request without its body: the method, the path, the query, and the headers that
// describe the body. It returns nil for a request without a key.
func newFingerprint(r *http.Request) hash.Hash {
	if r.Header[keyHeader] == nil {
		return nil
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q\n", r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if name == "Content-Type" || strings.HasPrefix(name, "Later-") {
			fmt.Fprintf(h, "%q %q\n", name, r.Header[name])
		}
	}
	return h
}

// keyOfRead returns the key of a request after its body was read.
func keyOfRead(r *http.Request, body []byte) (IdempotencyKey, error) {
	h := newFingerprint(r)
	if h != nil {
		h.Write(body)
	}
	k, err := keyOf(r, h)
	return k, field(keyField, err)
}

// fingerprinted returns a reader that adds the body of a request with a key to its fingerprint.
func (c *requestContext) fingerprinted(body io.Reader) io.Reader {
	r, _ := humago.Unwrap(c.humaContext)
	if c.fingerprint = newFingerprint(r); c.fingerprint == nil {
		return body
	}
	return io.TeeReader(body, c.fingerprint)
}

// once returns the store.Once that makes the send of one message of the request safe to repeat, or nil without a key.
func (k *IdempotencyKey) once(index int) *store.Once {
	if k.Key == "" {
		return nil
	}
	return store.NewOnce(fmt.Appendf(nil, "%q %q %d", k.who, k.Key, index), k.request)
}

// keyError returns an error of a send as that of a request with a key.
func keyError(once *store.Once, err error) error {
	if once == nil || !errors.Is(err, later.ErrConflict) {
		return err
	}
	return field(keyField, &problem.Error{Status: http.StatusUnprocessableEntity, Err: err})
}

// batchOnce sends the messages of a request. With a key, the first that is not refused goes ahead, because whether it
// is sent decides whether the request has the key; no message of another request with the key is sent then.
func (t target) batchOnce(ctx context.Context, msgs []later.Outgoing, key IdempotencyKey) ([]later.SendResult, error) {
	if key.Key == "" {
		return t.batch(ctx, msgs)
	}
	for i := range msgs {
		if err := msgs[i].Check(); err != nil {
			return nil, field(fmt.Sprintf("messages[%d]", i), err)
		}
	}
	var results []later.SendResult
	for decided := false; !decided && len(results) < len(msgs); {
		m := &msgs[len(results)]
		m.Once = key.once(0)
		one, err := t.batch(ctx, msgs[len(results):len(results)+1])
		if err == nil && errors.Is(one[0].Err, later.ErrConflict) {
			err = keyError(m.Once, one[0].Err)
		}
		if err != nil { // the others were not sent
			return nil, err
		}
		r := one[0]
		repeats := r.Duplicate && !r.Due.IsZero()
		if repeats && m.ID != "" && m.ID != r.ID { // the first time it was refused, and another one was sent
			r = later.SendResult{ID: m.ID, Outcome: r.Outcome, Duplicate: true}
			repeats = false
		}
		refused := r.Duplicate || errors.Is(r.Err, later.ErrLeased) || errors.Is(r.Err, later.ErrDead)
		decided = repeats || !refused
		results = append(results, r)
	}
	rest := msgs[len(results):]
	for i := range rest {
		rest[i].Once = key.once(len(results) + i)
	}
	last, err := t.batch(ctx, rest)
	return append(results, last...), err
}

var errKeyRefused = field(keyField, store.Invalid("is for requests that send messages, to /v1/queues/{queue}/messages "+
	"or /v1/topics/{topic}/messages or /batch below them, as JSON or a payload: leave it out of this one"))

// refuseKey refuses requests with a key: their senders would believe that they are safe to repeat.
func refuseKey(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if r.Header[keyHeader] != nil {
		problem.Write(w, 0, errKeyRefused)
		return
	}
	next(ctx)
}
