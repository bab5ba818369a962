package turns_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

const start = 1_700_000_000_000_000

// take starts the next n messages and returns their keys.
func take(o *turns.Order, now int64, n int) (keys []string) {
	o.Wake(now, 1000)
	for range n {
		m, ok := o.Head(now)
		if !ok {
			break
		}
		o.Start(now, m, true)
		keys = append(keys, m.Key)
	}
	return keys
}

func sort(o *turns.Order, key string, n int) {
	for i := range n {
		o.Sort(start, turns.Message{Key: key, Place: int64(i), ID: key + fmt.Sprint(i)})
	}
}

func count(keys []string, key string) (n int) {
	for _, k := range keys {
		if k == key {
			n++
		}
	}
	return n
}

func TestKeysShareStartsByWeight(t *testing.T) {
	o := turns.New(store.KeyFlow{})
	for key, weight := range map[string]int{"a": 1, "b": 2, "c": 7} {
		o.SetOverride(start, key, store.KeyOverride{Weight: &weight})
		sort(o, key, 1000)
	}
	sort(o, "", 1000)
	got := take(o, start, 1100)
	for key, want := range map[string]int{"a": 100, "b": 200, "c": 700, "": 100} {
		if n := count(got, key); n < want-1 || n > want+1 {
			t.Errorf("key %q starts %d times, want %d", key, n, want)
		}
	}
}

func TestAKeyHasNoCreditForTheTimeInWhichItWasIdle(t *testing.T) {
	o := turns.New(store.KeyFlow{})
	sort(o, "a", 1000)
	take(o, start, 500)
	sort(o, "b", 1000)
	got := take(o, start, 100)
	if n := count(got, "b"); n != 50 || !slices.Contains(got[:2], "b") {
		t.Errorf("%d of 100 starts are of the new key: %v", n, got)
	}
}

func TestAKeyThatSendsOneMessageAtATimeGetsNoMoreThanItsShare(t *testing.T) {
	o := turns.New(store.KeyFlow{})
	sort(o, "a", 1000)
	sort(o, "b", 1000)
	n := 0
	for i := range 300 {
		o.Sort(start, turns.Message{Key: "c", Place: int64(i), ID: "c"})
		n += count(take(o, start+int64(i), 1), "c")
	}
	if n < 99 || n > 101 {
		t.Errorf("it gets %d of 300 starts", n)
	}
}

func TestAStreamOfNewKeysStarvesNoOther(t *testing.T) {
	o := turns.New(store.KeyFlow{})
	sort(o, "old", 1000)
	n := 0
	for i := range 200 {
		sort(o, fmt.Sprintf("new%03d", i), 1)
		n += count(take(o, start, 1), "old")
	}
	if n < 16 { // about 1, 2, 3 … 19 starts of new keys come between
		t.Errorf("it gets %d of 200 starts", n)
	}
}

func TestIdleKeysAreForgotten(t *testing.T) {
	o := turns.New(store.KeyFlow{Rate: store.Rate{N: 1, Per: time.Second}})
	o.Track()
	for i := range 100 {
		sort(o, fmt.Sprint("k", i), 1)
	}
	keys := take(o, start, 100)
	for _, key := range keys {
		o.Free(start, key, 1)
	}
	kept := func() (n int) {
		o.Changes(func(_ string, s turns.State) {
			if s != (turns.State{}) {
				n++
			}
		})
		return n
	}
	if n := kept(); len(keys) != 100 || n != 100 {
		t.Fatalf("%d keys started, %d are kept", len(keys), n)
	}
	o.Wake(start+1_000_000, 1000)
	for range 2 {
		o.Wake(start+3_000_000, 1000)
	}
	for i := range 100 {
		o.Key(start, fmt.Sprint("k", i))
	}
	if n := kept(); n != 0 || o.Sorted() != 0 {
		t.Errorf("%d keys are kept, %d messages are left", n, o.Sorted())
	}
}

