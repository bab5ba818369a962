package store

// FollowUp is a message that is written in the same step as the Ack of another one. See Settlement.Then.
type FollowUp struct {
	// Queue is the queue that the message is sent to, which may be the queue of the Ack. It is created if necessary.
	Queue string
	// Message has an id and, other than in a Send, no Durable, no OnDuplicate and no If.
	Message Outgoing
}

// Linker is implemented by a Store that can write follow-ups. Without it, or for two queues that it does not link, a
// caller sends the follow-ups before the Ack, with ids that are refused when they are sent again.
type Linker interface {
	// Linked reports whether an Ack on one queue can have follow-ups to the other. The answer changes only when one of
	// them gets several shards: then a Settle with follow-ups sends them before the Ack.
	Linked(queue, to string) bool
}

// Linked reports whether an Ack on the queue of s can have follow-ups to another queue.
func Linked(s Store, queue, to string) bool {
	l, ok := s.(Linker)
	return ok && l.Linked(queue, to)
}

// Check returns an ErrInvalid or ErrTooLarge unless f can be written.
func (f *FollowUp) Check() error {
	if err := CheckNewQueue(f.Queue); err != nil {
		return err
	}
	if f.Message.Durable.Asked() {
		return Invalid("durability is asked for a follow-up: it is as durable as the ack that it is written with; " +
			"leave it out, or send the message before the ack")
	}
	if f.Message.OnDuplicate.Collapses() {
		return Invalid("a follow-up has a mode for duplicates: it never changes a live message; " +
			"leave it out, or send the message before the ack")
	}
	if f.Message.Once != nil {
		return Invalid("a follow-up has a once: an ack sends it once anyway; leave it out")
	}
	if f.Message.If != nil {
		return Invalid("a follow-up has a condition: give it to the settlement")
	}
	return f.Message.Check()
}

// succeeds reports whether the follow-up takes the place of the message that it follows.
func (f *FollowUp) succeeds(queue string, r *Receipt) bool {
	return f.Queue == queue && f.Message.ID == r.ID
}

// CheckThen returns an ErrInvalid or ErrTooLarge unless the settlement's follow-ups can be written by the store.
func (s *Settlement) CheckThen(on Linker, queue string) error {
	if len(s.Then) > 0 && s.Action != Ack {
		return Invalid("a message has follow-ups and is settled by %v: only an ack has follow-ups", s.Action)
	}
	for i := range s.Then {
		to := s.Then[i].Queue
		if !on.Linked(queue, to) {
			return Invalid("a follow-up in queue %q cannot be written with an ack in queue %q: send it before the ack",
				to, queue)
		}
		if s.Then[i].succeeds(queue, &s.Receipt) && s.DedupWindow > 0 {
			return Invalid("a follow-up in queue %q has the id %q of the message that it follows, which has a "+
				"dedup window: leave out the window, or give the follow-up another id", to, s.Receipt.ID)
		}
	}
	if !FollowUpsFit(s.Then) {
		return TooLarge("the follow-ups of a message go to more than %d queues or have more than %d bytes: "+
			"send some of them before the ack", MaxFollowUpQueues, MaxFollowUpBytes)
	}
	return nil
}

// FollowUpsFit reports whether one message can have the follow-ups: in at most MaxFollowUpQueues queues, and with at
// most MaxFollowUpBytes unless it is a single one.
func FollowUpsFit(then []FollowUp) bool {
	if len(then) <= 1 {
		return true
	}
	size := 0
	for i := range then {
		size += then[i].Message.Size()
	}
	return size <= MaxFollowUpBytes && (len(then) <= MaxFollowUpQueues || len(ByQueue(then)) <= MaxFollowUpQueues)
}

// ByQueue returns the follow-ups of each queue, in their order.
func ByQueue(then []FollowUp) map[string][]FollowUp {
	by := make(map[string][]FollowUp, 1)
	for _, f := range then {
		by[f.Queue] = append(by[f.Queue], f)
	}
	return by
}

// Size returns the number of bytes that the message counts against MaxBatchBytes.
func (m *Message) Size() int {
	n := len(m.Payload)
	if len(m.Headers) > 0 { // a range over none is not free
		for name, value := range m.Headers {
			n += len(name) + len(value)
		}
	}
	return n
}
