package shard

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The second model is of a key of a Fair queue with an order, whose messages move from shard A to shard B. They start
// one at a time and in order, so B must not start one while A may still start or lease another. The protocol:
//
//   - A change begins with a new generation, which fences calls from before. From then on a send goes to B, and A gets
//     no messages but the ones that come back from their leases. No message starts.
//   - Movers make passes. A pass visits each message of A: the ones that are not leased depart through the outbox, with
//     their hold on the key if they have it. If one is leased, the key is busy, and the mover has B expect it: B starts
//     no message of an expected key. B refuses that if a parcel has arrived that departed after the reply of A.
//   - A pass in which the key was not busy also departs the key itself, with the state of its rate. When the key
//     arrives, B expects it no longer. A late call can leave a parcel with a key in A behind the last pass, and the end
//     of the change delivers it. The model has no end of the change. So in it nothing departs of a key of which A knows
//     nothing, and one of its faults shows that this matters.
//     A expects it too, and starts none of its messages, so that one that comes back without a hold overtakes no other.
//     The model lets A start messages that come back: all of them have holds in it.
//   - At the end of a complete pass, B expects only the keys that were busy in it. Then the directory lets messages
//     start: in A the ones that come back, and in B the ones of keys that are not expected.
//   - In windows, the first pass leaves the messages in A that are due at the end of the window or later, and then the
//     directory has that end: a claim that runs at that time or later starts nothing. A second pass moves the other
//     messages, and removes the end. The mover of the first pass visits only these and the messages that had to stay in
//     it, another one visits all. A message departs before it gets an earlier due time. A key departs although A has
//     later messages of it.
//   - A pass that has found nothing in A is the last one. Before the directory says so, the mover closes B: a last
//     parcel from A arrives there, so that B refuses late calls that expect keys, and then B expects no key any more.
//   - All calls of a mover are confirmed before it goes on. Starts, acks and nacks are not.
//
// A mover may die or be frozen between any two steps, and each of its calls may arrive late. Late calls that certainly
// do nothing are left out: a parcel arrives once, and the outbox is emptied of one number only.

// keyParcel is a parcel.
type keyParcel struct {
	has, hold  ids
	key, spent bool // the key itself, and the state of its rate
}

// keyShard is the state of the key that a shard has stored.
type keyShard struct {
	has      ids  // messages that are not leased
	leased   ids  // at most one
	hold     ids  // the message that starts next, because it has started before
	spent    bool // the rate counts a start
	expected bool // no message starts
	outbox   keyParcel
	number   uint8 // of the outbox; 0 if it is empty
	last     uint8 // number of the last outbox
	arrived  uint8 // number of the last parcel that has arrived
	knowsX   bool  // x was sent
}

// keyMover is a process in a pass.
type keyMover struct {
	at     passStep
	needs  ids   // messages that it has to visit
	seen   ids   // messages that it has visited
	busy   bool  // the key was in this pass
	found  bool  // something was in A
	opened bool  // it knows that messages may start
	number uint8 // of the last parcel, when the key was busy
	waits  uint8 // the shard, plus 1, that has to confirm the last call before the mover goes on
	ended  bool  // it knows that claims have an end
	window bool  // the pass leaves later messages
	past   window
	stays  ids // messages that were leased in this pass
}

// window is the knowledge of a mover about the window that it has moved.
type window struct {
	moved bool
	left  ids // messages that had to stay
}

// passStep is the next step of a mover.
type passStep uint8

const (
	rests passStep = iota
	visits
	expects
	expectsNone
	opens
	closes
	ends
)

// keyState is the system. Message y is due before z. x, which is sent during the change, is due before both. In
// windows, z is due at the end of the window, and may get an earlier due time.
type keyState struct {
	shards     [2]keyShard
	durable    [2]keyShard
	movers     [2]keyMover
	moving     bool  // the change has begun
	opened     bool  // messages may start again
	ends       bool  // claims have an end
	past       bool  // that time is over
	soon       bool  // z has an earlier due time
	over       bool  // the last pass is
	lateExpect uint8 // calls of Expect that may arrive late, by number
	lateNone   bool  // one that ends the expectation may
	started    ids   // messages that have started and are not acked, as far as no failover has lost it
	kept       ids   // messages that no failover may lose
	failovers  uint8 // that are left
}