// model is the state of an Order, from which it is found out slowly which keys may start.
type model struct {
	o      *turns.Order
	now    int64
	lanes  map[string][]turns.Message
	leased map[string]int
	ids    int
	passed turns.Passed
	urgent bool // messages have urgencies
}

func (m *model) add(rnd *rand.Rand) {
	m.ids++
	msg := turns.Message{Key: string(rune('a' + rnd.IntN(4))), Place: rnd.Int64N(5), ID: fmt.Sprint(m.ids)}
	if m.urgent {
		msg.Urgency = urgencies[rnd.IntN(3)]
	}
	m.o.Sort(m.now, msg)
	lane := append(m.lanes[msg.Key], msg)
	slices.SortFunc(lane, func(x, y turns.Message) int {
		return 2*int(x.Place-y.Place) + map[bool]int{true: -1, false: 1}[x.ID < y.ID]
	})
	m.lanes[msg.Key] = lane
}

func (m *model) remove(rnd *rand.Rand) {
	lane := m.lanes[string(rune('a'+rnd.IntN(4)))]
	if len(lane) == 0 {
		return
	}
	i := rnd.IntN(len(lane))
	msg := lane[i]
	msg.Urgency = urgencies[rnd.IntN(3)]
	if !m.o.Has(msg) || !m.o.Remove(m.now, msg) || m.o.Remove(m.now, msg) || m.o.Has(msg) {
		panic("a message is removed once")
	}
	m.lanes[msg.Key] = slices.Delete(lane, i, i+1)
}

func (m *model) free(rnd *rand.Rand) {
	key := string(rune('a' + rnd.IntN(4)))
	if n := m.leased[key]; n > 0 {
		m.o.Free(m.now, key, 1)
		m.leased[key]--
	}
}

// check compares the next start, and starts it.
func (m *model) check(t *testing.T) {
	first, sorted := int64(math.MaxInt64), 0
	var may []string
	classes := map[store.Urgency]bool{}
	for key, lane := range m.lanes {
		sorted += len(lane)
		s := m.o.Key(m.now, key)
		if s.Waiting != int64(len(lane)) || s.Leased != m.leased[key] {
			t.Fatalf("key %q: %+v, want %d messages, %d leased", key, s, len(lane), m.leased[key])
		}
		if len(lane) == 0 || s.Full() {
			continue
		}
		if s.Rate.N == 0 {
			s.Next = s.Now
		}
		if first = min(first, s.Next.UnixMicro()); !s.Resting() {
			may = append(may, key)
			for i, msg := range lane {
				if i == 0 || s.Order == store.OrderNone {
					classes[msg.Urgency] = true
				}
			}
		}
	}
	m.o.Wake(m.now, 1000)
	msg, ok := m.o.Head(m.now)
	if next := m.o.Next(m.now); next != first || ok != (len(may) > 0) || m.o.Sorted() != sorted {
		t.Fatalf("next start in %d µs, want %d; %v may start, %v does", next-m.now, first-m.now, may, msg)
	}
	if !ok {
		return
	}
	lane := m.lanes[msg.Key]
	if !slices.Contains(may, msg.Key) {
		t.Fatalf("%v starts, of the keys %v", msg, may)
	}
	want := nextUrgency(m.passed, classes)
	i := slices.IndexFunc(lane, func(x turns.Message) bool { return x.Urgency == want })
	if msg.Urgency != want || msg != lane[i] {
		t.Fatalf("%v starts, want the first %q of the lane %v, after %+v", msg, want, lane, m.passed)
	}
	m.o.Start(m.now, msg, true)
	if countPassed(&m.passed, want, classes); m.o.Passed() != m.passed {
		t.Fatalf("%+v, want %+v", m.o.Passed(), m.passed)
	}
	m.lanes[msg.Key] = slices.Delete(lane, i, i+1)
	m.leased[msg.Key]++
}

func randomLimits(rnd *rand.Rand) (f store.KeyFlow) {
	f.Concurrency, f.Weight = rnd.IntN(4), 1+rnd.IntN(3)
	if rnd.IntN(2) == 0 {
		f.Rate = store.Rate{N: 1 + rnd.IntN(3), Per: time.Duration(10+rnd.IntN(20)) * time.Microsecond,
			Burst: rnd.IntN(3)}
	}
	if rnd.IntN(4) == 0 {
		f.Order, f.Concurrency = store.OrderContinue, 0
	}
	return f
}

