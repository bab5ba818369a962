package redisstore

import "time"

// leadWindow is how long the smallest lead is kept at least; it is forgotten after twice as long.
const leadWindow = 5 * time.Second

// minLoggedStep is the smallest step of the server's clock that is logged.
const minLoggedStep = time.Second

// serverClock predicts the time on the clock of one server when a call arrives there.
//
// The difference between the server's time in a reply and the local time of the call's send is the difference of the
// two clocks and the time that the call took to arrive. The smallest such lead of the last seconds belongs to the
// fastest call. So a call that is sent by the prediction arrives on time or later, and seldom early: the fewer readings
// there are, the more of half a round trip the prediction allows for a faster call. Local time is monotonic, so a step
// of the local clock does not matter.
type serverClock struct {
	base     time.Time // local time 0; zero before the first reading
	window   leads     // of the last seconds
	before   leads     // of the window before
	since    time.Time // when the window began
	lastTrip time.Duration
	last     time.Time // when the last reading was received
	lastTime time.Time // the server's time in it
}

// leads are the readings of one window.
type leads struct {
	least time.Duration
	trip  time.Duration // shortest round trip
	n     int
}

// add returns the leads with another reading, or with the leads of another window.
func (l leads) add(other leads) leads {
	if l.n == 0 || other.n == 0 {
		return leads{l.least + other.least, l.trip + other.trip, l.n + other.n}
	}
	return leads{min(l.least, other.least), min(l.trip, other.trip), l.n + other.n}
}

// read records a reading: the server's clock was server at some moment between sent and received. It returns by how
// much the clock was stepped since the last reading, at least: the part that the round trips of the two cannot explain.
func (c *serverClock) read(sent, received, server time.Time) (step time.Duration) {
	trip := received.Sub(sent)
	if !c.base.IsZero() {
		elapsed := received.Sub(c.last) // by the monotonic clock, which is never stepped
		step = server.Sub(c.lastTime) - elapsed
		step = min(step+trip, max(step-c.lastTrip, 0)) // a reply that took long was read late
	} else {
		c.base = sent
	}
	c.last, c.lastTime, c.lastTrip = received, server, trip

	lead := leads{server.Sub(c.base) - sent.Sub(c.base), trip, 1}
	// Without a step forward, no call can have taken longer than its round trip to arrive.
	stepped := c.window.n > 0 && lead.least-trip > c.window.add(c.before).least
	switch age := received.Sub(c.since); {
	case stepped || age >= 2*leadWindow:
		c.window, c.before, c.since = lead, leads{}, received
	case age >= leadWindow:
		c.window, c.before, c.since = lead, c.window, received
	default:
		c.window = c.window.add(lead)
	}
	return step
}

// arrival returns the earliest time on the server's clock when a call arrives that is sent now.
func (c *serverClock) arrival() (server time.Time, known bool) {
	if c.base.IsZero() {
		return time.Time{}, false
	}
	l := c.window.add(c.before)
	return c.base.Add(time.Since(c.base) + l.least - l.trip/time.Duration(2*l.n)), true
}
