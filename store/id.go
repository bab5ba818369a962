package store

import (
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"sync"
	"time"
)

// An id has 14 characters of a 64-letter alphabet in ASCII order. The first 42 bits are the sender's clock in
// milliseconds (enough until 2109). The next 30 bits start at random and count up within a millisecond. The last 12
// bits are the slot. Ids sort by time, and ids of one process sort in the order of their making, whatever their slots.
// Fourteen bytes fit Redis's second-smallest allocation; with 16 or more each message would take 32 bytes more
// (docs/redis-layout.md).
const (
	idLength   = 14
	idAlphabet = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"

	countBits = 30
	slotBits  = 12
)

var idValue = func() (v [256]int8) {
	for i := range v {
		v[i] = -1
	}
	for i, c := range []byte(idAlphabet) {
		v[c] = int8(i)
	}
	return v
}()

var ids struct {
	sync.Mutex
	last   uint64 // the time of the last id, in ms since 1970
	count  uint64
	slot   uint64 // of ids without a slot of their own, in this millisecond
	random [512]byte
	used   int
}

// IDs makes the ids of the messages of one call. The id of a message with a key has the slot of its key. The
// ids of all others have the same slot. The zero IDs is ready for use; it is for one goroutine.
type IDs struct {
	slot    uint64
	hasSlot bool
}

// NewID returns a new id that sorts by time, for a message without a key. Ids that a process makes in the same
// millisecond have the same slot.
//
// Two ids of one process never collide. Two ids made in the same millisecond by different processes collide with a
// probability of 2^-42, or of 2^-30 if their messages have the same key or keys of the same slot; see IDs. Send then
// makes a new one. An outbox cannot notice a collision, so it makes longer ids for messages with keys.
func NewID() string { return new(IDs).New("") }

// New returns a new id that sorts by time, for a message with a key, or without one if key is "". See NewID.
func (i *IDs) New(key string) string {
	ms, count, slot := nextID()
	switch {
	case key != "":
		slot = uint64(KeySlot(key))
	case i.hasSlot:
		slot = i.slot
	default:
		i.slot, i.hasSlot = slot, true
	}
	tail := count<<slotBits | slot
	var b [idLength]byte
	for i := idLength/2 - 1; i >= 0; i-- {
		b[i] = idAlphabet[ms&63]
		b[i+idLength/2] = idAlphabet[tail&63]
		ms, tail = ms>>6, tail>>6
	}
	return string(b[:])
}

// KeySlot returns the slot of a key, 0 to Slots-1: the last 12 bits of its CRC-32 (IEEE 802.3). The hash never changes,
// because ids have the slot.
func KeySlot(key string) int { return int(crc32.ChecksumIEEE([]byte(key)) % (1 << slotBits)) }

// Slots is the number of slots of ids.
const Slots = 1 << slotBits

// Slot returns the slot of an id, 0 to Slots-1. An id made by NewID or IDs carries it. Another id has the slot of a
// key: the id up to its first slash, or all of it.
func Slot(id string) int {
	if _, ok := IDTime(id); ok {
		return int(idValue[id[idLength-2]])<<6 | int(idValue[id[idLength-1]])
	}
	key, _, _ := strings.Cut(id, "/")
	return KeySlot(key)
}

// FitsKey reports whether an id has the slot of the key of its message, so that all messages of the key are in one
// shard. An id that was made for the key fits, and so does one that begins with the key and a slash. Without a key
// every id does.
func FitsKey(id, key string) bool { return key == "" || Slot(id) == KeySlot(key) }

// nextID returns the parts of a new id.
func nextID() (ms, count, slot uint64) {
	now := uint64(time.Now().UnixMilli()) // without the lock, which all senders share
	ids.Lock()
	if now > ids.last {
		ids.last = now
		drawID()
	} else if ids.count++; ids.count == 1<<countBits {
		ids.last++
		drawID()
	}
	ms, count, slot = ids.last, ids.count, ids.slot
	ids.Unlock()
	return ms, count, slot
}

// drawID sets the random parts of the ids of a millisecond. The caller holds the lock.
func drawID() {
	if ids.used == 0 || ids.used+8 > len(ids.random) {
		rand.Read(ids.random[:]) // never fails: crypto/rand crashes the program instead
		ids.used = 0
	}
	bits := binary.LittleEndian.Uint64(ids.random[ids.used:])
	ids.used += 8
	ids.count, ids.slot = bits>>slotBits%(1<<countBits), bits%(1<<slotBits)
}

// IDTime returns the time in an id made by NewID or IDs. It returns false for any other id.
func IDTime(id string) (time.Time, bool) {
	if len(id) != idLength {
		return time.Time{}, false
	}
	var ms int64
	for i := range idLength {
		v := idValue[id[i]]
		if v < 0 {
			return time.Time{}, false
		}
		if i < idLength/2 {
			ms = ms<<6 | int64(v)
		}
	}
	return time.UnixMilli(ms), true
}
