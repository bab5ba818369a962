package shard

import (
	"fmt"
	"math/bits"
)

// The model is of a queue with messages that move from shard A to shard B when its number of shards changes. Every step
// that a process can make is here, with the checks that the real scripts have to make, and every fault: replies that
// are lost, calls that arrive late, a mover that stops anywhere, and, if the shards replicate asynchronously, failovers
// that lose the last steps of a shard.
//
// The protocol:
//
//   - The directory has the generation: 0 before the change, 1 while messages move, 2 afterwards. A call has the
//     generation that its process knows, and a shard of another one refuses it.
//   - A call for an id goes to A first. If A does not have it and the generation is not 0, the process asks B. If the
//     id is on its way, in the outbox of A, the process waits until that step is complete. A call that a shard has
//     executed before has the same result again, whatever the generation.
//   - Depart moves ids of A into its outbox, under a number. Arrive puts them into B, once for each number. Departed
//     empties the outbox. Any process may make these steps, and repeat them.
//   - Each step relies on the one before. If a failover can lose steps, arrive waits until depart is confirmed, and
//     departed until arrive is, by a disk or a replica. No process asks B until all is confirmed that A knew when it
//     answered: else A may forget the generation, and take a late call of generation 0 for a message that is in B by
//     then, or have a message again that was acked and then sent anew to B.
//   - The change is over when A is empty, for certain, and no call that was begun before can arrive or be repeated: in
//     fact, 7 minutes later. Then A forgets which calls it has executed.

// ids is a set of up to three ids.
type ids uint8

// result is the result of a call; 0 is none yet.
type result uint8

const (
	added result = iota + 1
	duplicate
	removed
	notFound
)

// shardState is the stored state of a shard.
type shardState struct {
	gen      uint8
	has      ids
	outbox   ids
	number   uint8 // of the outbox; 0 if it is empty
	last     uint8 // number of the last outbox
	arrived  uint8 // number of the last ids that have arrived
	sessions [2]result
}

// client is a process that makes one call, and repeats it until it has a result.
type client struct {
	gen    uint8 // that it knows
	at     uint8 // shard that it asks
	tried  bool
	result result
	effect result // the change that its call made, whether or not it knows
}

// state is a whole system. All of it can be compared, so that a history that leads to a known state is not followed.
type state struct {
	directory uint8 // the generation
	shards    [2]shardState
	durable   [2]shardState // the state after a failover
	live      ids           // messages that exist
	kept      ids           // messages that no failover may lose
	clients   [2]client
	past      uint16 // calls that were made and may arrive again, as numbers of pastCall
	sent      [4]ids // contents of arrive, by number, which may arrive again
	consumed  uint8
	failovers uint8 // that are left
}

const (
	shardA = 0
	shardB = 1
)

// call is the call of a client.
type call struct {
	sends bool // or cancels
	id    uint8
}

func (c call) String() string {
	if c.sends {
		return fmt.Sprintf("send %c", 'x'+c.id)
	}
	return fmt.Sprintf("cancel %c", 'x'+c.id)
}

// model is the rules of a system, with faults in them if bug is set.
type model struct {
	bug   string
	calls []call
	start ids
	loses uint8 // so many failovers lose unconfirmed steps
}

// The faults that a model can have.
const (
	noFence           = "a shard does not check the generation"
	arrivesTwice      = "arrive does not check its number"
	outboxIgnored     = "a call does not look into the outbox"
	finalisedEarly    = "the change is over while calls may arrive or be repeated"
	answerUnconfirmed = "a process asks B before it is confirmed what A knew when it answered"
	departUnconfirmed = "arrive does not wait until depart is confirmed"
	arriveUnconfirmed = "departed does not wait until arrive is confirmed"
	finalUnconfirmed  = "the change is over before it is certain that A is empty"
)

// violation is a broken promise, found in a step.
type violation string

func (m *model) first() state {
	s := state{live: m.start}
	s.shards[shardA].has = m.start
	if m.loses > 0 {
		s.durable, s.kept, s.failovers = s.shards, m.start, m.loses
	}
	return s
}

// pastCall is the number of a call that may arrive again.
func pastCall(client int, at, gen uint8) uint16 { return 1 << (client*6 + int(at)*3 + int(gen)) }

// replies of a shard that are no results.
const (
	otherGeneration = "other generation"
	onItsWay        = "on its way"
	notConfirmed    = "not confirmed"
	askB            = "ask B"
	done            = ""
)

