// Package turns keeps the order in which the messages of a Fair queue start: a lane of messages for each key, the turns
// of the keys that may start, and the limits of each key. It knows nothing of engines, which sort messages into the
// lanes, ask for the next one, and say when a message starts or a slot becomes free. Of Later, it imports the store
// contract and the rates. Start reading at Order.
//
// Turns are start-time fair queueing. Each key has a pass, a number that grows by 1/weight with each of its starts, and
// the key with the lowest pass goes next. The clock of the turns is the pass that the last start had. A key that begins
// to wait joins 1/weight after the clock, just before the keys that have started at the clock: so it starts after at
// most one message of each waiting key of its weight, and however many new keys arrive, no other one waits for more
// than one message of each. A key that waits for a slot or its rate no longer continues at the clock if its pass is
// lower. No key has credit for the time in which it could not start, and none keeps a pass while it does not wait.
//
// The messages of a key with an order start one at a time. A message that comes back from its lease holds its key: the
// next start of the key is that message, and the key waits until it is sorted again. See holds.go.
package turns

import (
	"math"

	"github.com/tidwall/btree"

	"github.com/laterq/later/internal/gcra"
	"github.com/laterq/later/store"
)

// Message is a message that waits in the lane of its key.
type Message struct {
	Key   string // "" is a lane too, of weight 1 and without limits
	Place int64  // in the lane: the due time in microseconds, or the order of its send
	ID    string
}

// Order is the order of the messages of one queue. Times are the engine's clock in microseconds, unless they are due
// times. The cost of each method is logarithmic in the numbers of keys and messages, for each item that it returns or
// looks at. It is not safe for concurrent use.
type Order struct {
	limits    store.KeyFlow // of each key without an override, Normal
	rates     int64         // counts how often the rate of limits was set or removed
	overrides *btree.Map[string, store.KeyOverride]

	keys    map[string]*key // keys with messages, counted messages, a hold, or starts ahead of their rate
	waiting *btree.Set[string]
	holders map[string]*key // held keys, by the id of the message that holds each
	halted  *btree.Set[string]
	sorted  int     // messages in all lanes, and ready ones that hold their keys
	pass    float64 // the clock: the pass that the last start had

	// Each key is in one of these. A key that waits is in turns, rests or stale; others are in idle if they have no
	// counted message. The score is the pass of a key in turns, the time to look at it again in rests and idle.
	turns *scores
	rests *scores
	stale []*scores // rests from before a change of the limits or the clock; their keys are looked at again
	idle  *scores

	now   int64 // the latest time that Wake was told
	looks int   // how many keys may be looked at until the next Wake

	changed map[string]struct{} // nil unless Track was called
}

// join is how far behind the clock a key of weight 1 joins the turns. It is less than 1, so that the key goes before
// keys that have started at the clock, whatever their names are.
const join = 1 - 1.0/(1<<20)

// full is the score of a key that waits for one of its slots or for its holder: a time that never comes, exact as a
// float64.
const full = 1 << 53

// key is a key with its state. Its limits are those of the Order and the override.
type key struct {
	name   string
	lane   lane
	hold   *hold // nil unless a message that is not leased holds the key
	leased int
	starts gcra.State
	n      int   // the N of the rate that starts is in parts of, 0 if it is the zero State
	rates  int64 // Order.rates when starts was counted
	pass   float64

	in    *scores
	score float64
}

// New returns an Order without messages, whose keys have the limits f.
func New(f store.KeyFlow) *Order {
	return &Order{
		limits: f.Normal(), overrides: &btree.Map[string, store.KeyOverride]{}, keys: map[string]*key{},
		waiting: &btree.Set[string]{}, holders: map[string]*key{}, halted: &btree.Set[string]{},
		turns: newScores(), rests: newScores(), idle: newScores(),
	}
}

// Sort adds a message to the lane of its key. It returns the key with memory that all messages of the key share.
func (o *Order) Sort(now int64, m Message) (key string) {
	k := o.key(m.Key)
	if !k.add(m) {
		return k.name
	}
	if o.sorted++; k.sorted() == 1 {
		o.waiting.Insert(k.name)
		k.pass = o.pass + join/float64(o.limitsOf(k).Weight)
		o.place(k, now)
	} else if k.isReady() { // the lane has waited for it
		o.place(k, now)
	}
	return k.name
}

// Remove says that a message is not sorted any more, and reports whether it was.
func (o *Order) Remove(now int64, m Message) bool {
	k := o.keys[m.Key]
	if k == nil || !k.remove(m) {
		return false
	}
	o.shortened(k, now)
	return true
}

// Sorted returns the number of sorted messages: in all lanes, and ready ones that hold their keys.
func (o *Order) Sorted() int { return o.sorted }

// Has reports whether a message is sorted.
func (o *Order) Has(m Message) bool {
	k := o.keys[m.Key]
	return k != nil && k.has(m)
}

