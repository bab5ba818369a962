package benchmark

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"time"
)

// MinSize is the size of the smallest payload: the message's number and due time, 16 hexadecimal digits each.
const MinSize = 32

// noise returns text that does not compress well, to fill payloads.
var noise = sync.OnceValue(func() string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 1<<20)
	for i := range b {
		b[i] = alphabet[random.IntN(len(alphabet))]
	}
	return string(b)
})

// putPayload fills p, which has at least MinSize bytes.
func putPayload(p []byte, number int, due time.Time) {
	micros := uint64(0)
	if !due.IsZero() {
		micros = uint64(due.UnixMicro())
	}
	putHex(p[:16], uint64(number))
	putHex(p[16:32], micros)
	rest, noise := p[32:], noise()
	for len(rest) > 0 {
		at := rand.IntN(len(noise) - 1)
		rest = rest[copy(rest, noise[at:]):]
	}
}

// NewPayload returns a payload of size bytes, which must be at least MinSize.
func NewPayload(size, number int, due time.Time) []byte {
	p := make([]byte, size)
	putPayload(p, number, due)
	return p
}

func putHex(p []byte, v uint64) {
	for i := len(p) - 1; i >= 0; i-- {
		p[i] = "0123456789abcdef"[v&15]
		v >>= 4
	}
}

// readPayload returns the number and due time of a message. The due time is zero if the message was due at once.
func readPayload(p []byte) (number int, due time.Time, ok bool) {
	if len(p) < MinSize {
		return 0, due, false
	}
	n, err := strconv.ParseUint(string(p[:16]), 16, 32)
	micros, err2 := strconv.ParseInt(string(p[16:32]), 16, 64)
	if err != nil || err2 != nil {
		return 0, due, false
	}
	if micros != 0 {
		due = time.UnixMicro(micros)
	}
	return int(n), due, true
}

// NumberOf returns the number of a message.
func NumberOf(payload []byte) int {
	number, _, _ := readPayload(payload)
	return number
}