// keyModel is the rules.
type keyModel struct {
	bug    string
	loses  uint8
	rate   bool // the key has one
	window bool // messages move in windows
	movers int
	ended  *bool // set if a history leads to the end of the moves
}

// The faults that it can have.
const (
	opensEarly     = "messages start before a pass is complete"
	notExpected    = "B does not expect a busy key"
	takesOld       = "B takes a call of Expect that is older than what has arrived"
	leavesBusy     = "a key departs while A has messages of it"
	endsBusy       = "the end of a pass ends the expectation of busy keys"
	holdForgotten  = "the message that has started is not the next one in B"
	stateForgotten = "the end of a pass does not wait until the key has departed"
	keyUnconfirmed = "arrive does not wait until depart is confirmed, for a key"
	notClosed      = "B takes calls of Expect after the last pass"
	departsUnknown = "a key departs of which A knows nothing"
	lateStarts     = "a claim that runs at the end of its window or later starts messages"
	endForgotten   = "claims go on behind the end of a window before later messages have moved"
	leftForgotten  = "a mover forgets the messages that stayed in its last window"
	othersWindow   = "a mover takes the window of another one for its own"
	soonInPlace    = "a message gets an earlier due time in A"
)

const (
	lastNumber = 4              // of a parcel; without faults there are three
	closed     = lastNumber + 1 // as the last number that has arrived: none arrives any more
)

func (m *keyModel) first() keyState {
	s := keyState{failovers: m.loses, kept: y | z}
	s.shards[shardA] = keyShard{has: y | z}
	s.durable = s.shards
	return s
}

func (m *keyModel) check(s *keyState) {
	a, b := &s.shards[shardA], &s.shards[shardB]
	onItsWay := keyParcel{}
	if b.arrived < a.number {
		onItsWay = a.outbox
	}
	inA, inB := a.has|a.leased, b.has|b.leased
	switch {
	case inA&inB|inA&onItsWay.has|inB&onItsWay.has != 0:
		panic(violation("a message is in two places"))
	case s.kept&^(inA|inB|onItsWay.has) != 0:
		panic(violation("a message is lost that was confirmed"))
	case a.leased != 0 && b.leased != 0:
		panic(violation("two messages of the key are leased"))
	case b.leased != 0 && (a.spent || onItsWay.spent):
		panic(violation("a message has started in B, which does not know the rate of the key"))
	case s.over && b.expected:
		panic(violation("the moves are over, and the key is expected for ever"))
	case s.over && (inA != 0 || a.number > 0 || a.spent):
		panic(violation("the moves are over, and A has something"))
	}
}

// start leases the next message of the key in a shard.
func (m *keyModel) start(s *keyState, at int) {
	sh := &s.shards[at]
	next := sh.has & m.due(s)
	next &= -next // the first one
	if sh.hold != 0 {
		next = sh.hold
	}
	if other := s.started &^ next; other != 0 && m.loses == 0 {
		panic(violation("a message starts before the one that has started is done"))
	}
	waiting := s.shards[shardA].has | s.shards[shardB].has | s.shards[shardA].outbox.has
	if m.loses == 0 && s.started == 0 && waiting&(next-1) != 0 {
		panic(violation("a message starts before one that is due earlier"))
	}
	sh.has, sh.leased, sh.hold = sh.has&^next, next, 0
	sh.spent = sh.spent || m.rate && at == shardA
	s.started |= next
}

// mayStart reports whether a shard has a message that may start.
func (m *keyModel) mayStart(s *keyState, at int) bool {
	sh := &s.shards[at]
	held := sh.hold != 0 && sh.has&sh.hold == 0
	open := !s.moving && at == shardA || s.opened && (!s.ends || !s.past || m.bug == lateStarts)
	return sh.has&m.due(s) != 0 && sh.leased == 0 && !held && !sh.expected && open
}