// Wake begins a claim. It gives turns to keys that have rested, looks again at keys after a change of limits, and
// forgets idle keys: up to looks keys for each of the three. Until the next Wake, Head looks at up to looks keys too.
func (o *Order) Wake(now int64, looks int) {
	if now < o.now { // the clock was set back, and rests may end too late
		o.lookAgain()
	}
	o.now, o.looks = now, looks
	for n := looks; n > 0 && len(o.stale) > 0; {
		if k, ok := o.stale[0].first(); ok {
			o.place(k, now)
			n--
		} else {
			o.stale = o.stale[1:]
		}
	}
	for range looks {
		k, ok := o.rests.first()
		if !ok || k.score > float64(now) {
			break
		}
		o.place(k, now)
	}
	for range looks {
		k, ok := o.idle.first()
		if !ok || k.score > float64(now) {
			break
		}
		o.place(k, now)
	}
}

// Head returns the message that starts next, if one may start now. The engine then calls Start, or Remove if the
// message dies.
func (o *Order) Head(now int64) (Message, bool) {
	for ; o.looks > 0; o.looks-- {
		k, ok := o.turns.first()
		if !ok {
			break
		}
		if l := o.limitsOf(k); !k.full(l) && o.next(k, l, now) <= now {
			return k.first(), true
		}
		o.place(k, now) // its limits were lowered
	}
	return Message{}, false
}

// Start starts the message that Head has returned, and counts it for its key. With holds, the message keeps a slot of
// the key until Free. If it held the key, it does not any more.
func (o *Order) Start(now int64, m Message, holds bool) {
	k := o.keys[m.Key]
	l := o.limitsOf(k)
	o.convert(k, l, now)
	k.starts.Start(l.Rate, now, 1)
	o.pass = k.pass
	k.pass += 1 / float64(l.Weight)
	if holds {
		k.leased++
	}
	if k.remove(m); k.hold != nil {
		o.unhold(k)
	}
	o.shortened(k, now)
}

// Hold counts n messages of a key that are leased already, as an engine does when it loads its leases.
func (o *Order) Hold(now int64, name string, n int) {
	k := o.key(name)
	k.leased += n
	o.place(k, now)
}

// Free says that n messages that hold slots of a key do not count any more.
func (o *Order) Free(now int64, name string, n int) {
	if k := o.keys[name]; k != nil {
		k.leased = max(0, k.leased-n)
		if k.in == nil || k.score == full {
			o.place(k, now)
		}
	}
}

// Next returns when a Head may first return a message, or math.MaxInt64 if that depends on slots alone.
func (o *Order) Next(now int64) int64 {
	for len(o.stale) > 0 && o.stale[0].len() == 0 { // nothing may be left to Wake for
		o.stale = o.stale[1:]
	}
	if o.turns.len() > 0 || len(o.stale) > 0 {
		return now
	}
	k, ok := o.rests.first()
	switch {
	case !ok || k.score == full:
		return math.MaxInt64
	case now < o.now: // the clock was set back
		return now
	}
	return max(now, int64(k.score))
}

// May returns how many messages may start now, up to most. It does not count keys that wait for a Wake.
func (o *Order) May(now int64, most int) (n int) {
	o.turns.each(func(k *key) bool {
		l := o.limitsOf(k)
		o.convert(k, l, now)
		here := min(k.sorted(), most-n)
		if l.Concurrency > 0 {
			here = min(here, max(0, l.Concurrency-k.leased))
		}
		n += k.starts.May(l.Rate, now, here)
		return n < most
	})
	return n
}

// key returns the key of a name, which it adds if it is new.
func (o *Order) key(name string) *key {
	k := o.keys[name]
	if k == nil {
		k = &key{name: name, rates: o.rates}
		o.keys[name] = k
	}
	return k
}

// shortened is called when one message fewer of a key is sorted.
func (o *Order) shortened(k *key, now int64) {
	if o.sorted--; k.sorted() == 0 {
		o.waiting.Delete(k.name)
	}
	o.place(k, now)
}

// place puts a key where it belongs now.
func (o *Order) place(k *key, now int64) {
	l := o.limitsOf(k)
	next := o.next(k, l, now)
	switch {
	case k.sorted() == 0:
		o.rest(k, now)
	case k.full(l):
		k.move(o.rests, full)
	case next > now:
		k.move(o.rests, float64(next))
	default:
		k.pass = max(k.pass, o.pass)
		k.move(o.turns, k.pass)
	}
	o.change(k.name)
}

// rest places a key that does not wait. It is forgotten unless messages take its slots or hold it, or its starts are
// ahead of its rate.
func (o *Order) rest(k *key, now int64) {
	switch {
	case k.leased > 0 || k.hold != nil:
		k.move(nil, 0)
	case k.starts.Micros >= now:
		k.move(o.idle, float64(min(k.starts.Micros, now+store.MaxPeriod.Microseconds())+1))
	default:
		k.move(nil, 0)
		delete(o.keys, k.name)
	}
}

// full reports whether all slots of a key are taken, or it waits for the message that holds it.
func (k *key) full(l store.KeyFlow) bool {
	return l.Concurrency > 0 && k.leased >= l.Concurrency || k.hold != nil && !k.hold.ready
}

// next returns when the rate of a key allows its next start.
func (o *Order) next(k *key, l store.KeyFlow, now int64) int64 {
	o.convert(k, l, now)
	return k.starts.Next(l.Rate, now)
}

func (o *Order) change(name string) {
	if o.changed != nil {
		o.changed[name] = struct{}{}
	}
}
