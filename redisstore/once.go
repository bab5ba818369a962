package redisstore

import (
	"encoding/binary"

	"github.com/laterq/later/store"
)

// addOnceKeys adds the keys of the sends with a store.Once, after the others.
func (s *Store) addOnceKeys(c *call, queue string) {
	c.addKey(s.keys.key(queue, onceKey))
	c.addKey(s.keys.key(queue, oldOnceKey))
}

// addOnce adds a Once, which may be nil, to the arguments of a script that always takes one.
func (c *call) addOnce(o *store.Once) {
	if o == nil {
		o = &store.Once{}
	}
	c.add(o.Key, o.Fingerprint)
}

// parseFirst returns the send in the text that a script replies for a store.Once, see lua/_once.lua; nil if it is
// empty.
func parseFirst(text string) *store.FirstSend {
	const timeSize = 6
	if len(text) <= timeSize {
		return nil
	}
	due := binary.BigEndian.Uint64([]byte("\x00\x00" + text[:timeSize]))
	return &store.FirstSend{ID: text[timeSize:], Due: store.Time(int64(due))}
}
