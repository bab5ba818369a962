package server

import (
	"slices"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/undo"
	"github.com/laterq/later/internal/wire"
)

// Limits of what a server keeps in memory of all changes together, so that they can be undone. The oldest changes are
// forgotten first.
const (
	maxCopies    = 10_000
	maxCopyBytes = 16 << 20
	keepCopies   = 10 * time.Minute
	maxMoves     = maxMatched // messages that were rescheduled or shifted
)

// undos are the changes that a server can undo from its memory.
type undos struct {
	mu                    sync.Mutex
	all                   []*kept // the oldest first
	byID                  map[string]*kept
	copies, bytes, movedN int // of all
}

// kept has the copies and former due times of one change.
type kept struct {
	log      undo.Log
	schedule *keptSchedule
	part     int64 // the next part of its copies to restore
	done     int   // messages that are as before, after undos that failed later

	// The fields below are guarded by the mutex of undos.
	id                   string // of the change; "" while it is made
	copies, bytes, moves int    // that count
	until                time.Time
	timer                *time.Timer
	claimed              bool // an undo uses it
	gone                 bool
}

// keptSchedule is a schedule before it was replaced, and the version that replaced it.
type keptSchedule struct {
	former later.Schedule
	left   string
}

// begin returns the kept of a change that begins. The caller calls keep or forget.
func (u *undos) begin() *kept {
	k := &kept{part: 1}
	k.log.Room = func(copies, bytes, moves int) bool { return u.take(k, copies, bytes, moves) }
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = append(u.all, k)
	return k
}

// take makes room, or forgets all of a change that is too large: half of a change is not undone.
func (u *undos) take(k *kept, copies, bytes, moves int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	c, b, m := k.copies+copies, k.bytes+bytes, k.moves+moves
	fits := !k.gone && c <= maxCopies && b <= maxCopyBytes && m <= maxMoves
	over := func() bool {
		return u.copies+copies > maxCopies || u.bytes+bytes > maxCopyBytes || u.movedN+moves > maxMoves
	}
	for fits && over() {
		old := slices.IndexFunc(u.all, func(o *kept) bool {
			return o.id != "" && !o.claimed && (o.copies > 0 && copies > 0 || o.moves > 0 && moves > 0)
		})
		if fits = old >= 0; fits {
			u.drop(u.all[old])
		}
	}
	if !fits {
		u.drop(k)
		k.log.Copies, k.log.Moves, k.log.Edited = nil, nil, nil
		return false
	}
	u.count(k, c, b, m)
	return true
}

// count sets what a change counts against the limits. The caller holds mu.
func (u *undos) count(k *kept, copies, bytes, moves int) {
	u.copies, u.bytes, u.movedN = u.copies+copies-k.copies, u.bytes+bytes-k.bytes, u.movedN+moves-k.moves
	k.copies, k.bytes, k.moves = copies, bytes, moves
}

// drop forgets a change. The caller holds mu.
func (u *undos) drop(k *kept) {
	if k.gone {
		return
	}
	u.count(k, 0, 0, 0)
	k.gone = true
	delete(u.byID, k.id)
	u.all = slices.DeleteFunc(u.all, func(o *kept) bool { return o == k })
	if k.timer != nil {
		k.timer.Stop()
	}
}

// forget forgets a change.
func (u *undos) forget(k *kept) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(k)
}

// keep keeps a change that was made until it is undone, too old, or its room is needed. It returns false if it keeps
// nothing. From then on others may use and change k.
func (u *undos) keep(id string, k *kept) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if k.gone || k.messages() == 0 {
		u.drop(k)
		return false
	}
	k.id = id
	if u.byID == nil {
		u.byID = map[string]*kept{}
	}
	u.byID[id] = k
	bytes := 0
	for i := range k.log.Copies {
		bytes += undo.CopyBytes(&k.log.Copies[i])
	}
	copies := len(k.log.Copies)
	if copies == 0 && (k.log.Edited != nil || k.schedule != nil) { // they count as they were taken
		copies, bytes = k.copies, k.bytes
	}
	u.count(k, copies, bytes, len(k.log.Moves))
	if copies > 0 {
		k.until = time.Now().Add(keepCopies)
		k.timer = time.AfterFunc(keepCopies, func() { u.expire(k) })
	}
	return true
}

// expire forgets a change that is too old, unless an undo uses it.
func (u *undos) expire(k *kept) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !k.claimed {
		u.drop(k)
	}
}

// messages returns how many messages, or schedules, can be changed back.
func (k *kept) messages() int {
	n := len(k.log.Copies) + len(k.log.Moves)
	if k.log.Edited != nil || k.schedule != nil {
		n++
	}
	return n
}

// claim returns the kept of a change, for one undo at a time, or nil. The caller calls release or forget.
func (u *undos) claim(id string) *kept {
	u.mu.Lock()
	defer u.mu.Unlock()
	k := u.byID[id]
	if k == nil || k.claimed {
		return nil
	}
	k.claimed = true
	return k
}

// release lets another undo use the rest of a change.
func (u *undos) release(k *kept) {
	u.mu.Lock()
	defer u.mu.Unlock()
	k.claimed = false
	if !k.until.IsZero() && !time.Now().Before(k.until) {
		u.drop(k)
	}
}

// of returns how far a change can be undone, or nil.
func (u *undos) of(id string) *Undoable {
	u.mu.Lock()
	defer u.mu.Unlock()
	k := u.byID[id]
	if k == nil || k.claimed {
		return nil
	}
	out := &Undoable{Messages: k.messages()}
	if !k.until.IsZero() {
		out.Until = wire.FormatTime(k.until)
	}
	return out
}

// close forgets all changes.
func (u *undos) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.all) > 0 {
		u.drop(u.all[0])
	}
}
