// Package turns keeps the order in which the messages of a Fair queue start: lanes of messages for each key, the turns
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
// The messages of each urgency take turns by themselves: a key has a lane and a pass, and the turns have a clock, for
// each of the three classes. See class.go for the class that starts next. The limits of a key count all its messages.
//
// The messages of a key with an order start one at a time, and the key waits in the class of its next message. A
// message that comes back from its lease holds its key: the next start of the key is that message, and the key waits
// until it is sorted again. See holds.go.
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
	// Urgency is the class of the message when it was sorted. Sort and Head look at it. Other methods find a message in
	// any class.
	Urgency store.Urgency
}

// entry returns the message as it is in its lane.
func (m Message) entry() entry { return entry{m.Place, m.ID} }

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
	sorted  int              // messages in all lanes, and ready ones that hold their keys
	pass    [classes]float64 // the clock of each class: the pass that its last start had
	passed  Passed
	urgent  bool          // a message of another class than normal was sorted
	may     [classes]bool // the classes of which a message could start at the last Head

	// A key that waits is in turns, once for each class, or in rests or stale; others are in idle if they have no
	// counted message. The score is the pass of a key in turns, the time to look at it again in rests and idle.
	turns [classes]*scores
	rests *scores
	stale []*scores // sets from before a change of the limits or the clock; their keys are looked at again
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
	normal line
	others *[2]line // of the classes high and low; nil until the key has a message of one of them
	hold   *hold    // nil unless a message that is not leased holds the key
	leased int
	// expected is set while another queue may have messages of the key, so that none may start here.
	expected bool
	starts   gcra.State
	n        int   // the N of the rate that starts is in parts of, 0 if it is the zero State
	rates    int64 // Order.rates when starts was counted
}

// New returns an Order without messages, whose keys have the limits f.
func New(f store.KeyFlow) *Order {
	o := &Order{
		limits: f.Normal(), overrides: &btree.Map[string, store.KeyOverride]{}, keys: map[string]*key{},
		waiting: &btree.Set[string]{}, holders: map[string]*key{}, halted: &btree.Set[string]{},
		rests: newScores(), idle: newScores(),
	}
	for c := range classes {
		o.turns[c] = newScores()
	}
	return o
}

// Sort adds a message to the lane of its key and urgency, unless it is sorted. It returns the key with memory that all
// messages of the key share.
func (o *Order) Sort(now int64, m Message) (key string) {
	k := o.key(m.Key)
	if !k.add(m) {
		return k.name
	}
	if o.sorted++; k.sorted() == 1 {
		o.waiting.Insert(k.name)
	}
	c := classOf(m.Urgency)
	o.urgent = o.urgent || c != normal
	begins := !k.line(c).waits && o.waitsIn(k, c)
	if begins || k.isReady() { // the lanes may have waited for it
		o.place(k, now)
	}
	return k.name
}

// Remove says that a message is not sorted any more, and reports whether it was.
func (o *Order) Remove(now int64, m Message) bool {
	k := o.keys[m.Key]
	if k == nil {
		return false
	}
	_, ok := k.remove(m)
	if ok {
		o.shortened(k, now)
	}
	return ok
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
		o.lookAgain(&o.rests)
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
	for _, at := range [2]*scores{o.rests, o.idle} {
		for range looks {
			k, ok := at.first()
			if !ok || k.seat().score > float64(now) {
				break
			}
			o.place(k, now)
		}
	}
}

// Head returns the message that starts next, if one may start now. The engine then calls Start, or Remove if the
// message dies.
func (o *Order) Head(now int64) (Message, bool) {
	o.may = [classes]bool{}
	for c := range classes {
		for !o.may[c] {
			k, ok := o.turns[c].first()
			if !ok {
				break
			}
			if o.looks <= 0 {
				return Message{}, false
			}
			if l := o.Limits(k.name); !k.full(l) && o.next(k, l, now) <= now {
				o.may[c] = true
				break
			}
			o.place(k, now) // its limits were lowered
			o.looks--
		}
	}
	c, ok := o.passed.choose(o.may)
	if !ok {
		return Message{}, false
	}
	k, _ := o.turns[c].first()
	return k.head(c), true
}

