package redisstore

import "time"

// clockReadingTTL is how long the best reading of a server's clock is kept.
const clockReadingTTL = 30 * time.Second

// serverClock estimates the clock of one server from the replies of claims.
type serverClock struct {
	known  bool
	offset time.Duration // server minus local
	trip   time.Duration // round trip of the reading, which bounds its error
	at     time.Time     // time of the reading
	server time.Time     // the server's clock then
}

// minLoggedStep is the smallest step of the server's clock that is logged.
const minLoggedStep = time.Second

// read records a reading: the server's clock was server at some moment between sent and received. It returns by how
// much the clock was stepped since the last reading, at least: what the round trips of the two cannot explain.
func (c *serverClock) read(sent, received, server time.Time) (step time.Duration) {
	trip := received.Sub(sent)
	if c.known {
		elapsed := received.Sub(c.at) // by the monotonic clock, which is never stepped
		step = server.Sub(c.server) - elapsed
		step = min(step+trip, max(step-c.trip, 0)) // a reply that took long was read late
	}
	if c.known && trip > c.trip && received.Sub(c.at) < clockReadingTTL {
		if d := server.Sub(received.Add(-trip/2)) - c.offset; d.Abs() <= (trip+c.trip)/2+time.Millisecond {
			return 0 // the older reading is more accurate and consistent
		}
	}
	c.known, c.trip, c.at, c.server = true, trip, received, server
	c.offset = server.Sub(received.Add(-trip / 2))
	return step
}

func (c *serverClock) now() (time.Time, bool) {
	return time.Now().Add(c.offset), c.known
}
