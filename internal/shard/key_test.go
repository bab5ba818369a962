package shard

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The second model is of a key with an order, whose messages move together. They start one at a time and in order, so B
// must not start one while A may still start, lease or take another:
//
//   - A key leaves when none of its messages is leased in A. From then on A starts none of them, and still takes those
//     that are sent.
//   - Its messages depart in parts. B starts none of them before the last part.
//   - The last part leaves no message of the key in A. From then on A has the key in its outbox, and then not at all,
//     and calls for the key go to B as those for an id do.

// keyPlace is where a key is, as a shard knows it.
type keyPlace uint8

const (
	absent   keyPlace = iota
	owned             // messages start here
	leaving           // from A
	arriving          // some parts have arrived in B
)

// keyShard is what a shard has stored about the key.
type keyShard struct {
	key     keyPlace
	has     ids // messages that are not leased
	leased  ids
	holder  ids // the message that starts next, because it has started before
	outbox  ids
	flags   uint8 // of the outbox: 1 the last part
	holds   ids   // of the outbox
	number  uint8 // of the outbox; 0 if it is empty
	last    uint8
	arrived uint8
	session result // of the send
}

// keyPart is a part of a key on its way.
type keyPart struct {
	has, holds ids
	last       bool
}

// keyState is the system. Message y is due before z. x, which is sent, is due before both.
type keyState struct {
	shards    [2]keyShard
	durable   [2]keyShard
	sent      [6]keyPart // by number; arrive may be repeated
	started   ids        // messages that have started and are not acked, as far as no failover has lost it
	kept      ids        // messages that no failover may lose
	at        uint8      // shard that the sender of x asks
	result    result
	late      [2]bool // the send may arrive late at a shard
	starts    uint8
	failovers uint8 // that are left
}

// keyModel is the rules.
type keyModel struct {
	bug   string
	loses uint8
}

// The faults that it can have.
const (
	leavesLeased   = "a key leaves while one of its messages is leased"
	startsEarly    = "B starts a message before the last part has arrived"
	startsLeaving  = "A starts messages of a key that leaves"
	lastTooEarly   = "the last part departs while A has messages of the key"
	holdForgotten  = "the message that has started is not the next one in B"
	keyUnconfirmed = "arrive does not wait until depart is confirmed, for a key"
)

func (m *keyModel) first() keyState {
	s := keyState{failovers: m.loses, kept: y | z}
	s.shards[shardA] = keyShard{key: owned, has: y | z}
	s.durable = s.shards
	return s
}

func (m *keyModel) check(s *keyState) {
	a, b := &s.shards[shardA], &s.shards[shardB]
	onItsWay := a.outbox
	if a.number > 0 && b.arrived >= a.number {
		onItsWay = 0
	}
	inA, inB := a.has|a.leased, b.has|b.leased
	switch {
	case inA&inB|inA&onItsWay|inB&onItsWay != 0:
		panic(violation("a message is in two places"))
	case s.kept&^(inA|inB|onItsWay) != 0:
		panic(violation("a message is lost that was confirmed"))
	case a.leased != 0 && b.leased != 0:
		panic(violation("two messages of the key are leased"))
	}
}

// start leases the next message of the key in a shard.
func (m *keyModel) start(s *keyState, at int) {
	sh := &s.shards[at]
	next := sh.has & -sh.has // the first one
	if sh.holder != 0 {
		next = sh.holder
	}
	if other := s.started &^ next; other != 0 && m.loses == 0 {
		panic(violation("a message starts before the one that has started is done"))
	}
	waiting := s.shards[shardA].has | s.shards[shardB].has | s.shards[shardA].outbox
	if m.loses == 0 && s.started == 0 && waiting&(next-1) != 0 {
		panic(violation("a message starts before one that is due earlier"))
	}
	sh.has, sh.leased, sh.holder = sh.has&^next, next, next
	s.started, s.starts = s.started|next, s.starts+1
}

// takes executes the send of x at a shard. It comes to B only when A does not have the key any more.
func (m *keyModel) takes(s *keyState, at uint8) (reply string) {
	sh := &s.shards[at]
	switch {
	case sh.session != 0:
		return done
	case at == shardA && sh.key == absent && sh.number > 0:
		return onItsWay
	case at == shardA && sh.key == absent && m.loses > 0 && s.durable[at] != *sh:
		return notConfirmed
	case at == shardA && sh.key == absent:
		return askB
	}
	sh.has, sh.session = sh.has|x, added
	return done
}

// arrive puts a part into B.
func (m *keyModel) arrive(s *keyState, number uint8) {
	b, part := &s.shards[shardB], s.sent[number]
	if b.arrived >= number {
		return
	}
	b.has, b.arrived = b.has|part.has, number
	if b.key = max(b.key, arriving); m.bug != holdForgotten {
		b.holder |= part.holds
	}
	if part.last {
		b.key = owned
	}
}

