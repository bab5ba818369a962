package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A reply that may take long is a stream of frames: each is its length, and its content. While the server has none to
// send, it sends an empty one, a beat, so that the client notices when the connection passes nothing on.

const (
	// beatEvery is how often a server sends a beat.
	beatEvery = time.Second
	// firstBeat is after how long it sends the first one. It is early because the client has waited for the connection,
	// too.
	firstBeat = beatEvery / 5
)

var errCannotFlush = errors.New("the Handler is behind a ResponseWriter that has neither Flush nor Unwrap: " +
	"use middleware that has one of them")

// appendFrame appends a frame to b.
func appendFrame(b, body []byte) []byte {
	return append(binary.AppendUvarint(slices.Grow(b, binary.MaxVarintLen64+len(body)), uint64(len(body))), body...)
}

type byteReader interface {
	io.Reader
	io.ByteReader
}

// readFrame appends the content of a frame to b.
func readFrame(r byteReader, b []byte, limit uint64) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return b, err
	}
	if n > limit {
		return b, fmt.Errorf("a frame has %d bytes: the limit is %d", n, limit)
	}
	return readBody(r, b, int(n))
}

// readBody appends n bytes to b.
func readBody(r io.Reader, b []byte, n int) ([]byte, error) {
	begin := len(b)
	b = slices.Grow(b, n)[:begin+n]
	_, err := io.ReadFull(r, b[begin:])
	return b, err
}

// frameWriter sends frames as a response, and beats between them.
type frameWriter struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	timer *time.Timer // of the next beat; nil after end

	deadline sync.Mutex
	aborted  bool
}

// newFrameWriter begins a response, unless it returns an error.
func newFrameWriter(w http.ResponseWriter) (*frameWriter, error) {
	if !canFlush(w) {
		return nil, errCannotFlush
	}
	w.Header().Set("Content-Type", MediaType)
	w.Header().Set("X-Accel-Buffering", "no") // proxies are to pass on each frame at once
	f := &frameWriter{w: w}
	f.mu.Lock()
	f.timer = time.AfterFunc(firstBeat, f.beat)
	f.mu.Unlock()
	return f, nil
}

// canFlush reports whether an http.ResponseController can flush w.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch inner := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = inner.Unwrap()
		default:
			return false
		}
	}
}

func (f *frameWriter) beat() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.timer != nil {
		f.write(nil, true) // if that fails the server ends the request
	}
}

// send sends a frame.
func (f *frameWriter) send(body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(body, true)
}

// sendLast sends a frame together with the end of the response.
func (f *frameWriter) sendLast(body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.write(body, false)
}

func (f *frameWriter) write(body []byte, flush bool) error {
	f.timer.Reset(beatEvery)
	f.setDeadline(time.Now().Add(maxSilence))
	if _, err := f.w.Write(appendFrame(nil, body)); err != nil || !flush {
		return err
	}
	return http.NewResponseController(f.w).Flush()
}

// abort ends the present send, and the response.
func (f *frameWriter) abort() { f.setDeadline(past) }

// setDeadline limits how long writing may take, unless it was aborted.
func (f *frameWriter) setDeadline(t time.Time) {
	f.deadline.Lock()
	defer f.deadline.Unlock()
	if !f.aborted {
		f.aborted = t.Equal(past)
		_ = http.NewResponseController(f.w).SetWriteDeadline(t) // not all writers can
	}
}

// end ends the beats, before the response ends.
func (f *frameWriter) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timer.Stop()
	f.timer = nil
	f.setDeadline(time.Time{})
}

// frameReader reads the frames of a response.
type frameReader struct {
	ctx  context.Context
	resp *http.Response
	body *bufio.Reader
	end  context.CancelCauseFunc // of ctx
}

// postForFrames sends a body and returns a reader of the frames that answer it. Close it.
func (t *Target) postForFrames(ctx context.Context, name string, body []byte) (*frameReader, error) {
	ctx, end := context.WithCancelCause(ctx)
	dog := newWatchdog(t, maxSilence, end)
	resp, err := t.post(ctx, name, body, dog, maxSilence)
	dog.stop()
	if err != nil {
		end(nil)
		return nil, err
	}
	return &frameReader{ctx, resp, bufio.NewReader(&watchedReader{resp.Body, dog}), end}, nil
}

// next appends to b the content of the next frame that is not a beat. Its error is a lostError.
func (f *frameReader) next(b []byte) ([]byte, error) {
	for {
		frame, err := readFrame(f.body, b, maxReply)
		if err != nil {
			return b, lostBy(f.ctx, err, false)
		}
		if len(frame) > len(b) {
			return frame, nil
		}
	}
}

// last is like next for the only frame. Then the connection can be used again.
func (f *frameReader) last(b []byte) ([]byte, error) {
	frame, err := f.next(b)
	if err == nil {
		f.body.ReadByte() // the end
	}
	return frame, err
}

// close closes the connection unless the response has ended.
func (f *frameReader) close() {
	f.resp.Body.Close()
	f.end(nil)
}
