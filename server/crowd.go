package server

import (
	"slices"
	"sync"
	"time"
)

// A crowd wakes so many listeners at once, and as many again after a time, so that requests get turns between them.
const (
	wokenAtOnce = 8
	wakeEvery   = time.Millisecond
)

// crowd is the clients that are sent news of something. With its zero value there are none.
type crowd struct {
	mu        sync.Mutex
	beats     uint64 // calls of beat
	listening []*listener
	waking    bool // a timer goes on with waking
}

// listener is a client of a crowd, which sends it a value when there are news.
type listener struct {
	C      chan struct{}
	crowd  *crowd
	since  uint64 // beats when it began to listen
	listed bool
}

// join returns a listener. The caller calls leave.
func (c *crowd) join() *listener { return &listener{C: make(chan struct{}, 1), crowd: c} }

// listen has the listener woken once by the next beat, or soon after it.
func (l *listener) listen() {
	l.crowd.mu.Lock()
	defer l.crowd.mu.Unlock()
	if !l.listed {
		l.listed, l.since = true, l.crowd.beats
		l.crowd.listening = append(l.crowd.listening, l)
	}
}

func (l *listener) leave() {
	l.crowd.mu.Lock()
	defer l.crowd.mu.Unlock()
	if l.listed {
		l.listed = false
		i := slices.Index(l.crowd.listening, l)
		l.crowd.listening = slices.Delete(l.crowd.listening, i, i+1)
	}
}

// beat wakes all who listen.
func (c *crowd) beat() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beats++
	if !c.waking {
		c.wakeSome()
	}
}

func (c *crowd) wakeSome() {
	n := 0
	for n < len(c.listening) && n < wokenAtOnce && c.listening[n].since < c.beats {
		l := c.listening[n]
		l.listed = false
		select {
		case l.C <- struct{}{}:
		default: // it has not taken the last one
		}
		n++
	}
	c.listening = slices.Delete(c.listening, 0, n)
	c.waking = len(c.listening) > 0 && c.listening[0].since < c.beats
	if c.waking {
		time.AfterFunc(wakeEvery, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.wakeSome()
		})
	}
}
