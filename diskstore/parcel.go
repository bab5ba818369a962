package diskstore

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/laterq/later/internal/turns"
	"github.com/laterq/later/store"
)

// A parcel that departs from a queue is stored in one value, its outbox, as the values of its keys. So messages arrive
// as they were, also unreadable ones, with their places and their holds. They leave behind their classes, which belong
// to the queue. Keys that depart are in the parcel too; see parcel_keys.go.
//
// The number of the last parcel stays in the outbox when it is emptied, and the receiver keeps it too, by the name from
// which the parcel came.
//
// A departure is refused with ErrFull like a send, because it writes what it moves. An arrival and the emptying of an
// outbox may use the room for claims and acks: of each queue, one parcel at most is under way.

// outbox is the value of kindOutbox.
type outbox struct {
	number   int64  // of the last parcel that has departed
	from, to string // "" if the outbox is empty
	data     []byte // the items of the parcel
}

func (o *outbox) parcel() *store.Parcel {
	if o.from == "" {
		return nil
	}
	return &store.Parcel{From: o.from, To: o.to, Number: o.number, Data: o.data}
}

func appendOutbox(b []byte, o *outbox) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(o.number))
	if o.from == "" {
		return b
	}
	return append(appendText(appendText(b, []byte(o.from)), []byte(o.to)), o.data...)
}

func parseOutbox(b []byte) (o outbox, err error) {
	bad := corrupt("outbox of %d bytes is not of this format", len(b))
	if len(b) < 8 {
		return outbox{}, bad
	}
	o.number = int64(binary.BigEndian.Uint64(b))
	if b = b[8:]; o.number <= 0 {
		return outbox{}, bad
	}
	if len(b) == 0 {
		return o, nil
	}
	from, b, ok := cutText(b)
	if !ok || len(from) == 0 {
		return outbox{}, bad
	}
	to, b, ok := cutText(b)
	if !ok || len(b) == 0 {
		return outbox{}, bad
	}
	o.from, o.to, o.data = string(from), string(to), b
	return o, nil
}

