package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxSilence is how long each side waits for the next byte to arrive, or to be taken, before it gives up a connection:
// two beats, and half a second for a slow network or a busy process.
const maxSilence = 2*beatEvery + 500*time.Millisecond

// errSilent is why a connection was given up.
var errSilent = fmt.Errorf("nothing heard for %v", maxSilence)

// watchdog gives up a connection of HTTP without traffic for a while. A paced connection has deadlines instead.
type watchdog struct{ timer *time.Timer }

// newWatchdog returns one that has begun. It gives the connection up after a first wait; see begin for the next ones.
func newWatchdog(t *Target, within time.Duration, giveUp context.CancelCauseFunc) *watchdog {
	return &watchdog{time.AfterFunc(within, func() {
		err := errSilent
		if within != maxSilence {
			err = fmt.Errorf("%w: no reply within %v", err, within)
		}
		giveUp(t.silent(err))
		t.http.CloseIdleConnections() // which may pass nothing on either
	})}
}

// begin begins to wait again.
func (d *watchdog) begin(within time.Duration) { d.timer.Reset(within) }

func (d *watchdog) stop() { d.timer.Stop() }

// watchedReader is a response's body with reads that do not wait longer than the watchdog.
type watchedReader struct {
	io.Reader
	dog *watchdog
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.dog.begin(maxSilence)
	defer r.dog.stop()
	return r.Reader.Read(p)
}

// watchedBody is a request's body. The watchdog waits for the reply from when the last part of it was taken.
type watchedBody struct {
	*bytes.Reader
	dog    *watchdog
	within time.Duration
}

func (r *watchedBody) Read(p []byte) (int, error) {
	r.dog.begin(r.within)
	return r.Reader.Read(p)
}

func (r *watchedBody) Close() error { return nil }

// silent returns the error of a server that is not heard.
func (t *Target) silent(err error) error {
	if t.socket == nil {
		return err
	}
	return t.socket.silent(err)
}

// silenceIn returns how long nothing was heard before a connection was given up for err.
func silenceIn(err error) time.Duration {
	if errors.Is(err, errSilent) {
		return maxSilence
	}
	return 0
}
