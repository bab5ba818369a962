package shard

import "fmt"

// pass are the steps of a mover.
func (m *keyModel) pass(from *keyState, at passStep, do func(name string, step func(s *keyState, mv *keyMover))) {
	a := &from.shards[shardA]
	empty := a.number == 0
	surely := empty && m.isConfirmed(from, shardA) // as the mover has found
	switch {
	case at == rests && from.moving && !from.over && surely:
		m.beginPass(from, do)
	case at == visits:
		for _, part := range []ids{y, z, y | z} {
			if empty && a.last < lastNumber || (a.has|a.leased)&part == 0 {
				do(fmt.Sprintf("visit %03b", part), func(s *keyState, mv *keyMover) { m.visit(s, mv, part) })
			}
		}
		if empty && m.rate && a.last < lastNumber {
			do("depart the key", m.departKey)
		}
		do("no key departs", func(s *keyState, mv *keyMover) { m.noKey(s, mv) })
		if m.bug == opensEarly && !from.opened || m.bug == endForgotten && from.ends {
			do("open, early", func(s *keyState, mv *keyMover) { s.opened, s.ends = true, false })
		}
	case at == expects:
		do("expect", func(s *keyState, mv *keyMover) {
			s.lateExpect |= 1 << mv.number
			m.expect(s, mv.number, mv)
		})
		do("expect, delayed", func(s *keyState, mv *keyMover) {
			s.lateExpect |= 1 << mv.number
			mv.endPass()
		})
	case at == expectsNone && surely:
		do("expect none", func(s *keyState, mv *keyMover) {
			b := &s.shards[shardB]
			if mv.at = opens; !mv.busy || m.bug == endsBusy {
				b.expected, s.lateNone = false, true
			}
			m.wrote(s, shardB, mv)
		})
	case at == opens:
		do("open", func(s *keyState, mv *keyMover) {
			if m.window && (mv.opened != s.opened || mv.ended != s.ends) {
				mv.endPass() // another mover has changed the directory
				return
			}
			last := !mv.found && mv.opened == s.opened && (!m.window || mv.opened && !mv.ended) // nothing is left
			if s.opened, s.ends, mv.opened, mv.at = true, mv.window, true, closes; last {
				return
			}
			if mv.window {
				mv.past = window{moved: true, left: mv.stays}
			}
			mv.endPass()
		})
	case at == closes:
		do("close", func(s *keyState, mv *keyMover) {
			if mv.at = ends; m.bug != notClosed {
				b := &s.shards[shardB]
				b.arrived, b.expected, s.lateNone = closed, false, true
			}
			m.wrote(s, shardB, mv)
		})
	case at == ends && !from.over:
		do("the moves are over", func(s *keyState, mv *keyMover) {
			s.over, *mv = true, keyMover{}
			*m.ended = true
		})
	}
}

// endPass ends a pass of a mover, which remembers the window that it has moved.
func (mv *keyMover) endPass() { *mv = keyMover{past: mv.past} }

// beginPass begins a pass that moves the messages of a window, or all.
func (m *keyModel) beginPass(from *keyState, do func(name string, step func(s *keyState, mv *keyMover))) {
	begin := func(mv *keyMover, s *keyState, needs ids, window bool) {
		*mv = keyMover{at: visits, needs: needs, opened: s.opened, ended: s.ends, window: window, past: mv.past}
	}
	if m.window && !from.opened && !from.past {
		do("a pass over the first window begins", func(s *keyState, mv *keyMover) {
			begin(mv, s, m.due(s)&(y|z)|s.shards[shardA].leased, true)
		})
	}
	do("a pass begins", func(s *keyState, mv *keyMover) {
		needs := y | z
		if s.ends && (mv.past.moved || m.bug == othersWindow) {
			needs = z | mv.past.left
			if m.bug == leftForgotten {
				needs = z
			}
		}
		begin(mv, s, needs, false)
	})
}

// depart puts messages of A into its outbox.
func (m *keyModel) depart(s *keyState, takes ids) {
	a := &s.shards[shardA]
	a.last++
	a.number, a.outbox = a.last, keyParcel{has: takes, hold: a.hold & takes}
	a.has, a.hold = a.has&^takes, a.hold&^takes
}

// visit departs a part of the messages.
func (m *keyModel) visit(s *keyState, mv *keyMover, part ids) {
	if mv.seen&part != 0 {
		return
	}
	a := &s.shards[shardA]
	mv.seen |= part
	mv.found = mv.found || (a.has|a.leased)&part != 0
	if takes := a.has & part; takes != 0 {
		m.depart(s, takes)
	}
	if leased := a.leased & part; leased != 0 {
		mv.stays |= leased
		m.isBusy(s, mv)
	}
	m.wrote(s, shardA, mv)
}

// isBusy tells a mover that the key is busy.
func (m *keyModel) isBusy(s *keyState, mv *keyMover) {
	mv.busy = true
	if !mv.opened && m.bug != notExpected {
		mv.number, mv.at = s.shards[shardA].last, expects
	}
}

// expect has B expect the key. A mover ends its pass if the call is refused.
func (m *keyModel) expect(s *keyState, number uint8, mv *keyMover) {
	b := &s.shards[shardB]
	refused := b.arrived > number && m.bug != takesOld
	b.expected = b.expected || !refused
	switch {
	case mv != nil && refused:
		mv.endPass()
	case mv != nil:
		mv.at, mv.number = visits, 0
		m.wrote(s, shardB, mv)
	}
}

// departKey departs the key itself, after all its messages.
func (m *keyModel) departKey(s *keyState, mv *keyMover) {
	a := &s.shards[shardA]
	if mv.needs&^mv.seen != 0 || mv.busy && m.bug != leavesBusy {
		return
	}
	mv.at = expectsNone
	switch {
	case a.has&mv.needs|a.leased|a.hold != 0 && m.bug != leavesBusy:
		m.isBusy(s, mv)
	case a.spent || m.bug == departsUnknown:
		mv.found = true
		a.last++
		a.number, a.outbox, a.spent = a.last, keyParcel{key: true, spent: a.spent}, false
	}
	m.wrote(s, shardA, mv)
}

// noKey ends the part of a pass in A without the key: it is busy, or A knows nothing of it.
func (m *keyModel) noKey(s *keyState, mv *keyMover) {
	if mv.needs&^mv.seen == 0 && (mv.busy || !s.shards[shardA].spent || m.bug == stateForgotten) {
		mv.at = expectsNone
		m.wrote(s, shardA, mv)
	}
}
