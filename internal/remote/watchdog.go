package remote

import (
	"context"
	"fmt"
	"io"
	"time"
)

// maxSilence is how long a client hears nothing before it gives a connection up: two beats, and half a second for the
// way and for a server that is busy.
const maxSilence = 2*beatEvery + 500*time.Millisecond

// watchdog gives a connection to another machine up when nothing is heard for maxSilence. It is nil for a server of the
// same machine, whose connections break when it ends.
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
