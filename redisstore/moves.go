package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/laterq/later/store"
)

// maxScannedIDs is about how many ids a step of a scan returns, and scannedBytes how many bytes of messages it reads. A
// hash has its fields in no order, so the next messages are about as long as the last ones.
const (
	maxScannedIDs = 500
	scannedBytes  = store.MaxBatchBytes / 16
)

// scannedParts are the parts of a scan, in order. What once has moves to old_once, and never the other way. A queue
// without a flow has no keys and no limits of keys.
var scannedParts = []string{"messages", "dedup", onceKey, oldOnceKey, keysPart, "limits", "holders"}

// keysPart is the first of the parts with keys.
const keysPart = "keys"

// scanPlace is where a scan goes on.
type scanPlace struct {
	part   int // index in scannedParts
	cursor string
	count  int    // of messages in a step; 0 if none was made
	run    string // of the server
}

func (p scanPlace) String() string {
	return fmt.Sprintf("%d.%s.%d.%s", p.part, p.cursor, p.count, p.run)
}

func parseScanPlace(text string) (scanPlace, error) {
	switch text {
	case "":
		return scanPlace{cursor: "0"}, nil
	case store.ScanKeys:
		return scanPlace{cursor: "0", part: slices.Index(scannedParts, keysPart)}, nil
	}
	fields := strings.Split(text, ".")
	if len(fields) == 4 {
		part, err1 := strconv.Atoi(fields[0])
		_, err2 := strconv.ParseUint(fields[1], 10, 64)
		count, err3 := strconv.Atoi(fields[2])
		if err1 == nil && err2 == nil && err3 == nil && part >= 0 && part < len(scannedParts) && count >= 0 {
			return scanPlace{part, fields[1], count, fields[3]}, nil
		}
	}
	return scanPlace{}, store.Field("cursor", store.Invalid("cursor %q is invalid: pass Scanned.Next of the previous "+
		"part, or \"\" for the first", text))
}

// Scan implements store.SubQueues. It begins again on another server, after a failover.
func (s *Store) Scan(ctx context.Context, name, cursor string) (store.Scanned, error) {
	place, err := parseScanPlace(cursor)
	if err != nil {
		return store.Scanned{}, err
	}
	c := s.newCall("scan", name, 5)
	s.addOnceKeys(c, name)
	c.add(scannedParts[place.part], place.cursor, place.count, place.run)
	reply, err := s.run(ctx, name, c)
	if err != nil {
		return store.Scanned{}, err
	}
	r := reply.([]any)
	found, scanned := texts(r[2]), store.Scanned{Leases: int(r[5].(int64)), Run: r[4].(string)}
	part := r[3].(string) // the first one if the scan began again
	place.part, place.run = slices.Index(scannedParts, part), r[4].(string)
	switch part {
	case onceKey, oldOnceKey:
		for pair := range slices.Chunk(found, 2) {
			scanned.Once = append(scanned.Once, store.OnceID{Key: pair[0], ID: pair[1]})
		}
	case keysPart, "limits":
		scanned.Keys = found
	case "holders":
		scanned.Holds = found
	default:
		scanned.IDs = found
	}
	if len(found) > 0 && part == "messages" {
		place.count = max(1, min(maxScannedIDs, int(int64(len(found))*scannedBytes/max(1, r[1].(int64)))))
	}
	if place.cursor = r[0].(string); place.cursor == "0" {
		if place.part++; part == oldOnceKey && !c.limited() {
			return scanned, nil
		}
	}
	if place.part < len(scannedParts) {
		scanned.Next = place.String()
	}
	return scanned, nil
}

// parcelData is the data of a parcel, which only the scripts read.
type parcelData string

// parcelOf returns the parcel in a reply, nil if there is none.
func parcelOf(reply any) *store.Parcel {
	r := reply.([]any)
	if len(r) == 0 {
		return nil
	}
	return &store.Parcel{Number: r[0].(int64), From: r[1].(string), To: r[2].(string),
		Data: parcelData(r[3].(string))}
}