// due returns the messages that are due, if they exist.
func (m *keyModel) due(s *keyState) ids {
	if m.window && !s.past && !s.soon {
		return x | y
	}
	return x | y | z
}

// windowSteps are the steps of the time, and of a client that gives z an earlier due time.
func (m *keyModel) windowSteps(from *keyState, do func(name string, step func(s *keyState))) {
	if from.past {
		return
	}
	do("the window ends", func(s *keyState) { s.past = true })
	if a := &from.shards[shardA]; from.moving && !from.soon && a.has&z != 0 {
		if m.bug == soonInPlace {
			do("z is due earlier, in A", func(s *keyState) { s.soon = true })
		}
		if a.number == 0 && a.last < lastNumber {
			do("z departs", func(s *keyState) { m.depart(s, z) })
		}
	}
	if b := &from.shards[shardB]; !from.soon && b.has&z != 0 {
		do("z is due earlier, in B", func(s *keyState) { s.soon = true })
	}
}

func (m *keyModel) steps(from *keyState, do func(name string, step func(s *keyState))) {
	for at := range from.shards {
		sh := &from.shards[at]
		name := func(what string) string { return fmt.Sprintf("%s at %c", what, 'A'+at) }
		if m.mayStart(from, at) {
			do(name("start"), func(s *keyState) { m.start(s, at) })
		}
		if sh.leased != 0 {
			do(name("ack"), func(s *keyState) {
				sh := &s.shards[at]
				s.started, s.kept = s.started&^sh.leased, s.kept&^sh.leased
				sh.leased = 0
			})
			do(name("nack"), func(s *keyState) {
				sh := &s.shards[at]
				sh.has, sh.leased, sh.hold = sh.has|sh.leased, 0, sh.leased
			})
		}
		if !m.isConfirmed(from, at) {
			do(name("confirmed"), func(s *keyState) { m.confirm(s, at) })
		}
		if !m.isConfirmed(from, at) && from.failovers > 0 {
			do(name("failover"), func(s *keyState) {
				s.shards[at] = s.durable[at]
				s.failovers--
				for i := range s.movers {
					if s.movers[i].waits == uint8(at)+1 {
						s.movers[i].endPass() // its call fails
					}
				}
			})
		}
	}
	if !from.moving && m.isConfirmed(from, shardA) {
		do("the change begins", func(s *keyState) { s.moving = true })
	}
	if b := &from.shards[shardB]; from.moving && !b.knowsX && m.isConfirmed(from, shardA) {
		do("send x", func(s *keyState) {
			b := &s.shards[shardB]
			b.has, b.knowsX = b.has|x, true
		})
	}
	m.delivers(from, do)
	if m.window {
		m.windowSteps(from, do)
	}
	for i := range m.movers {
		if mv := &from.movers[i]; mv.waits == 0 {
			m.pass(from, mv.at, func(name string, step func(s *keyState, mv *keyMover)) {
				do(fmt.Sprintf("mover %d: %s", i, name), func(s *keyState) { step(s, &s.movers[i]) })
			})
		}
		if from.movers[i] != (keyMover{}) {
			do(fmt.Sprintf("mover %d dies", i), func(s *keyState) { s.movers[i] = keyMover{} })
		}
	}
	for number := range uint8(lastNumber + 1) {
		if from.lateExpect&(1<<number) != 0 {
			do(fmt.Sprintf("expect with number %d, late", number), func(s *keyState) { m.expect(s, number, nil) })
		}
	}
	if from.lateNone {
		do("expect none, late", func(s *keyState) { s.shards[shardB].expected = false })
	}
}

// isConfirmed reports whether the state of a shard survives a failover.
func (m *keyModel) isConfirmed(s *keyState, at int) bool {
	return m.loses == 0 || s.durable[at] == s.shards[at]
}

// wrote has a mover wait until the call is confirmed that it has made.
func (m *keyModel) wrote(s *keyState, at int, mv *keyMover) {
	if !m.isConfirmed(s, at) {
		mv.waits = uint8(at) + 1
	}
}