// execute executes the call of a client at a shard.
func (m *model) execute(s *state, i int, at, gen uint8) (reply string, r result) {
	sh, c := &s.shards[at], m.calls[i]
	id := ids(1) << c.id
	switch {
	case sh.sessions[i] != 0:
		return done, sh.sessions[i]
	case gen != sh.gen && m.bug != noFence:
		return otherGeneration, 0
	case at == shardA && sh.has&id == 0 && sh.outbox&id != 0 && m.bug != outboxIgnored:
		return onItsWay, 0
	case at == shardA && sh.has&id == 0 && gen > 0 && m.loses > 0 && s.durable[at] != *sh && m.bug != answerUnconfirmed:
		return notConfirmed, 0
	case at == shardA && sh.has&id == 0 && gen > 0:
		return askB, 0
	}
	switch has := sh.has&id != 0; {
	case c.sends && has:
		r = duplicate
	case c.sends:
		r, sh.has = added, sh.has|id
	case has:
		r, sh.has = removed, sh.has&^id
	default:
		r = notFound
	}
	sh.sessions[i] = r
	if m.loses == 0 {
		m.judge(s, i, id, r)
	}
	switch r {
	case added:
		s.live |= id
	case removed:
		s.live, s.kept = s.live&^id, s.kept&^id
	}
	return done, r
}

// judge stops the history if a result is not the one that a queue in one place would have given.
func (m *model) judge(s *state, i int, id ids, r result) {
	live := s.live&id != 0
	switch {
	case (r == duplicate || r == removed) && !live:
		panic(violation(fmt.Sprintf("%v: a message is found that does not exist", m.calls[i])))
	case (r == added || r == notFound) && live:
		panic(violation(fmt.Sprintf("%v: a message is not found that exists", m.calls[i])))
	}
	if r == added || r == removed {
		if s.clients[i].effect != 0 {
			panic(violation(fmt.Sprintf("%v: two effects", m.calls[i])))
		}
		s.clients[i].effect = r
	}
}

// attempt is an attempt of a client. Its reply may be lost.
func (m *model) attempt(s *state, i int, lost bool) {
	c := &s.clients[i]
	s.past |= pastCall(i, c.at, c.gen)
	c.tried = true
	reply, r := m.execute(s, i, c.at, c.gen)
	if lost {
		return
	}
	sh := &s.shards[c.at]
	switch {
	case reply == otherGeneration && sh.gen > c.gen:
		c.gen, c.at = s.directory, shardA
		if s.directory == 2 {
			c.at = shardB
		}
	case reply == otherGeneration: // the process tells the shard
		sh.gen = c.gen
	case reply == askB:
		c.at = shardB
	case reply == done:
		if m.loses == 0 && c.effect != 0 && r != c.effect {
			panic(violation(fmt.Sprintf("%v: its result is not its effect", m.calls[i])))
		}
		c.result = r
	}
}

// arrive puts the ids of a number into B.
func (m *model) arrive(s *state, number uint8) {
	b := &s.shards[shardB]
	if b.arrived >= number && m.bug != arrivesTwice {
		return
	}
	if b.has&s.sent[number] != 0 {
		panic(violation("an id arrives where it is"))
	}
	b.has, b.arrived = b.has|s.sent[number], max(b.arrived, number)
}

// check stops the history if an id is in two places, or in none although its message exists.
func (m *model) check(s *state) {
	a, b := &s.shards[shardA], &s.shards[shardB]
	onItsWay := a.outbox
	if a.number > 0 && b.arrived >= a.number {
		onItsWay = 0
	}
	if a.has&b.has|a.has&onItsWay|b.has&onItsWay != 0 {
		panic(violation("an id is in two places"))
	}
	somewhere := a.has | b.has | onItsWay
	if s.kept&^somewhere != 0 {
		panic(violation("a message is lost that was confirmed"))
	}
	if m.loses == 0 && somewhere != s.live {
		panic(violation("a message is in no place, or one that does not exist is"))
	}
}

// over reports whether the change may end.
func (m *model) over(s *state) bool {
	a, b := &s.shards[shardA], &s.shards[shardB]
	if s.directory != 1 || a.gen != 1 || b.gen != 1 || a.has|a.outbox != 0 {
		return false
	}
	if m.loses > 0 && m.bug != finalUnconfirmed && s.durable != s.shards {
		return false
	}
	if m.bug == finalisedEarly {
		return true
	}
	for i := range m.calls {
		if c := &s.clients[i]; c.tried && c.result == 0 {
			return false
		}
	}
	return s.past == 0
}

