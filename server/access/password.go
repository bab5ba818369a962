package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync/atomic"

	"golang.org/x/crypto/bcrypt"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

// maxGuesses is how many passwords are checked at once, each for 60 ms of a CPU at a cost of 10, and maxWaiting how
// many requests can be in that, or wait for it.
const (
	maxGuesses = 2
	maxWaiting = 32
)

// password is the hash of a user's password. It remembers the password that was right, so that the user's next requests
// cost nothing.
type password struct {
	hash  []byte
	right atomic.Pointer[sum] // HMAC of the password
}

// guesses limits what checks of passwords cost.
type guesses struct {
	key     []byte // of the HMACs
	running chan struct{}
	waiting chan struct{}
}

func newGuesses(key []byte) *guesses {
	return &guesses{key: key, running: make(chan struct{}, maxGuesses), waiting: make(chan struct{}, maxWaiting)}
}

// check reports whether text is the password.
func (g *guesses) check(r *http.Request, p *password, text string) (bool, error) {
	mac := g.mac(text)
	if right := p.right.Load(); right != nil && hmac.Equal(right[:], mac[:]) {
		return true, nil
	}
	select {
	case g.waiting <- struct{}{}:
		defer func() { <-g.waiting }()
	default:
		return false, &problem.Error{Status: http.StatusTooManyRequests, Err: fmt.Errorf(
			"too many passwords are being checked, try again in a second: %w", store.ErrUnavailable)}
	}
	select {
	case g.running <- struct{}{}:
		defer func() { <-g.running }()
	case <-r.Context().Done():
		return false, r.Context().Err()
	}
	if bcrypt.CompareHashAndPassword(p.hash, []byte(text)) != nil {
		return false, nil
	}
	p.right.Store(&mac)
	return true, nil
}

func (g *guesses) mac(text string) (mac sum) {
	h := hmac.New(sha256.New, g.key)
	h.Write([]byte("password\x00" + text))
	h.Sum(mac[:0])
	return mac
}