// Start starts the message that Head has returned, and counts it for its key and class. With holds, the message keeps a
// slot of the key until Free. If it held the key, it does not any more.
func (o *Order) Start(now int64, m Message, holds bool) {
	k := o.keys[m.Key]
	l := o.Limits(k.name)
	o.convert(k, l, now)
	k.starts.Start(l.Rate, now, 1)
	if holds {
		k.leased++
	}
	c, _ := k.remove(m)
	if k.hold != nil {
		o.unhold(k)
	}
	line := k.line(c)
	o.pass[c] = line.pass
	line.pass += 1 / float64(l.Weight)
	o.passed.count(c, o.may)
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
		if s := k.seat(); s.in == nil || s.score == full {
			o.place(k, now)
		}
	}
}

// Next returns when a Head may first return a message, or math.MaxInt64 if that depends on slots alone.
func (o *Order) Next(now int64) int64 {
	for len(o.stale) > 0 && o.stale[0].len() == 0 { // nothing may be left to Wake for
		o.stale = o.stale[1:]
	}
	if o.turning() > 0 || len(o.stale) > 0 {
		return now
	}
	k, ok := o.rests.first()
	switch {
	case !ok || k.seat().score == full:
		return math.MaxInt64
	case now < o.now: // the clock was set back
		return now
	}
	return max(now, int64(k.seat().score))
}

// May returns how many messages may start now, up to most. It does not count keys that wait for a Wake.
func (o *Order) May(now int64, most int) (n int) {
	for c := range classes {
		o.turns[c].each(func(k *key) bool {
			if !o.takesTurnBefore(k, c) { // its slots are shared by all classes
				n += o.mayOf(k, now, most-n)
			}
			return n < most
		})
	}
	return n
}

// takesTurnBefore reports whether a key takes turns in a class before c.
func (o *Order) takesTurnBefore(k *key, c class) bool {
	for before := range c {
		if l := k.line(before); l != nil && l.in == o.turns[before] {
			return true
		}
	}
	return false
}

// mayOf returns how many messages of a key may start now, up to most.
func (o *Order) mayOf(k *key, now int64, most int) int {
	l := o.Limits(k.name)
	o.convert(k, l, now)
	n := min(k.sorted(), most)
	if k.expected {
		n = 0
	}
	if l.Concurrency > 0 {
		n = min(n, max(0, l.Concurrency-k.leased))
	}
	return k.starts.May(l.Rate, now, n)
}

// turning returns the number of turns of keys, over all classes.
func (o *Order) turning() (n int) {
	for _, s := range o.turns {
		n += s.len()
	}
	return n
}

// key returns the key of a name, which it adds if it is new.
func (o *Order) key(name string) *key {
	k := o.keys[name]
	if k == nil {
		k = &key{name: name, rates: o.rates}
		k.normal.key = k
		o.keys[name] = k
	}
	return k
}

// isOrdered reports whether the messages of a key start in order.
func (o *Order) isOrdered(k *key) bool { return o.limits.Order != store.OrderNone && k.name != "" }

// shortened is called when one message fewer of a key is sorted.
func (o *Order) shortened(k *key, now int64) {
	if o.sorted--; k.sorted() == 0 {
		o.waiting.Delete(k.name)
	}
	o.place(k, now)
}

// place puts a key where it belongs now.
func (o *Order) place(k *key, now int64) {
	l := o.Limits(k.name)
	next := o.next(k, l, now)
	o.lineUp(k, l.Weight)
	switch {
	case k.sorted() == 0:
		o.rest(k, now)
	case k.full(l):
		k.move(o.rests, full)
	case next > now:
		k.move(o.rests, float64(next))
	default:
		o.takeTurns(k)
	}
	o.change(k.name)
}

// rest places a key that does not wait. It is forgotten unless messages take its slots or hold it, it is expected, or
// its starts are ahead of its rate.
func (o *Order) rest(k *key, now int64) {
	switch {
	case k.leased > 0 || k.hold != nil || k.expected:
		k.move(nil, 0)
	case k.starts.Micros >= now:
		k.move(o.idle, float64(min(k.starts.Micros, now+store.MaxPeriod.Microseconds())+1))
	default:
		k.move(nil, 0)
		delete(o.keys, k.name)
	}
}

// full reports whether all slots of a key are taken, or it waits for the message that holds it, or is expected.
func (k *key) full(l store.KeyFlow) bool {
	return k.expected || l.Concurrency > 0 && k.leased >= l.Concurrency || k.hold != nil && !k.hold.ready
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
