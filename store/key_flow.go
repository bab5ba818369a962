package store

import "time"

// Limits of the flow of keys.
const (
	MaxWeight   = 1000   // largest KeyFlow.Weight
	MaxKeyFlows = 10_000 // keys of a queue that have a KeyOverride
	MaxKeysPage = 500    // largest KeysRequest.Limit
)

// KeyFlow limits the messages of each key of a queue, and says how its keys share starts. Messages without a key take
// turns as one key of weight 1 and have no limits of a key.
//
// A start of a message is allowed if the limits of the queue and those of its key allow it, and counts for both.
type KeyFlow struct {
	// Concurrency is how many messages of the key may be leased at once; see Flow.Concurrency, which says which
	// messages count. A Forward waits for a key with all its slots taken.
	Concurrency int
	// Rate limits how many messages of the key may start in a span of time.
	Rate Rate
	// Weight is the key's share of the starts among the keys that wait, 1 to MaxWeight; 0 means 1.
	Weight int
	// Order has the messages of each key start one at a time, in order. It implies a Concurrency of 1.
	Order Order
}

// Order says whether the messages of a key start in order, and how they go on when one of them has failed for good.
//
// Of the messages of an ordered key that are present and due, the one that is due first starts first. Messages sent
// without a delay keep the order of their sends, also when the clock is set back; other ties go by id. To this end
// nothing starts in a queue with an order while a Claim leaves ready messages unsorted; see Claim.Unsorted. Messages
// without a key have no order.
//
// A message holds its key from its start until it is acked or dead: the key waits while it is leased, and when it comes
// back from a Nack, Snooze, GiveBack or Release, or because its lease has ended, it is the next message of its key to
// start, and the key waits until it is due. A message that was replaced by a Send keeps its hold while it keeps its
// key. A message that is removed in any way gives its key up: at once, or, if it was leased, when it no longer counts
// against the Concurrency. A successor inherits no hold.
//
// When an order is set, messages of a key that were claimed before may be leased together. If they count against the
// Concurrency, no other message of the key starts until they have been settled, and the first of them that comes back
// holds the key. Restore gives no message a hold, nor a place among messages that are due in the same millisecond.
type Order string

// The orders of messages of a key.
const (
	OrderNone Order = "" // keys have no order
	// OrderContinue goes on with the next message of the key when one is dead.
	OrderContinue Order = "continue"
	// OrderHalt halts the key when the message that holds it is dead, unless it has expired or cannot be read. A halted
	// key starts no message until the dead one is replayed, which then is the first to start, or removed by a Cancel,
	// Remove or Purge, or until ResumeKey. A Retention drops no message that halts a key, nor counts it.
	OrderHalt Order = "halt"
)

// Check returns an ErrInvalid unless o is one of the orders.
func (o Order) Check() error {
	switch o {
	case OrderNone, OrderContinue, OrderHalt:
		return nil
	}
	return Field("order", Invalid("order of keys is %q: must be %q, %q or empty for none", string(o), OrderContinue,
		OrderHalt))
}

// KeyOverride is a limit of one key that differs from Flow.Key. A nil field inherits; a zero Concurrency or Rate is no
// limit.
type KeyOverride struct {
	Concurrency *int
	Rate        *Rate
	Weight      *int
}

// KeyCounts counts the keys that wait in a Fair queue: they have ready messages that claims have sorted. In Redis, keys
// are also counted until their next turn if a purge of ready messages has removed all of them.
type KeyCounts struct {
	Waiting int64 // all that wait; one that may start messages of several urgencies counts once for each of them
	Full    int64 // of them, the keys that wait for one of their slots, or for the message that holds them
	Resting int64 // of them, the keys that wait until their rate allows a start
	Halted  int64 // keys that a dead message halts, whether or not they wait
}

// KeysRequest asks for keys of a queue. At most one of Key, Overridden and Halted is set.
type KeysRequest struct {
	Key        string // only this key, whether or not it waits; "" for all that wait
	Overridden bool   // the keys with a KeyOverride, instead of those that wait
	Halted     bool   // the keys that a dead message halts, instead of the keys that wait
	After      string // only keys behind this one, in the order of their bytes
	// Limit is 1 to MaxKeysPage. Messages without a key, which come first, do not count against it: After of the next
	// page is the last key of a page, and a page that ends with them is the last.
	Limit int
}

// KeyState is the state of a key in a Fair queue.
type KeyState struct {
	Key      string
	KeyFlow               // the limits in force, Normal; for messages without a key only a weight of 1
	Override *KeyOverride // nil if there is none
	Waiting  int64        // ready messages that claims have sorted
	Since    time.Time    // when the first of them fell due; zero if none waits
	Leased   int          // messages that count against Concurrency
	// Holder is the id of the message that holds the key of an Order and is not leased: it starts next, or is dead if
	// Halted is set. Otherwise it is "". Held is set while no claim has found it due: the key waits for it.
	Holder string
	Held   bool
	Halted bool
	// Next is when the rate of the key allows the next start: Now if a message may start at once, and zero without a
	// rate.
	Next time.Time
	// Now is the engine's clock in whole microseconds.
	Now time.Time
}

