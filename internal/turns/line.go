package turns

import "cmp"

// line is the messages of one key in one class: a lane, and a place in the turns of the class.
type line struct {
	seat
	lane
	pass  float64
	waits bool // the key takes part in the turns of the class, or will when its limits allow a start
}

// line returns the line of a class, or nil if the key never had a message in it.
func (k *key) line(c class) *line {
	switch {
	case c == normal:
		return &k.normal
	case k.others == nil:
		return nil
	case c == high:
		return &k.others[0]
	}
	return &k.others[1]
}

// makeLine returns the line of a class, which it adds if there is none.
func (k *key) makeLine(c class) *line {
	if c != normal && k.others == nil {
		k.others = &[2]line{{seat: seat{key: k}}, {seat: seat{key: k}}}
	}
	return k.line(c)
}

// messages returns the number of messages in all lanes.
func (k *key) messages() int {
	if k.others == nil {
		return k.normal.len()
	}
	return k.normal.len() + k.others[0].len() + k.others[1].len()
}

// isReady reports whether the message that holds the key is sorted.
func (k *key) isReady() bool { return k.hold != nil && k.hold.ready }

// sorted returns the number of messages that wait: all of the lanes, and the one that holds the key.
func (k *key) sorted() int {
	if k.isReady() {
		return k.messages() + 1
	}
	return k.messages()
}

// next returns the message that starts next of a key with an order that waits, and its class: the one that holds the
// key, or the first of all lanes.
func (k *key) next() (first entry, in class) {
	if k.isReady() {
		return entry{k.hold.place, k.hold.id}, k.hold.class
	}
	return k.earliest()
}

// earliest returns the first message of the lanes of a key that are not all empty, and its class.
func (k *key) earliest() (first entry, in class) {
	for c := range classes {
		if l := k.line(c); l != nil && l.len() > 0 {
			if e := l.first(); first.id == "" || e.less(first) {
				first, in = e, c
			}
		}
	}
	return first, in
}

// head returns the message of a class that starts next.
func (k *key) head(c class) Message {
	e := entry{}
	if k.isReady() {
		e, c = k.next()
	} else {
		e = k.line(c).first()
	}
	return Message{Key: k.name, Place: e.place, ID: e.id, Urgency: urgencies[c]}
}

// waitsIn reports whether the key takes turns in a class: of a key with an order, only the class of its next message.
func (o *Order) waitsIn(k *key, c class) bool {
	l := k.line(c)
	switch {
	case l == nil:
		return false
	case !o.isOrdered(k):
		return l.len() > 0
	case k.sorted() == 0:
		return false
	}
	_, in := k.next()
	return in == c
}

// add adds a message to the lane of its class, or makes it ready if it holds the key. It reports whether it is new.
func (k *key) add(m Message) bool {
	c := classOf(m.Urgency)
	if k.hold != nil && k.hold.id == m.ID {
		isNew := !k.hold.ready
		k.hold.ready, k.hold.place, k.hold.class = true, m.Place, c
		k.makeLine(c)
		return isNew
	}
	for other := range classes {
		if l := k.line(other); l != nil && other != c && l.has(m.entry()) {
			return false
		}
	}
	return k.makeLine(c).add(m.entry())
}

func (k *key) has(m Message) bool {
	_, ok := k.find(m)
	return ok
}

// find returns the class in which a message is sorted.
func (k *key) find(m Message) (in class, ok bool) {
	if k.hold != nil && k.hold.id == m.ID {
		return k.hold.class, k.hold.ready && k.hold.place == m.Place
	}
	for c := range classes {
		if l := k.line(c); l != nil && l.has(m.entry()) {
			return c, true
		}
	}
	return 0, false
}

// remove removes a sorted message and returns its class.
func (k *key) remove(m Message) (was class, ok bool) {
	was, ok = k.find(m)
	switch {
	case !ok:
	case k.hold != nil && k.hold.id == m.ID:
		k.hold.ready = false
	default:
		k.line(was).remove(m.entry())
	}
	return was, ok
}

// lineUp has the key join the turns of the classes in which it begins to wait.
func (o *Order) lineUp(k *key, weight int) {
	for c := range classes {
		if l := k.line(c); l != nil {
			waits := o.waitsIn(k, c)
			if waits && !l.waits {
				l.pass = o.pass[c] + join/float64(weight)
			}
			l.waits = waits
		}
	}
}

// takeTurns puts a key that may start into the turns of each class in which it waits.
func (o *Order) takeTurns(k *key) {
	for c := range classes {
		switch l := k.line(c); {
		case l == nil:
		case l.waits:
			l.pass = max(l.pass, o.pass[c])
			l.move(o.turns[c], l.pass)
		default:
			l.move(nil, 0)
		}
	}
}

// move takes a key out of all turns and puts it into rests or idle, or into no set if to is nil.
func (k *key) move(to *scores, score float64) {
	if k.others != nil {
		k.others[0].move(nil, 0)
		k.others[1].move(nil, 0)
	}
	k.seat().move(to, score)
}

// seat returns the seat of a key that takes no turns. It is the seat of the normal line, which is free then.
func (k *key) seat() *seat { return &k.normal.seat }

// seat is the place of a key in a set.
type seat struct {
	key   *key
	in    *scores
	score float64
}

// move moves a seat to another set, or out of all if to is nil.
func (s *seat) move(to *scores, score float64) {
	if s.in == to && s.score == score {
		return
	}
	if s.in != nil {
		s.in.tree.Delete(s)
	}
	if s.in, s.score = to, score; to != nil {
		to.tree.Set(s)
	}
}

func (s *seat) less(t *seat) bool {
	return cmp.Or(cmp.Compare(s.score, t.score), cmp.Compare(s.key.name, t.key.name)) < 0
}
