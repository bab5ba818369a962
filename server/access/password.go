package access

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/quota"
	"github.com/laterq/later/store"
)

const (
	// maxWaiting is the number of requests that may be in checks of passwords, or wait for one. An address can have
	// half of the places that other addresses leave.
	maxWaiting = 32

	// An address has so many guesses at the password of one user, and at the passwords of all users together, and
	// regains one each time the interval passes. Guesses from other addresses do not count, so that no attacker can
	// lock a user out.
	userGuesses, userGuessEvery       = 10, 10 * time.Second
	addressGuesses, addressGuessEvery = 50, time.Second
	// maxGuessers is the number of guessers that are remembered.
	maxGuessers = 10_000
)

// password is the hash of a user's password. It remembers the password that was right, so that the user's next requests
// cost nothing.
type password struct {
	hash  []byte
	right atomic.Pointer[sum] // HMAC of the password
}

// guesses limits the number of checks of passwords and their cost.
type guesses struct {
	key     []byte // of the HMACs
	waiting *quota.Quota[netip.Addr]
	cpu     quota.CPU[netip.Addr]

	mu       sync.Mutex
	guessers map[guesser]time.Time // when they may make all guesses again, which each guess puts off
	checks   map[attempt]*checking
}

// guesser is the source of guesses: an address, and the HMAC of the user's name, or zero for all users.
type guesser struct {
	address netip.Addr
	user    sum
}

// attempt is a password by its HMAC, to be checked.
type attempt struct {
	*password
	mac sum
}

// checking is the check of an attempt under way. Requests with the same password share it, and count as one guess.
type checking struct {
	done  chan struct{} // closed when right and err are set
	right bool
	err   error
}

func newGuesses(key []byte) *guesses {
	return &guesses{key: key, waiting: quota.New[netip.Addr](maxWaiting), cpu: quota.NewCPU[netip.Addr](quota.ProcessCPU),
		guessers: map[guesser]time.Time{}, checks: map[attempt]*checking{}}
}

// check reports whether text is the password of a user.
func (g *guesses) check(r *http.Request, user string, p *password, text string) (bool, error) {
	address := AddressOf(r.RemoteAddr)
	one := attempt{p, g.mac("password", text)}
	g.mu.Lock()
	c := g.checks[one]
	if c == nil {
		if !g.allow(address, user, time.Now()) {
			g.mu.Unlock()
			return false, tooMany("your address has guessed too many passwords, try again in %v", userGuessEvery)
		}
		c = &checking{done: make(chan struct{})}
		g.checks[one] = c
		g.mu.Unlock()
		c.right, c.err = g.compare(r, address, one, text)
		g.mu.Lock()
		delete(g.checks, one)
		if c.right || c.err != nil {
			g.takeBack(address, user)
		}
		close(c.done)
	}
	g.mu.Unlock()
	select {
	case <-c.done:
		if r.Context().Err() == nil && errors.Is(c.err, context.Canceled) { // the request that made the check is gone
			return g.check(r, user, p, text)
		}
		return c.right, c.err
	case <-r.Context().Done():
		return false, r.Context().Err()
	}
}

// compare compares a password with the right one.
func (g *guesses) compare(r *http.Request, address netip.Addr, one attempt, text string) (bool, error) {
	if g.isRight(one) {
		return true, nil
	}
	if g.waiting.Take(address, 1) != quota.None {
		return false, errChecking
	}
	defer g.waiting.Give(address, 1)
	done, why := g.cpu.Work(r.Context(), address) // for 60 ms at a cost of 10
	switch {
	case r.Context().Err() != nil:
		return false, r.Context().Err()
	case why != quota.None:
		return false, errChecking
	}
	defer done()
	if bcrypt.CompareHashAndPassword(one.hash, []byte(text)) != nil {
		return false, nil
	}
	one.right.Store(&one.mac)
	return true, nil
}

// isRight reports whether a password was right before.
func (g *guesses) isRight(c attempt) bool {
	right := c.right.Load()
	return right != nil && hmac.Equal(right[:], c.mac[:])
}

// allow counts a guess, and reports whether it is allowed. The lock is held.
func (g *guesses) allow(address netip.Addr, user string, now time.Time) bool {
	one, all := g.guessers[guesser{address, g.mac("user", user)}], g.guessers[guesser{address: address}]
	if one.Sub(now) > (userGuesses-1)*userGuessEvery || all.Sub(now) > (addressGuesses-1)*addressGuessEvery {
		return false
	}
	g.forget(now)
	g.put(address, user, now, 1)
	return true
}

// takeBack has a guess not count. The lock is held.
func (g *guesses) takeBack(address netip.Addr, user string) { g.put(address, user, time.Time{}, -1) }

func (g *guesses) put(address netip.Addr, user string, now time.Time, n time.Duration) {
	for one, every := range map[guesser]time.Duration{{address, g.mac("user", user)}: userGuessEvery,
		{address: address}: addressGuessEvery} {
		whole := g.guessers[one]
		if whole.Before(now) {
			whole = now
		}
		g.guessers[one] = whole.Add(n * every)
	}
}

// forget makes room for a guesser. It forgets the guessers that have regained all guesses, and if there are none, any.
func (g *guesses) forget(now time.Time) {
	if len(g.guessers) < maxGuessers {
		return
	}
	for one, whole := range g.guessers {
		if whole.Before(now) {
			delete(g.guessers, one)
		}
	}
	for one := range g.guessers {
		if len(g.guessers) < maxGuessers-1 {
			return
		}
		delete(g.guessers, one)
	}
}

var errChecking = tooMany("too many passwords are being checked, try again in a second")

// tooMany returns an ErrUnavailable with the status 429.
func tooMany(format string, args ...any) error {
	return &problem.Error{Status: http.StatusTooManyRequests,
		Err: fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), store.ErrUnavailable)}
}

func (g *guesses) mac(purpose, text string) (mac sum) {
	h := hmac.New(sha256.New, g.key)
	h.Write([]byte(purpose + "\x00" + text))
	h.Sum(mac[:0])
	return mac
}
