package store

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"
)

// An id has 14 characters of a 64-letter alphabet in ASCII order. The first 42 bits are the sender's clock in
// milliseconds (enough until 2109); the other 42 bits start at random and count up within a millisecond. Ids sort by
// time, and ids of one process sort in the order of their making. Fourteen bytes fit Redis's second-smallest
// allocation; with 16 or more each message would take 32 bytes more (docs/redis-layout.md).
const (
	idLength   = 14
	idAlphabet = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
)

const idBits = 42

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
	tail   uint64
	random [512]byte
	used   int
}

// NewID returns a new id that sorts by time.
//
// Two ids of one process never collide. Two ids made in the same millisecond by different processes collide with a
// probability of 2^-42; Send then makes a new one.
func NewID() string {
	ms := uint64(time.Now().UnixMilli()) // without the lock, which all senders share
	ids.Lock()
	if ms > ids.last {
		ids.last, ids.tail = ms, randomTail()
	} else {
		ids.tail++
		if ids.tail == 1<<idBits {
			ids.last++
			ids.tail = randomTail()
		}
	}
	ms, tail := ids.last, ids.tail
	ids.Unlock()
	var b [idLength]byte
	for i := idLength/2 - 1; i >= 0; i-- {
		b[i] = idAlphabet[ms&63]
		b[i+idLength/2] = idAlphabet[tail&63]
		ms, tail = ms>>6, tail>>6
	}
	return string(b[:])
}

// randomTail returns the random bits of an id. The top bit is 0, so that counting up within a millisecond does not
// overflow. The caller holds the lock.
func randomTail() uint64 {
	if ids.used == 0 || ids.used+8 > len(ids.random) {
		rand.Read(ids.random[:]) // never fails: crypto/rand crashes the program instead
		ids.used = 0
	}
	tail := binary.LittleEndian.Uint64(ids.random[ids.used:])
	ids.used += 8
	return tail & (1<<(idBits-1) - 1)
}

// IDTime returns the time in an id made by NewID. It returns false for any other id.
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
