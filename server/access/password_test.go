package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// try asks with a user and a password from an address.
func try(c *Control, address, user, password string) (status int) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address + ":1"
	r.SetBasicAuth(user, password)
	w := httptest.NewRecorder()
	c.Handler(whoami).ServeHTTP(w, r)
	if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
		return 0
	}
	return w.Code
}

func TestGuessingIsLimitedWithoutLockingOthersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := control(t, file(t))
		expect := func(want int, address, user, password string) {
			t.Helper()
			if got := try(c, address, user, password); got != want {
				t.Errorf("%s as %s: %d, want %d", address, user, got, want)
			}
		}
		expect(200, "192.0.2.9", "ann", "pass word") // the right password is remembered
		for _, user := range []string{"ann", "nobody"} {
			for i := range userGuesses {
				expect(401, "192.0.2.1", user, fmt.Sprint("guess ", i))
			}
			expect(429, "192.0.2.1", user, "guess")
		}
		expect(429, "192.0.2.1", "ann", "pass word") // or a refusal would tell a right guess
		expect(200, "192.0.2.9", "ann", "pass word")
		expect(200, "192.0.2.8", "ann", "pass word")
		time.Sleep(userGuessEvery)
		expect(401, "192.0.2.1", "ann", "guess")
		expect(429, "192.0.2.1", "ann", "guess")
		time.Sleep(userGuessEvery)
		for range 3 * userGuesses { // a right password costs no guess
			expect(200, "192.0.2.1", "ann", "pass word")
		}
		refused := 0
		for i := range 2 * addressGuesses {
			if try(c, "192.0.2.2", fmt.Sprint("user", i), "guess") == 429 {
				refused++
			}
		}
		if refused != addressGuesses {
			t.Errorf("%d of %d guesses of one address were refused", refused, 2*addressGuesses)
		}
		expect(429, "192.0.2.2", "ann", "pass word")
		expect(200, "192.0.2.9", "ann", "pass word")
		for i := range maxGuessers {
			c.guesses.mu.Lock()
			c.guesses.allow(AddressOf(fmt.Sprintf("10.0.%d.%d:1", i/250, i%250)), "ann", time.Now())
			c.guesses.mu.Unlock()
		}
		if n := len(c.guesses.guessers); n > maxGuessers {
			t.Errorf("%d guessers are remembered", n)
		}
	})
}

// TestChecksOfPasswordsAreBounded has bcrypt busy while one address guesses the passwords of many users.
func TestChecksOfPasswordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := control(t, file(t))
		busy := c.guesses.cpu.Limit()
		for i := range busy {
			c.guesses.cpu.Take(netip.AddrFrom4([4]byte{byte(i)}), 1)
		}
		var mu sync.Mutex
		statuses := map[int]int{}
		ask := func(address, user, password string) {
			status := try(c, address, user, password)
			mu.Lock()
			defer mu.Unlock()
			statuses[status]++
		}
		for i := range addressGuesses {
			go ask("192.0.2.1", fmt.Sprint("user", i), "guess")
		}
		synctest.Wait()
		if want := addressGuesses - maxWaiting/2; statuses[429] != want {
			t.Errorf("%v, want %d times 429", statuses, want)
		}
		for range 3 * maxWaiting { // a client with many connections, which share one check
			go ask("192.0.2.2", "ann", "pass word")
		}
		synctest.Wait()
		for i := range busy {
			c.guesses.cpu.Give(netip.AddrFrom4([4]byte{byte(i)}), 1)
		}
		time.Sleep(time.Minute) // of the bubble, for all checks
		synctest.Wait()
		if statuses[200] != 3*maxWaiting || statuses[401] != maxWaiting/2 {
			t.Errorf("%v", statuses)
		}
	})
}