// Full reports whether all slots of the key are taken.
func (s KeyState) Full() bool { return s.Concurrency > 0 && s.Leased >= s.Concurrency }

// Resting reports whether the rate of the key allows no start now.
func (s KeyState) Resting() bool { return s.Next.After(s.Now) }

// Normal returns f as engines keep it: the weight is 1 instead of 0, and so are the burst of a rate and the concurrency
// of keys with an order.
func (f KeyFlow) Normal() KeyFlow {
	f.Rate = f.Rate.Normal()
	f.Weight = max(1, f.Weight)
	if f.Order != OrderNone {
		f.Concurrency = 1
	}
	return f
}

// Of returns the limits of a key with the override, Normal. The order is that of the queue.
func (o *KeyOverride) Of(f KeyFlow) KeyFlow {
	if o == nil {
		return f.Normal()
	}
	if o.Concurrency != nil {
		f.Concurrency = *o.Concurrency
	}
	if o.Rate != nil {
		f.Rate = *o.Rate
	}
	if o.Weight != nil {
		f.Weight = *o.Weight
	}
	return f.Normal()
}

// IsZero reports whether the override changes nothing, and thus is none.
func (o *KeyOverride) IsZero() bool { return o == nil || *o == KeyOverride{} }

// Check returns an ErrInvalid unless f can be set.
func (f KeyFlow) Check() error {
	if f.Concurrency < 0 || f.Concurrency > MaxConcurrency {
		return Field("concurrency", Invalid("concurrency of a key is %d: must be 1 to %d, or 0 for no limit",
			f.Concurrency, MaxConcurrency))
	}
	if err := Field("rate", f.Rate.Check()); err != nil {
		return err
	}
	if f.Weight < 0 || f.Weight > MaxWeight {
		return Field("weight", Invalid("weight is %d: must be 1 to %d, or 0 for 1", f.Weight, MaxWeight))
	}
	if f.Order != OrderNone && f.Concurrency > 1 {
		return Field("concurrency", Invalid("concurrency of a key is %d: must be 1 or 0, because keys have an order",
			f.Concurrency))
	}
	return f.Order.Check()
}

// CheckKeyFlow returns an ErrInvalid unless Store.SetKeyFlow accepts the override for a key of the queue.
func CheckKeyFlow(queue, key string, o KeyOverride) error {
	if err := CheckFlow(queue, Flow{}); err != nil {
		return err
	}
	if err := CheckKey(key); err != nil {
		return err
	}
	if o.Weight != nil && *o.Weight < 1 { // which Of would take for 1
		return Field("weight", Invalid("weight is %d: must be 1 to %d, or left out", *o.Weight, MaxWeight))
	}
	return o.Of(KeyFlow{}).Check()
}

// CheckResume returns an ErrInvalid unless Store.ResumeKey accepts the queue and the key.
func CheckResume(queue, key string) error {
	if err := CheckFlow(queue, Flow{}); err != nil {
		return err
	}
	return CheckKey(key)
}

// NotFair returns the ErrInvalid of an override in a queue that is not Fair.
func NotFair(queue string) error {
	return Field("queue", Invalid("queue %q has no limits of keys: set its flow first, with Fair", queue))
}

// OneOfOrder returns the ErrInvalid of an override of the concurrency in a queue with an order.
func OneOfOrder(queue string, concurrency int) error {
	return Field("concurrency", Invalid("concurrency of a key is %d: must be 1 or left out, because the keys of queue "+
		"%q have an order", concurrency, queue))
}

// TooManyKeyFlows returns the ErrInvalid of one override too many.
func TooManyKeyFlows(queue string) error {
	return Field("key", Invalid("queue %q has limits for %d keys, which is the most: remove one", queue, MaxKeyFlows))
}

// Check returns an ErrInvalid unless Store.Keys accepts the request.
func (r KeysRequest) Check() error {
	if r.Limit < 1 || r.Limit > MaxKeysPage {
		return Field("limit", Invalid("limit is %d: must be 1 to %d", r.Limit, MaxKeysPage))
	}
	switch {
	case r.Key != "" && r.Overridden:
		return Field("overridden", Invalid("overridden and a key are both given: give one of them"))
	case r.Key != "" && r.Halted:
		return Field("halted", Invalid("halted and a key are both given: give one of them"))
	case r.Overridden && r.Halted:
		return Field("halted", Invalid("overridden and halted are both given: give one of them"))
	}
	if err := Field("key", checkKey(r.Key)); err != nil {
		return err
	}
	return Field("after", checkKey(r.After))
}
