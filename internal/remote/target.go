package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/laterq/later/internal/codec"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

const (
	// replyWithin is how long a reply without beats may take, in addition to the call's own wait, from when the last
	// part of the request was taken. Then the call is repeated, which the server notices if it is still executing the
	// first. Until then a connection that silently passes nothing on holds up acks.
	replyWithin = 3 * time.Second
	// maxIdleConns is how many connections stay open for calls to come.
	maxIdleConns = 256
)

// Target is where calls go: a store in this process, or a server.
type Target struct {
	Local store.Store // nil for a server

	url    string // up to the name of the operation
	auth   string // header Authorization, or ""
	http   *http.Client
	socket *connections // carry calls, but no streams; nil for a server at an address
}

// NewTarget returns the server at an http or https URL. User and password in it are sent as basic authentication, and
// the password of an empty user as a token. config is for https; nil means the authorities that the machine trusts.
func NewTarget(u *url.URL, config *tls.Config) *Target {
	transport := newTransport()
	transport.TLSClientConfig = config
	transport.DialContext = (&net.Dialer{
		Timeout:         3 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3},
	}).DialContext
	transport.Proxy = http.ProxyFromEnvironment
	base := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/") + Path}
	return &Target{url: base.String(), auth: authorization(u.User), http: newClient(transport)}
}

// authorization returns the header that a user of a URL sends.
func authorization(user *url.Userinfo) string {
	if user == nil {
		return ""
	}
	password, _ := user.Password()
	if user.Username() == "" {
		return "Bearer " + password
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password))
}

// NewSocketTarget returns the server that dial connects to, on this machine. describe is called for an error when
// nothing is heard of the server, and says which process it is; nil says nothing.
func NewSocketTarget(dial func(ctx context.Context) (net.Conn, error), describe func() string) *Target {
	transport := newTransport()
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	return &Target{url: socketURL, http: newClient(transport), socket: &connections{dial: dial, describe: describe}}
}

// socketURL is the URL that a server at a socket gets.
const socketURL = "http://localhost" + Path

// newTransport has a connection for each call under way, so that one that waits, or loses its connection, does not
// concern others. HTTP/2 would put them all on one.
func newTransport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{Protocols: protocols, MaxIdleConnsPerHost: maxIdleConns, IdleConnTimeout: time.Minute,
		DisableCompression: true, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10}
}

func newClient(t *http.Transport) *http.Client {
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a body with messages goes where it was told to, or nowhere
	}}
}

// Close ends the connections that are not in use.
func (t *Target) Close() {
	t.http.CloseIdleConnections()
	if t.socket != nil {
		t.socket.close()
	}
}

// exchange makes one attempt at a call, which may wait in the store for as long as it takes, and decodes the reply.
// Errors are lostErrors if another attempt may succeed.
func exchange[R any](ctx context.Context, t *Target, name string, k kind, body []byte, takes time.Duration,
	answer *reply[R]) error {
	buffer := bodies.Get().(*[]byte)
	defer func() { putBody(buffer) }()
	var encoded []byte
	var err error
	switch {
	case t.socket != nil:
		encoded, err = t.socket.call(ctx, name, body, buffer)
	case k.takesLong():
		encoded, err = t.longCall(ctx, name, body, buffer)
	default:
		encoded, err = t.call(ctx, name, body, buffer, replyWithin+takes)
	}
	if err != nil {
		return err
	}
	return misunderstood(codec.Decode(encoded, answer))
}

// call makes one attempt at a call by HTTP. It returns the body of the reply, which is in the buffer.
func (t *Target) call(ctx context.Context, name string, body []byte, buffer *[]byte, within time.Duration) ([]byte,
	error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	dog := newWatchdog(t, within, end)
	defer dog.stop()
	resp, err := t.post(ctx, name, body, dog, within)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	*buffer, err = readAll(io.LimitReader(&watchedReader{resp.Body, dog}, maxReply+1), (*buffer)[:0],
		resp.ContentLength)
	if err != nil {
		return nil, lostBy(ctx, err, false)
	}
	return *buffer, nil
}

// longCall is like call for a reply in frames.
func (t *Target) longCall(ctx context.Context, name string, body []byte, buffer *[]byte) ([]byte, error) {
	frames, err := t.postForFrames(ctx, name, body)
	if err != nil {
		return nil, err
	}
	defer frames.close()
	*buffer, err = frames.last((*buffer)[:0])
	return *buffer, err
}

// post sends a body and returns a reply with the status 200. The watchdog waits for the reply from when the body was
// taken.
func (t *Target) post(ctx context.Context, name string, body []byte, dog *watchdog, within time.Duration) (
	*http.Response, error) {
	watched := func() (io.ReadCloser, error) { return &watchedBody{bytes.NewReader(body), dog, within}, nil }
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url+name, nil)
	if err != nil {
		return nil, store.Invalid("URL of the server: %v", err)
	}
	req.ContentLength, req.GetBody = int64(len(body)), watched
	req.Body, _ = watched()
	req.Header.Set("Content-Type", MediaType)
	if t.auth != "" {
		req.Header.Set("Authorization", t.auth)
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, t.unanswered(ctx, err)
	}
	if resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == MediaType {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	return nil, refused(t.url, resp.StatusCode, resp.Header, text)
}

// unanswered returns the error of a request without a response.
func (t *Target) unanswered(ctx context.Context, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // which does not repeat the URL
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	op, ok := errors.AsType[*net.OpError](err)
	if untrusted || plain || ok && op.Op == alert {
		return fmt.Errorf("%w: %w", store.ErrMisconfigured, err)
	}
	return lostBy(ctx, err, ok && op.Op == "dial")
}

// lostBy returns the error of a call that the end of its context or of the connection ended.
func lostBy(ctx context.Context, err error, unsent bool) *lostError {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return &lostError{cause: err, unsent: unsent, silence: silenceIn(err)}
}

// alert is the operation of the error when the server ends TLS, for example because it wants another certificate.
const alert = "remote error"

// maxRefusal is how many bytes of a response that is not from the store are read.
const maxRefusal = 4 << 10

// refused returns the error of a response that is not from the store.
func refused(url string, status int, header http.Header, text []byte) error {
	err := fmt.Errorf("%s answers %d %s: %.300q", url, status, http.StatusText(status), bytes.TrimSpace(text))
	var p problem.Problem
	if header.Get("Content-Type") == problem.MediaType && json.Unmarshal(text, &p) == nil {
		err = fmt.Errorf("%s answers %d %s: %.1000s", url, status, http.StatusText(status), p.Detail)
	}
	switch status {
	case http.StatusUnauthorized:
		return fmt.Errorf("%w: %w", store.ErrUnauthenticated, err)
	case http.StatusForbidden:
		return fmt.Errorf("%w: %w", store.ErrForbidden, err)
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return fmt.Errorf("%w: %w", store.ErrMisconfigured, err)
	case http.StatusUnsupportedMediaType:
		return otherVersion(header, text, err)
	case http.StatusBadRequest:
		return fmt.Errorf("%w: is the server of another version? %w", store.ErrUnsupported, err)
	case http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %w", store.ErrTooLarge, err)
	}
	if status >= 500 || status == http.StatusTooManyRequests {
		return &lostError{cause: err}
	}
	return fmt.Errorf("%w: %w", store.ErrMisconfigured, err)
}

// misunderstood returns the error of a reply that cannot be decoded.
func misunderstood(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: the reply cannot be read; is the server of another version? %w", store.ErrUnsupported, err)
}
