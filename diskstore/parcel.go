package diskstore

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/laterq/later/internal/codec"
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
	parcelHead
	data []byte // the items of the parcel
}

type parcelHead struct {
	Number   int64  // of the last parcel that has departed
	From, To string // "" if the outbox is empty
}

func (o *outbox) parcel() *store.Parcel {
	if o.From == "" {
		return nil
	}
	return &store.Parcel{From: o.From, To: o.To, Number: o.Number, Data: o.data}
}

func appendOutbox(b []byte, o *outbox) []byte {
	return append(appendText(b, codec.Append(nil, &o.parcelHead)), o.data...)
}

func parseOutbox(b []byte) (o outbox, err error) {
	head, data, ok := cutText(b)
	if !ok || !decode(head, &o.parcelHead) || o.Number <= 0 || (o.From == "") != (len(data) == 0) {
		return outbox{}, corrupt("outbox of %d bytes is not of this format", len(b))
	}
	o.data = data
	return o, nil
}

// appendText appends the length of a text, and the text.
func appendText[T ~[]byte | ~string](b []byte, text T) []byte {
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
	ID         string // or the key
	Message    []byte
	Record     []byte // of a message; empty if none is stored
	Due        []byte // of a message that is scheduled or ready, the value of its entry
	Holds      bool   // the message holds its key, and halts it if it is dead
	Remembered []byte // of a remembered id
	Handover   *turns.Handover
}

func appendItem(b []byte, x *item) []byte { return appendText(b, codec.Append(nil, x)) }

// landing is an item that was read.
type landing struct {
	item
	parsed record // of a message
	key    string // that a message holds, or ""
}

// parseItems returns the items of a parcel. With an error it returns those before the damage.
func parseItems(b []byte) (all []landing, err error) {
	for n := 1; len(b) > 0; n++ {
		var x landing
		text, rest, ok := cutText(b)
		if !ok || !decode(text, &x.item) || !x.parse() {
			return all, corrupt("item %d of a parcel, %q, is not of this format", n, x.ID)
		}
		all, b = append(all, x), rest
	}
	return all, nil
}

// parse reads an item, and reports whether it makes sense.
func (x *landing) parse() bool {
	isKey, isRest := x.Handover != nil, len(x.Remembered) > 0
	if isKey || isRest {
		isMessage := len(x.Message)+len(x.Record)+len(x.Due) > 0 || x.Holds
		return isKey != isRest && !isMessage && (isKey && isHandover(x.ID, x.Handover) ||
			isRest && isRemembered([]byte(x.ID), x.Remembered))
	}
	m, err := parseMessage(x.Message)
	if x.parsed = (record{due: m.due}); len(x.Record) > 0 {
		x.parsed, err = parseRecord(x.Record)
	}
	_, k, known := parseDueValue(x.Due)
	k.class = 0
	if x.parsed.rank = k; x.Holds {
		x.key = strings.Clone(keyIn(x.Message).Key)
	}
	return x.ID != "" && err == nil && known && x.Holds == (x.key != "")
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
	return s.update(ctx, name, how{looks: true, confirmed: true, change: makesRoom}, func(t *tx, q *queue) error {
		o, err := t.outbox(q.number)
		if err == nil && o.From != "" && o.Number == number {
			t.putOutbox(q, &outbox{parcelHead: parcelHead{Number: number}})
		}
		return err
	})
}

// Depart implements store.SubQueues.
func (s *Store) Depart(ctx context.Context, name string, d store.Departure) (store.Departed, error) {
	if err := checkKeys(d.Keys); err != nil {
		return store.Departed{}, err
	}
	return call(ctx, s, name, how{looks: true, confirmed: true, size: store.MaxDepartureBytes},
		func(t *tx, q *queue) (store.Departed, error) {
			o, err := t.outbox(q.number)
			if err != nil || o.From != "" {
				return store.Departed{Parcel: o.parcel(), Before: err == nil, Number: o.Number}, err
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
				o = outbox{parcelHead{o.Number + 1, name, d.To}, p.data}
				t.putOutbox(q, &o)
			}
			p.Parcel, p.Number = o.parcel(), o.Number
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
	for i, id := range slices.Concat(d.IDs, d.Once) {
		choose := t.chooseID
		if i >= len(d.IDs) {
			id, choose = oncePrefix+id, t.chooseRemembered
		}
		if p.seen[id] {
			continue
		}
		p.seen[id] = true
		if err := choose(p, id); err != nil {
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
	x := item{ID: id}
	if x.Message, ok, err = t.get(appendIDKey(t.key[:0], q.number, kindMessage, id)); !ok || err != nil {
		return err
	}
	if at.record.stored {
		x.Record = appendRecord(nil, &at.record)
	}
	if at.record.deadReason == "" {
		if at.record.rank, err = t.rankOf(q.number, entry{at.record.due, id}); err != nil {
			return err
		}
		x.Due = appendDueValue(nil, &at.record)
	}
	x.Holds = q.isHeldBy(id, keyIn(x.Message).Key, &at.record)
	size := len(x.Message) + len(x.Record)
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
	p.data = appendItem(p.data, &item{ID: id, Remembered: value})
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
		t.removeEntry(q, &q.forget, e)
	}
}

// Arrive implements store.SubQueues.
func (s *Store) Arrive(ctx context.Context, p *store.Parcel) error {
	data, ok := p.Data.([]byte)
	if !ok || p.From == "" {
		return store.Invalid("the parcel is not from an embedded store")
	}
	h := how{looks: true, confirmed: true, change: changes, size: len(data)}
	return s.update(ctx, p.To, h, func(t *tx, q *queue) error {
		last, err := t.arrived(q.number, p.From)
		if err != nil || last >= p.Number {
			return err
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
		return err
	})
}

// land puts items into a queue. An id that is live there stays as it is, and what is remembered longer. The caller has
// flushed.
func (t *tx) land(q *queue, items []landing) error {
	known := make([]bool, len(items)) // everything is read before the first change
	for i := range items {
		x := &items[i]
		if x.Handover != nil {
			continue
		}
		if len(x.Remembered) > 0 {
			until, err := t.remembered(q.number, x.ID)
			if err != nil {
				return err
			}
			known[i] = readTime(x.Remembered) <= max(until, t.now)
			continue
		}
		_, ok, err := t.place(q, x.ID)
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
	if x.Handover != nil {
		t.receive(q, x)
		return
	}
	if len(x.Remembered) > 0 {
		t.value = append(t.value[:0], x.Remembered...)
		t.rememberValue(q, x.ID, readTime(x.Remembered))
		return
	}
	group := int64(0)
	if m, err := parseMessage(x.Message); err == nil {
		group = groupIn(m.envelope)
	}
	t.landMessage(q, x.ID, x.Message, group, &x.parsed)
	if x.key != "" && q.lanes != nil {
		q.lanes.order.Regain(t.micros, x.key, x.ID, x.parsed.deadReason != "")
	}
}

// landMessage adds a message that is not leased, with its group and its record.
func (t *tx) landMessage(q *queue, id string, value []byte, group int64, r *record) {
	t.addMessage(q, id, value)
	t.joinGroup(q, id, group)
	if r.stored {
		t.keep(q, id, r)
	}
	if r.deadReason != "" {
		t.addDead(q, entry{r.diedAt, id})
	} else {
		t.landDue(q, id, r)
	}
}
