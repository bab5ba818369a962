package redisstore

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"sync"
	"time"
)

// callers hands out the names under which calls that change something are made, so that each is done once, however often it
// is made and whenever its tries arrive. What a script finds does not tell: a message that was sent may be acked before the
// call is repeated, one that was put back held by another worker, one that was cancelled sent again, a queue that was paused
// resumed. A name is used by one call at a time, and its calls are numbered upwards, so the server needs to keep one number for
// each (lua/_once.lua): as many as calls of a process were ever under way at once.
type callers struct {
	mu   sync.Mutex
	name string
	made int
	free []*caller
}

type caller struct {
	name string
	last int64
}

// take gives a caller that nobody uses, and the number of its next call: microseconds, or more.
func (c *callers) take() (who *caller, number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.free); n > 0 {
		who, c.free = c.free[n-1], c.free[:n-1]
	} else {
		if c.name == "" {
			var b [9]byte
			rand.Read(b[:]) // never fails: crypto/rand ends the program instead
			c.name = base64.RawURLEncoding.EncodeToString(b[:])
		}
		c.made++
		who = &caller{name: c.name + ":" + strconv.Itoa(c.made)}
	}
	who.last = max(who.last+1, time.Now().UnixMicro())
	return who, who.last
}

func (c *callers) giveBack(who *caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, who)
}