func (m *model) steps(from *state, do func(name string, step func(s *state))) {
	if from.directory == 0 {
		do("the change begins", func(s *state) { s.directory = 1 })
	}
	for at := range from.shards {
		if from.shards[at].gen < from.directory {
			do(fmt.Sprintf("%c learns the generation", 'A'+at), func(s *state) { s.shards[at].gen++ })
		}
	}
	m.moves(from, do)
	if m.over(from) {
		do("the change is over", func(s *state) {
			s.directory = 2
			s.shards[shardA].sessions, s.durable[shardA].sessions = [2]result{}, [2]result{}
		})
	}
	for at := range from.shards {
		for id := range uint8(3) {
			if bit := ids(1) << id; from.shards[at].has&bit != 0 && from.consumed == 0 {
				do(fmt.Sprintf("%c is consumed at %c", 'x'+id, 'A'+at), func(s *state) {
					s.shards[at].has &^= bit
					s.live, s.kept = s.live&^bit, s.kept&^bit
					s.consumed++
				})
			}
		}
		if m.loses > 0 && from.durable[at] != from.shards[at] {
			do(fmt.Sprintf("%c is confirmed", 'A'+at), func(s *state) {
				s.durable[at] = s.shards[at]
				s.kept |= s.durable[at].has | s.durable[at].outbox
				m.keptArrived(s)
			})
			if from.failovers > 0 {
				do(fmt.Sprintf("%c fails over", 'A'+at), func(s *state) {
					s.shards[at] = s.durable[at]
					s.failovers--
				})
			}
		}
	}
	for i := range m.calls {
		if c := &from.clients[i]; c.result == 0 {
			name := fmt.Sprintf("%v at %c, generation %d", m.calls[i], 'A'+c.at, c.gen)
			do(name, func(s *state) { m.attempt(s, i, false) })
			do(name+", reply lost", func(s *state) { m.attempt(s, i, true) })
			do(name+", is on its way", func(s *state) {
				s.past |= pastCall(i, c.at, c.gen)
				s.clients[i].tried = true
			})
		}
		for at := range uint8(2) {
			for gen := range uint8(3) {
				if call := pastCall(i, at, gen); from.past&call != 0 {
					do(fmt.Sprintf("%v at %c, generation %d, arrives late", m.calls[i], 'A'+at, gen), func(s *state) {
						s.past &^= call
						m.execute(s, i, at, gen)
					})
				}
			}
		}
	}
}

// keptArrived leaves out of kept the ids of an outbox that have arrived and were removed since.
func (m *model) keptArrived(s *state) {
	if a, b := &s.shards[shardA], &s.shards[shardB]; a.number > 0 && b.arrived >= a.number {
		s.kept &^= a.outbox &^ b.has
	}
}

// moves are the steps of movers.
func (m *model) moves(from *state, do func(name string, step func(s *state))) {
	a, b := &from.shards[shardA], &from.shards[shardB]
	for part := ids(1); a.gen >= 1 && a.number == 0 && a.last < 3 && part < 8; part++ {
		if part&^a.has == 0 && (part == a.has || bits.OnesCount8(uint8(part)) == 1) {
			do(fmt.Sprintf("depart %03b", part), func(s *state) {
				a := &s.shards[shardA]
				a.has &^= part
				a.last++
				a.outbox, a.number = part, a.last
			})
		}
	}
	confirmed := m.loses == 0 || from.durable[shardA].number == a.number && from.durable[shardA].outbox == a.outbox
	if a.number > 0 && b.gen >= 1 && from.sent[a.number] == 0 && (confirmed || m.bug == departUnconfirmed) {
		do(fmt.Sprintf("arrive %d", a.number), func(s *state) {
			s.sent[a.number] = a.outbox
			m.arrive(s, a.number)
		})
	}
	for number := range uint8(len(from.sent)) {
		if from.sent[number] != 0 && b.gen >= 1 {
			do(fmt.Sprintf("arrive %d again", number), func(s *state) { m.arrive(s, number) })
		}
	}
	confirmed = m.loses == 0 || from.durable[shardB].arrived >= a.number
	if a.number > 0 && b.arrived >= a.number && (confirmed || m.bug == arriveUnconfirmed) {
		do(fmt.Sprintf("departed %d", a.number), func(s *state) {
			a := &s.shards[shardA]
			a.outbox, a.number = 0, 0
		})
	}
}
