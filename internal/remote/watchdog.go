package remote

import (
	"context"
	"fmt"
	"io"
	"time"
)

// maxSilence is how long a client waits for the next byte before it gives up a connection: two beats, and half a second
// for a slow network or a busy server.
const maxSilence = 2*beatEvery + 500*time.Millisecond

// watchdog gives up a connection to another machine when nothing arrives for maxSilence. It is nil for a server on the
// same machine, whose connections break when the server ends.
type watchdog struct{ timer *time.Timer }

// newWatchdog returns one that has begun.
func newWatchdog(t *Target, giveUp context.CancelCauseFunc) *watchdog {
	if !t.detached {
		return nil
	}
	return &watchdog{time.AfterFunc(maxSilence, func() {
		giveUp(fmt.Errorf("nothing heard for %v", maxSilence))
		t.http.CloseIdleConnections() // which may pass nothing on either
	})}
}

func (d *watchdog) begin() {
	if d != nil {
		d.timer.Reset(maxSilence)
	}
}

func (d *watchdog) stop() {
	if d != nil {
		d.timer.Stop()
	}
}

// watchedReader is a response's body, whose reads do not wait longer than the watchdog.
type watchedReader struct {
	io.Reader
	dog *watchdog
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.dog.begin()
	defer r.dog.stop()
	return r.Reader.Read(p)
}