// Depart implements store.SubQueues.
func (s *Store) Depart(ctx context.Context, name string, d store.Departure) (store.Departed, error) {
	if n := len(d.IDs) + len(d.Once) + len(d.Keys); n > store.MaxDeparture {
		return store.Departed{}, store.Invalid("departure has %d ids and keys: it may have %d", n, store.MaxDeparture)
	}
	c, session := s.departCall(name, d)
	defer s.sessions.release(session)
	reply, err := s.runSafely(ctx, name, c)
	if err != nil {
		return store.Departed{}, err
	}
	r := reply.([]any)
	departed := store.Departed{Parcel: parcelOf(r[3]), Leased: texts(r[1]), Kept: texts(r[4]),
		More: r[2] == any(int64(1)), Number: r[5].(int64)}
	if len(r) > 6 {
		departed.Busy = texts(r[6])
	}
	departed.Before = r[0] == any(int64(1)) && departed.Parcel != nil
	return departed, nil
}

// departCall returns the call of a departure, and its session.
func (s *Store) departCall(name string, d store.Departure) (*call, *session) {
	c := s.newCall("depart", name, 8+len(d.IDs)+len(d.Once))
	s.addOnceKeys(c, name)
	c.addKey(s.keys.key(name, outboxKey))
	session := s.stampOwn(c)
	c.add(name, d.To, len(d.IDs))
	c.flowArgs = []any{strings.Join(d.Keys, "\n")} // a key has no such byte
	for i := range d.IDs {
		c.add(&d.IDs[i])
	}
	for i := range d.Once {
		c.add(&d.Once[i])
	}
	return c, session
}

// Outbox implements store.SubQueues.
func (s *Store) Outbox(ctx context.Context, name string) (*store.Parcel, error) {
	c := s.newCall("outbox", name, 1)
	c.addKey(s.keys.key(name, outboxKey))
	reply, err := s.runSafely(ctx, name, c)
	if err != nil {
		return nil, err
	}
	return parcelOf(reply), nil
}

// Arrive implements store.SubQueues.
func (s *Store) Arrive(ctx context.Context, p *store.Parcel) error {
	c, session := s.arriveCall(p)
	defer s.sessions.release(session)
	c.safe = true
	_, err := s.runRegistered(ctx, p.To, c, c.stamp+2)
	return err
}

// arriveCall returns the call of an arrival, and its session. The permission to create the queue follows the request.
func (s *Store) arriveCall(p *store.Parcel) (*call, *session) {
	c := s.newCall("arrive", p.To, 9)
	s.addOnceKeys(c, p.To)
	c.addKey(s.keys.key(p.To, outboxKey))
	session := s.stampOwn(c)
	c.add("0", p.From, p.Number, string(p.Data.(parcelData)))
	return c, session
}

// Empty implements store.SubQueues.
func (s *Store) Empty(ctx context.Context, name string, number int64) error {
	c := s.newCall("empty", name, 2)
	c.addKey(s.keys.key(name, outboxKey))
	c.add(number)
	_, err := s.runSafely(ctx, name, c)
	return err
}

// Expect implements store.SubQueues. The end of all expectations takes several calls if many keys have limits of their
// own, or are expected.
func (s *Store) Expect(ctx context.Context, name string, e store.Expected) (last int64, err error) {
	cursor := ""
	if e.None {
		cursor = "0"
	}
	for {
		c, session := s.expectCall(name, e, cursor)
		reply, err := s.runSafely(ctx, name, c)
		s.sessions.release(session)
		switch {
		case err != nil:
			return 0, err
		case isConflict(reply):
			return 0, fmt.Errorf("queue %q has a later parcel from %q: %w", name, e.From, store.ErrConflict)
		}
		r := reply.([]any)
		last = max(last, r[0].(int64))
		if cursor = r[1].(string); cursor == "0" || cursor == "" {
			return last, nil
		}
	}
}

// expectCall returns a call of expect.lua, and its session.
func (s *Store) expectCall(name string, e store.Expected, cursor string) (*call, *session) {
	c := s.newCall("expect", name, 7+len(e.Keys))
	c.addKey(s.keys.key(name, outboxKey))
	session := s.stampOwn(c)
	c.add(e.From, e.Number, e.Last, cursor)
	for i := range e.Keys {
		c.add(&e.Keys[i])
	}
	return c, session
}
