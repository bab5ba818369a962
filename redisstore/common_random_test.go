package redisstore

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// commonHistory makes random calls for a queue, the same for the same seed.
type commonHistory struct {
	*commonQueue
	*rand.Rand
	receipts []store.Receipt
	far      bool // messages are due far ahead; if not, processes wait, since send_one.lua takes a later one for the first
}

func oneOf[T any](h *commonHistory, choices ...T) T { return choices[h.IntN(len(choices))] }

// call makes a random call and returns what it was and its result.
func (h *commonHistory) call() string {
	id := fmt.Sprint("m", h.IntN(100))
	switch what := h.IntN(20); {
	case what < 6:
		delay := oneOf(h, -time.Second, 0, 0, 0, time.Millisecond, 400*time.Millisecond, time.Second, time.Minute)
		if h.far {
			delay = oneOf(h, delay, time.Hour, 2*time.Hour)
		}
		return fmt.Sprint("send ", id, " ", delay, ": ", sendCommon(id, delay)(h.commonQueue))
	case what < 11:
		return h.claim(oneOf(h, 1, 1, 2, 3, 10), oneOf(h, 300*time.Millisecond, time.Minute))
	case what < 15 && len(h.receipts) > 0:
		return h.settleSome()
	case what < 18:
		step := oneOf(h, 13*time.Microsecond, time.Millisecond, 300*time.Millisecond, 300*time.Millisecond, time.Second)
		if h.IntN(12) == 0 {
			step = oneOf(h, time.Minute, time.Hour, rememberRequests+time.Minute, -rememberRequests-time.Minute)
		}
		h.move(step)
		return fmt.Sprint("move ", step)
	case what == 18:
		_, err := h.s.Cancel(h.Context(), commonName, store.CancelRequest{IDs: []string{id}})
		return fmt.Sprint("cancel ", id, ": ", err)
	case !h.far:
		h.lists([]float64{idle, 200, -4000}[:h.IntN(3)]...)
	}
	return "wait"
}

func (h *commonHistory) claim(n int, lease time.Duration) string {
	c, err := h.s.Claim(h.Context(), commonName, store.ClaimRequest{Max: n, Lease: lease})
	text := fmt.Sprint("claim ", n, " ", lease, ": ", c.Now, c.Deadline, c.More, c.Died, c.Expired, c.Dropped, err)
	for _, m := range c.Messages {
		text += fmt.Sprintf(" %s %q %v %d %d", m.ID, m.Payload, m.Due, m.Attempt, m.Receipt.Epoch)
		h.receipts = append(h.receipts, m.Receipt)
	}
	return text
}

// settleSome settles up to three messages, most of them for the first time.
func (h *commonHistory) settleSome() string {
	from := h.IntN(len(h.receipts))
	to := min(from+oneOf(h, 1, 1, 1, 2, 3), len(h.receipts))
	action := store.Ack
	if h.IntN(15) == 0 {
		action = oneOf(h, store.Nack, store.Bury)
	}
	var window time.Duration
	if action == store.Ack && h.IntN(15) == 0 {
		window = time.Second
	}
	var all []store.Settlement
	for _, r := range h.receipts[from:to] {
		all = append(all, store.Settlement{Receipt: r, Action: action, DedupWindow: window})
	}
	if h.IntN(4) > 0 {
		h.receipts = append(h.receipts[:from:from], h.receipts[to:]...)
	}
	results, err := h.s.Settle(h.Context(), commonName, all)
	return fmt.Sprint("settle ", action, " ", from, " to ", to, ": ", results, err)
}

var duesOfNoMessage = regexp.MustCompile(`(\\n\\t\d+)+(\\n\\t\d+)`)

// state is the dump without what may differ: sessions, which turn up to lookAgainAfter late, and the due times of
// messages that have left a lease.
func (h *commonHistory) state() string {
	var lines []string
	for line := range strings.Lines(h.dump()) {
		if strings.Contains(line, ":leases ") {
			line = duesOfNoMessage.ReplaceAllString(line, "$2")
		}
		if !strings.Contains(line, "sessions ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// Random calls have the same results and effects, whether or not they try the common case.
func TestRandomCallsAreTheSameInTheCommonCase(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	histories := 24
	if long() {
		histories = 500
	}
	var common [commonCases]int // calls
	for seed := range uint64(histories) {
		var states [2][]string
		for way := range states {
			s := newFrozenClock(t, rdb, Prefix(fmt.Sprintf("way%d-%d:", way, seed)),
				WithLogger(slog.New(slog.DiscardHandler)))
			h := &commonHistory{commonQueue: &commonQueue{T: t, s: s, rdb: rdb},
				Rand: rand.New(rand.NewPCG(seed, 0)), far: seed%2 == 0}
			h.ok(rdb.Set(t.Context(), h.key("clock"), int64(1_900_000_000_000_003), 0).Err())
			uses := &s.keys.of(commonName).common
			for i := range 100 {
				for of := range uses {
					uses[of].skip.Store(int32(way) << 30)
					uses[of].last.Store(untried)
				}
				called := h.call()
				for of := range uses {
					if uses[of].last.Load() == 0 {
						common[of]++
					}
				}
				if i%5 == 4 {
					called += "\n" + h.state()
				}
				states[way] = append(states[way], called)
			}
			h.ok(s.Close())
		}
		for i, is := range states[0] {
			if want := states[1][i]; is != want {
				t.Fatalf("seed %d: calls in the common case:\n%s\n\nin every case:\n%s", seed,
					strings.Join(states[0][max(0, i-4):i+1], "\n"), strings.Join(states[1][max(0, i-4):i+1], "\n"))
			}
		}
	}
	for of, n := range common {
		if n < 2*histories {
			t.Errorf("%d calls used %s, want %d or more", n, commonScripts[of].name, 2*histories)
		}
	}
}
