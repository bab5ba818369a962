package redisstore

import (
	"strings"
	"sync/atomic"
)

// Most calls of a process that has little to do are of one message or a few, and nothing about them is unusual: no
// record, no dedup window, no repetition. A script that handles every case takes up to twice as long for it as one that
// handles only this case, with the keys that it needs: a script pays for each function that it defines, and for each
// key and argument. So such calls first try a script of their own. If it replies UNCOMMON, it has done nothing, and the
// call goes to the script for every case.

// commonCase is one of these scripts.
type commonCase int

const (
	sendOne commonCase = iota
	claimFew
	ackFew
	commonCases
)

// commonScripts are their names and the names of their keys.
var commonScripts = [commonCases]struct {
	name string
	keys []string
}{
	sendOne: {"send_one", []string{"due", "messages", "records", "dedup", "meta", "sessions", "wake",
		"old_sessions"}},
	claimFew: {"claim_few", []string{"due", "messages", "leases", "lease_deadlines", "records", "dead", "dedup",
		"meta", "bucket_starts", "wake"}},
	ackFew: {"ack_few", []string{"messages", "leases", "lease_deadlines", "records", "meta", "sessions",
		"old_sessions"}},
}

// keysOfCommon returns the text of lua/_keys.lua for a script, "" for one that receives all keys.
func keysOfCommon(name string) string {
	for _, script := range commonScripts {
		if script.name == name {
			return "local " + strings.ToUpper(strings.Join(script.keys, ", ")) + " = unpack(KEYS)\n"
		}
	}
	return ""
}

// commonUse says how common the common case has been in a queue lately.
type commonUse struct {
	keys []any
	skip atomic.Int32 // calls that do not try it
	last atomic.Int32 // how many were skipped after the last failure
}

// maxSkipped is the number of calls in a row that do not try the common case in a queue where it is uncommon.
const maxSkipped = 64

// try reports whether a call should try the common case.
func (u *commonUse) try() bool {
	if u.skip.Load() <= 0 {
		return true
	}
	return u.skip.Add(-1) < 0
}

// tried says whether the case was the common one.
func (u *commonUse) tried(common bool) {
	skip := int32(0)
	if !common {
		skip = min(2*u.last.Load()+1, maxSkipped)
	}
	u.last.Store(skip)
	u.skip.Store(skip)
}

// commonCall is a call of a script for the common case.
type commonCall struct {
	*script
	use   *commonUse
	args  []any
	looks bool // whether the sessions of the queue turn; see lua/_common_session.lua
}

// addCommon makes a call try the common case first. The arguments follow the session and request number, except in a
// claim, which does not need them: see repeats_until in keys.go. The other scripts receive OLD_SESSIONS as their last
// key, unless the session has looked lately.
func (s *Store) addCommon(c *call, queue string, of commonCase, args ...any) {
	keys := s.keys.of(queue)
	use := &keys.common[of]
	if keys.flow.Load() || !use.try() {
		return
	}
	sc, queueKeys := s.scripts[commonScripts[of].name], use.keys
	looks := of != claimFew
	if looks && c.session.hasLookedAt(keys) {
		looks, queueKeys = false, queueKeys[:len(queueKeys)-1]
	}
	all := make([]any, 0, 3+len(queueKeys)+2+len(args))
	all = append(append(all, "evalsha", sc.id, len(queueKeys)), queueKeys...)
	if of != claimFew {
		all = append(all, c.args[c.stamp:c.stamp+2]...)
	}
	c.few = commonCall{sc, use, append(all, args...), looks}
	c.common = &c.few
}