func (m *keyModel) steps(from *keyState, do func(name string, step func(s *keyState))) {
	for at := range from.shards {
		sh := &from.shards[at]
		name := func(what string) string { return fmt.Sprintf("%s at %c", what, 'A'+at) }
		may := sh.key == owned || sh.key == arriving && m.bug == startsEarly ||
			sh.key == leaving && m.bug == startsLeaving
		if may && sh.has != 0 && sh.leased == 0 && from.starts < 4 {
			do(name("start"), func(s *keyState) { m.start(s, at) })
		}
		if sh.leased != 0 {
			do(name("ack"), func(s *keyState) {
				sh := &s.shards[at]
				s.started, s.kept = s.started&^sh.leased, s.kept&^sh.leased
				sh.leased, sh.holder = 0, 0
			})
			do(name("nack"), func(s *keyState) {
				sh := &s.shards[at]
				sh.has, sh.leased = sh.has|sh.leased, 0
			})
		}
		if m.loses > 0 && from.durable[at] != *sh {
			do(name("confirmed"), func(s *keyState) {
				s.durable[at] = s.shards[at]
				s.kept |= (sh.has | sh.leased | sh.outbox) &^ m.gone(s)
			})
			if from.failovers > 0 {
				do(name("fails over"), func(s *keyState) {
					s.shards[at] = s.durable[at]
					s.failovers--
				})
			}
		}
		if from.late[at] {
			do(name("send arrives late"), func(s *keyState) {
				s.late[at] = false
				m.takes(s, uint8(at))
			})
		}
	}
	if from.result == 0 {
		for _, lost := range []bool{false, true} {
			do(fmt.Sprintf("send at %c, reply lost %v", 'A'+from.at, lost), func(s *keyState) {
				s.late[s.at] = true
				switch reply := m.takes(s, s.at); {
				case lost:
				case reply == done:
					s.result = added
				case reply == askB:
					s.at = shardB
				}
			})
		}
	}
	m.moves(from, do)
}

// gone returns the messages of an outbox that have arrived and were acked since.
func (m *keyModel) gone(s *keyState) ids {
	a, b := &s.shards[shardA], &s.shards[shardB]
	if a.number == 0 || b.arrived < a.number {
		return 0
	}
	return a.outbox &^ (b.has | b.leased)
}

// moves are the steps of movers.
func (m *keyModel) moves(from *keyState, do func(name string, step func(s *keyState))) {
	a, b := &from.shards[shardA], &from.shards[shardB]
	if a.key == owned && (a.leased == 0 || m.bug == leavesLeased) {
		do("the key leaves", func(s *keyState) { s.shards[shardA].key = leaving })
	}
	if a.key == leaving && a.number == 0 && a.last < uint8(len(from.sent))-1 {
		part := a.has & -a.has // one message at a time
		last := part == a.has && a.leased == 0 || m.bug == lastTooEarly
		do(fmt.Sprintf("depart %03b, the last part %v", part, last), func(s *keyState) {
			a := &s.shards[shardA]
			a.last++
			a.has, a.outbox, a.number, a.flags = a.has&^part, part, a.last, 0
			a.holds, a.holder = a.holder&part, a.holder&^part
			if last {
				a.key, a.flags = absent, 1
			}
		})
	}
	confirmed := m.loses == 0 || from.durable[shardA].number == a.number && from.durable[shardA].outbox == a.outbox
	if a.number > 0 && from.sent[a.number] == (keyPart{}) && (confirmed || m.bug == keyUnconfirmed) {
		do(fmt.Sprintf("arrive %d", a.number), func(s *keyState) {
			s.sent[a.number] = keyPart{a.outbox, a.holds, a.flags == 1}
			m.arrive(s, a.number)
		})
	}
	for number := range uint8(len(from.sent)) {
		if from.sent[number] != (keyPart{}) {
			do(fmt.Sprintf("arrive %d again", number), func(s *keyState) { m.arrive(s, number) })
		}
	}
	if a.number > 0 && b.arrived >= a.number && (m.loses == 0 || from.durable[shardB].arrived >= a.number) {
		do(fmt.Sprintf("departed %d", a.number), func(s *keyState) {
			a := &s.shards[shardA]
			a.outbox, a.holds, a.number, a.flags = 0, 0, 0, 0
		})
	}
}

func TestNoHistoryOfAKeyThatMovesBreaksItsOrder(t *testing.T) {
	most := uint8(1)
	if os.Getenv("LATER_LONG") != "" {
		most = 2
	}
	for loses := range most + 1 {
		states, history := explore(&keyModel{loses: loses})
		if history != nil {
			t.Fatalf("%d failovers:\n%s", loses, strings.Join(history, "\n"))
		}
		t.Logf("%d failovers: %d states", loses, states)
	}
}

func TestTheExplorerFindsFaultsOfKeysThatMove(t *testing.T) {
	for bug, loses := range map[string]uint8{
		leavesLeased: 0, startsEarly: 0, startsLeaving: 0, lastTooEarly: 0, holdForgotten: 0, keyUnconfirmed: 1,
	} {
		t.Run(bug, func(t *testing.T) {
			states, history := explore(&keyModel{bug, loses})
			if history == nil {
				t.Fatalf("no history breaks a promise, in %d states", states)
			}
			t.Logf("after %d states:\n%s", states, strings.Join(history, "\n"))
		})
	}
}