// confirm has the state of a shard survive failovers.
func (m *keyModel) confirm(s *keyState, at int) {
	a, b, sh := &s.shards[shardA], &s.shards[shardB], &s.shards[at]
	s.durable[at] = *sh
	var gone ids // messages of the outbox that have arrived and were acked since
	if a.number > 0 && b.arrived >= a.number {
		gone = a.outbox.has &^ (b.has | b.leased)
	}
	s.kept |= (sh.has | sh.leased | sh.outbox.has) &^ gone
	for i := range s.movers {
		if s.movers[i].waits == uint8(at)+1 {
			s.movers[i].waits = 0
		}
	}
}

// delivers are the steps by which a parcel comes to B. Any process makes them.
func (m *keyModel) delivers(from *keyState, do func(name string, step func(s *keyState))) {
	a, b := &from.shards[shardA], &from.shards[shardB]
	sure := func(at int) bool {
		now, kept := &from.shards[at], &from.durable[at]
		return m.loses == 0 || kept.number == now.number && kept.outbox == now.outbox && kept.arrived == now.arrived
	}
	if a.number > b.arrived && (sure(shardA) || m.bug == keyUnconfirmed) {
		do(fmt.Sprintf("arrive %d", a.number), func(s *keyState) {
			a, b := &s.shards[shardA], &s.shards[shardB]
			b.has, b.arrived = b.has|a.outbox.has, a.number
			if b.hold == 0 && m.bug != holdForgotten {
				b.hold = a.outbox.hold
			}
			if a.outbox.key {
				b.expected = false
			}
		})
	}
	if a.number > 0 && b.arrived >= a.number && sure(shardB) {
		do(fmt.Sprintf("empty %d", a.number), func(s *keyState) {
			a := &s.shards[shardA]
			a.outbox, a.number = keyParcel{}, 0
		})
	}
}

func TestNoHistoryOfAKeyThatMovesBreaksItsOrder(t *testing.T) {
	all := []keyModel{{movers: 2, rate: true}, {movers: 1, loses: 1}, {movers: 1, loses: 1, rate: true},
		{movers: 1, window: true}}
	if os.Getenv("LATER_LONG") != "" {
		all = append(all, keyModel{movers: 2}, keyModel{movers: 1, loses: 2}, keyModel{movers: 1, loses: 2, rate: true},
			keyModel{movers: 1, window: true, rate: true}, keyModel{movers: 2, window: true},
			keyModel{movers: 1, window: true, loses: 1}, keyModel{movers: 1, window: true, loses: 1, rate: true})
	}
	for _, m := range all {
		m.ended = new(bool)
		name := fmt.Sprintf("%d movers, %d failovers, rate %v, window %v", m.movers, m.loses, m.rate, m.window)
		switch states, history := explore(&m); {
		case history != nil:
			t.Fatalf("%s:\n%s", name, strings.Join(history, "\n"))
		case !*m.ended:
			t.Errorf("%s: no history comes to an end", name)
		default:
			t.Logf("%s: %d states", name, states)
		}
	}
}

func TestTheExplorerFindsFaultsOfKeysThatMove(t *testing.T) {
	for _, m := range []keyModel{
		{bug: opensEarly}, {bug: notExpected}, {bug: takesOld}, {bug: leavesBusy, rate: true}, {bug: endsBusy},
		{bug: holdForgotten}, {bug: stateForgotten, rate: true}, {bug: keyUnconfirmed, loses: 1}, {bug: notClosed},
		{bug: departsUnknown, rate: true, movers: 2}, {bug: lateStarts, window: true}, {bug: endForgotten, window: true},
		{bug: leftForgotten, window: true}, {bug: othersWindow, window: true}, {bug: soonInPlace, window: true},
	} {
		t.Run(m.bug, func(t *testing.T) {
			m.movers, m.ended = max(m.movers, 1), new(bool)
			states, history := explore(&m)
			if history == nil {
				t.Fatalf("no history breaks a promise, in %d states", states)
			}
			t.Logf("after %d states:\n%s", states, strings.Join(history, "\n"))
		})
	}
}