// TestAMessageStartsIfAndOnlyIfItsKeyMayStart looks at all keys after each step of random histories.
func TestAMessageStartsIfAndOnlyIfItsKeyMayStart(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		m := model{o: turns.New(randomLimits(rnd)), now: start, lanes: map[string][]turns.Message{},
			leased: map[string]int{}, urgent: seed%2 > 0}
		for range 300 {
			switch n := rnd.IntN(40); {
			case n < 14:
				m.add(rnd)
			case n < 17:
				m.remove(rnd)
			case n < 27:
				m.free(rnd)
			case n < 36:
				m.now += rnd.Int64N(12)
			case n < 37:
				m.now -= rnd.Int64N(100)
			case n < 38:
				m.o.SetLimits(m.now, randomLimits(rnd))
			default:
				f := randomLimits(rnd)
				if f.Order != store.OrderNone {
					f.Concurrency = 1
				}
				override := []store.KeyOverride{{}, {Rate: &f.Rate}, {Concurrency: &f.Concurrency, Weight: &f.Weight}}
				m.o.SetOverride(m.now, string(rune('a'+rnd.IntN(4))), override[rnd.IntN(3)])
			}
			if rnd.IntN(2) == 0 {
				m.check(t)
			}
		}
	}
}

// TestARestoredOrderContinues compares an Order with one that has its state.
func TestARestoredOrderContinues(t *testing.T) {
	limits := store.KeyFlow{Concurrency: 3, Rate: store.Rate{N: 3, Per: time.Second, Burst: 2}}
	was := turns.New(limits)
	was.Track()
	for _, key := range []string{"a", "b", "c"} {
		sort(was, key, 9)
	}
	take(was, start, 5)
	is := turns.New(limits)
	was.Changes(func(key string, s turns.State) {
		is.Restore(start, key, s)
		state := was.Key(start, key)
		is.Hold(start, key, state.Leased)
		for i := 9 - int(state.Waiting); i < 9; i++ {
			is.Sort(start, turns.Message{Key: key, Place: int64(i), ID: key + fmt.Sprint(i)})
		}
	})
	for now := int64(start); now < start+5_000_000; now += 100_000 {
		got, want := take(is, now, 9), take(was, now, 9)
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) { // the order begins anew
			t.Fatalf("after %d µs %v start, want %v", now-start, got, want)
		}
	}
}

func TestKeysAreListedInPages(t *testing.T) {
	o := turns.New(store.KeyFlow{Concurrency: 1})
	two := 2
	o.SetOverride(start, "c", store.KeyOverride{Concurrency: &two})
	o.SetOverride(start, "x", store.KeyOverride{Concurrency: &two})
	for _, key := range []string{"", "a", "b", "c"} {
		sort(o, key, 3)
	}
	take(o, start, 4)
	if got := o.Counts(start); got != (store.KeyCounts{Waiting: 4, Full: 2}) {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		req  store.KeysRequest
		want string
	}{
		{store.KeysRequest{Limit: 2}, "[ a b]"}, {store.KeysRequest{Limit: 1}, "[ a]"},
		{store.KeysRequest{Limit: 2, After: "a"}, "[b c]"},
		{store.KeysRequest{Limit: 2, After: "c"}, "[]"}, {store.KeysRequest{Limit: 2, Key: "q"}, "[q]"},
		{store.KeysRequest{Limit: 9, Overridden: true}, "[c x]"},
		{store.KeysRequest{Limit: 9, Overridden: true, After: "c"}, "[x]"},
	} {
		var names []string
		for _, s := range o.Keys(start, c.req) {
			names = append(names, s.Key)
		}
		if got := fmt.Sprint(names); got != c.want {
			t.Errorf("%+v: %s, want %s", c.req, got, c.want)
		}
	}
}