// appendText appends the length of a text, and the text.
func appendText(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// cutText cuts off the text that appendText has appended.
func cutText(b []byte) (text, rest []byte, ok bool) {
	n, length := binary.Uvarint(b)
	if length <= 0 || n > uint64(len(b)-length) {
		return nil, nil, false
	}
	b = b[length:]
	return b[:n], b[n:], true
}

// item is a message in a parcel, a remembered id, or a key of messages: the values of its keys.
type item struct {
	id         string // or the key
	message    []byte
	record     []byte // of a message; empty if none is stored
	due        []byte // of a message that is scheduled or ready, the value of its entry
	hold       []byte // of a message that holds its key, one byte: isHolder, or isHalter if it is dead
	remembered []byte // of a remembered id
	handover   []byte // of a key, by appendHandover
}

const (
	isHolder = 1
	isHalter = 2
)

func appendItem(b []byte, x *item) []byte {
	for _, text := range [][]byte{[]byte(x.id), x.message, x.record, x.due, x.hold, x.remembered, x.handover} {
		b = appendText(b, text)
	}
	return b
}

// landing is an item that was read.
type landing struct {
	item
	parsed   record         // of a message
	key      string         // that a message holds, or ""
	received turns.Handover // of a key
}

// parseItems returns the items of a parcel. With an error it returns those before the damage.
func parseItems(b []byte) (all []landing, err error) {
	for n := 1; len(b) > 0; n++ {
		var x landing
		var texts [7][]byte
		ok := true
		for i := range texts {
			if texts[i], b, ok = cutText(b); !ok {
				return all, corrupt("item %d of a parcel is not of this format", n)
			}
		}
		x.item = item{string(texts[0]), texts[1], texts[2], texts[3], texts[4], texts[5], texts[6]}
		if !x.parse() {
			return all, corrupt("item %d of a parcel, %q, cannot be read", n, x.id)
		}
		all = append(all, x)
	}
	return all, nil
}

// parse reads an item, and reports whether it makes sense.
func (x *landing) parse() bool {
	if len(x.remembered)+len(x.handover) > 0 {
		return x.parseOther()
	}
	m, err := parseMessage(x.message)
	if x.parsed = (record{due: m.due}); len(x.record) > 0 {
		x.parsed, err = parseRecord(x.record)
	}
	_, k, known := parseDueValue(x.due)
	k.class = 0
	if x.parsed.rank = k; len(x.hold) > 0 {
		x.key = strings.Clone(keyIn(x.message).Key)
		known = known && x.key != "" && string(x.hold) == string(holdOf(&x.parsed))
	}
	return x.id != "" && err == nil && known
}

// parseOther reads an item that is no message.
func (x *landing) parseOther() (ok bool) {
	if len(x.message)+len(x.record)+len(x.due)+len(x.hold) > 0 {
		return false
	}
	if len(x.handover) == 0 {
		return isRemembered([]byte(x.id), x.remembered)
	}
	x.received, ok = parseHandover(x.id, x.handover)
	return ok && len(x.remembered) == 0
}

// holdOf returns the item.hold of a message that holds its key.
func holdOf(r *record) []byte {
	if r.deadReason != "" {
		return []byte{isHalter}
	}
	return []byte{isHolder}
}

// outbox returns the outbox of a queue.
func (r *reader) outbox(queue uint32) (o outbox, err error) {
	value, ok, err := r.get(appendKey(nil, queue, kindOutbox))
	if !ok || err != nil {
		return outbox{}, err
	}
	return parseOutbox(value)
}

// arrived returns the number of the last parcel that has arrived from a name.
func (r *reader) arrived(queue uint32, from string) (number int64, err error) {
	_, err = r.view(appendIDKey(r.key[:0], queue, kindArrived, from), func(value []byte) (bad error) {
		number, bad = parseArrived(value)
		return bad
	})
	return number, err
}

func parseArrived(value []byte) (number int64, err error) {
	if len(value) == 8 {
		number = int64(binary.BigEndian.Uint64(value))
	}
	if number <= 0 {
		return 0, corrupt("number %x of a parcel is not of this format", value)
	}
	return number, nil
}

// putOutbox stores the outbox of a queue.
func (t *tx) putOutbox(q *queue, o *outbox) {
	t.value = appendOutbox(t.value[:0], o)
	t.set(appendKey(t.key[:0], q.number, kindOutbox), t.value)
}

// Outbox implements store.SubQueues.
func (s *Store) Outbox(ctx context.Context, name string) (*store.Parcel, error) {
	return read(ctx, s, name, confirm, func(v *view) (*store.Parcel, error) {
		o, err := v.outbox(v.number)
		return o.parcel(), err
	})
}

// Empty implements store.SubQueues.
func (s *Store) Empty(ctx context.Context, name string, number int64) error {
	_, err := call(ctx, s, name, how{looks: true, confirmed: true, change: makesRoom},
		func(t *tx, q *queue) (struct{}, error) {
			o, err := t.outbox(q.number)
			if err == nil && o.from != "" && o.number == number {
				t.putOutbox(q, &outbox{number: number})
			}
			return struct{}{}, err
		})
	return err
}

// Depart implements store.SubQueues.
func (s *Store) Depart(ctx context.Context, name string, d store.Departure) (store.Departed, error) {
	if err := checkKeys(d.Keys); err != nil {
		return store.Departed{}, err
	}
	return call(ctx, s, name, how{looks: true, confirmed: true, size: store.MaxDepartureBytes},
		func(t *tx, q *queue) (store.Departed, error) {
			o, err := t.outbox(q.number)
			if err != nil || o.from != "" {
				return store.Departed{Parcel: o.parcel(), Before: err == nil, Number: o.number}, err
			}
			if err := t.checkRoom(); err != nil {
				return store.Departed{}, err
			}
			p := departing{queue: q, seen: map[string]bool{}}
			if err := t.choose(&p, d); err != nil { // everything is read before the first change
				return store.Departed{}, err
			}
			p.takeOut(t)
			p.handOver(t, d.Keys)
			if len(p.data) > 0 {
				o = outbox{number: o.number + 1, from: name, to: d.To, data: p.data}
				t.putOutbox(q, &o)
			}
			p.Parcel, p.Number = o.parcel(), o.number
			return p.Departed, nil
		})
}

// departing is what a departure takes.
type departing struct {
	store.Departed
	queue    *queue
	seen     map[string]bool // ids that were chosen, or stay
	size     int             // bytes of messages
	data     []byte
	messages []leaving
	until    []entry // what is remembered, by when it is forgotten
}

// leaving is a message that departs.
type leaving struct {
	id string
	place
}

// choose reads what departs.
func (t *tx) choose(p *departing, d store.Departure) error {
	for _, id := range d.IDs {
		if p.seen[id] {
			continue
		}
		p.seen[id] = true
		if err := t.chooseID(p, id); err != nil {
			return err
		}
	}
	for _, key := range d.Once {
		key = oncePrefix + key
		if p.seen[key] {
			continue
		}
		p.seen[key] = true
		if err := t.chooseRemembered(p, key); err != nil {
			return err
		}
	}
	return nil
}

// chooseID chooses a message, or its id if that is remembered. Nothing more is read when the parcel is full. A message
// with an unreadable place stays like a leased one, until a claim moves it to dead.
func (t *tx) chooseID(p *departing, id string) error {
	q := p.queue
	if p.More && q.held[id] == nil {
		return nil
	}
	at, ok, err := t.place(q, id)
	switch {
	case at.held != nil || isFormatError(err):
		p.Leased = append(p.Leased, id)
		return t.addBusy(p, id)
	case err != nil:
		return err
	case !ok:
		return t.chooseRemembered(p, id)
	}
	x := item{id: id}
	if x.message, ok, err = t.get(appendIDKey(t.key[:0], q.number, kindMessage, id)); !ok || err != nil {
		return err
	}
	if at.record.stored {
		x.record = appendRecord(nil, &at.record)
	}
	if at.record.deadReason == "" {
		if at.record.rank, err = t.rankOf(q, entry{at.record.due, id}); err != nil {
			return err
		}
		x.due = appendDueValue(nil, &at.record)
	}
	if q.isHeldBy(id, keyIn(x.message).Key, &at.record) {
		x.hold = holdOf(&at.record)
	}
	size := len(x.message) + len(x.record)
	if p.size > 0 && p.size+size > store.MaxDepartureBytes {
		p.More = true
		return nil
	}
	if at.group, err = t.groupOf(q, id); err != nil {
		return err
	}
	p.size += size
	p.data = appendItem(p.data, &x)
	p.messages = append(p.messages, leaving{id, at})
	return nil
}

// chooseRemembered chooses what is remembered by an id, or by oncePrefix and a key, unless the message is leased.
func (t *tx) chooseRemembered(p *departing, id string) error {
	value, ok, err := t.get(appendIDKey(t.key[:0], p.queue.number, kindRemembered, id))
	if !ok || err != nil || !isRemembered([]byte(id), value) || readTime(value) <= t.now {
		return err
	}
	if len(value) > timeLength && p.queue.held[string(value[onceID:])] != nil {
		p.Kept = append(p.Kept, id[len(oncePrefix):])
		return nil
	}
	p.data = appendItem(p.data, &item{id: id, remembered: value})
	p.until = append(p.until, entry{readTime(value), id})
	return nil
}

// takeOut removes what departs from the queue.
func (p *departing) takeOut(t *tx) {
	q := p.queue
	for i := range p.messages {
		t.cancel(q, p.messages[i].id, &p.messages[i].place)
	}
	for _, e := range p.until {
		t.remove(appendIDKey(t.key[:0], q.number, kindRemembered, e.id))
		t.remove(appendTimeKey(t.key[:0], q.number, kindForget, e))
		q.forget.remove(e)
		t.touch(q)
	}
}

// Arrive implements store.SubQueues.
func (s *Store) Arrive(ctx context.Context, p *store.Parcel) error {
	data, ok := p.Data.([]byte)
	if !ok || p.From == "" {
		return store.Invalid("the parcel is not from an embedded store")
	}
	_, err := call(ctx, s, p.To, how{looks: true, confirmed: true, change: changes, size: len(data)},
		func(t *tx, q *queue) (struct{}, error) {
			last, err := t.arrived(q.number, p.From)
			if err != nil || last >= p.Number {
				return struct{}{}, err
			}
			items, err := parseItems(data)
			if err == nil {
				q, err = t.create(p.To)
			}
			if err == nil {
				err = t.land(q, items)
			}
			if err == nil {
				t.value = binary.BigEndian.AppendUint64(t.value[:0], uint64(p.Number))
				t.set(appendIDKey(t.key[:0], q.number, kindArrived, p.From), t.value)
			}
			return struct{}{}, err
		})
	return err
}

// land puts items into a queue. An id that is live there stays as it is, and what is remembered longer. The caller has
// flushed.
func (t *tx) land(q *queue, items []landing) error {
	known := make([]bool, len(items)) // everything is read before the first change
	for i := range items {
		x := &items[i]
		if len(x.handover) > 0 {
			continue
		}
		if len(x.remembered) > 0 {
			until, err := t.remembered(q.number, x.id)
			if err != nil {
				return err
			}
			known[i] = readTime(x.remembered) <= max(until, t.now)
			continue
		}
		_, ok, err := t.place(q, x.id)
		if err != nil && !isFormatError(err) {
			return err
		}
		known[i] = ok || err != nil
	}
	for i := range items {
		if !known[i] {
			t.landOne(q, &items[i])
		}
	}
	return nil
}

func (t *tx) landOne(q *queue, x *landing) {
	if len(x.handover) > 0 {
		t.receive(q, x)
		return
	}
	if len(x.remembered) > 0 {
		t.value = append(t.value[:0], x.remembered...)
		t.rememberValue(q, x.id, readTime(x.remembered))
		return
	}
	t.addMessage(q, x.id, x.message)
	if m, err := parseMessage(x.message); err == nil {
		t.joinGroup(q, x.id, groupIn(m.envelope))
	}
	r := &x.parsed
	if r.stored {
		t.keep(q, x.id, r)
	}
	if r.deadReason != "" {
		t.addDead(q, entry{r.diedAt, x.id})
	} else {
		t.landDue(q, x.id, r)
	}
	if x.key != "" && q.lanes != nil {
		q.lanes.order.Regain(t.micros, x.key, x.id, r.deadReason != "")
	}
}
