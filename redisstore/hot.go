package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// Send implements store.Store.
func (s *Store) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	results := make([]store.SendResult, len(msgs))
	if len(msgs) == 0 {
		return results, nil
	}
	size := 0
	for i := range msgs {
		size += envelope.Size(&msgs[i].Message) + 20
	}
	// One buffer holds all due times and envelopes, and one slice the strings that point into it, so that a
	// message costs no allocation of its own. The buffer never grows, so the strings stay where they are.
	buf := make([]byte, 0, size)
	text := func(from int) string { return unsafe.String(unsafe.SliceData(buf[from:]), len(buf)-from) }
	texts := make([]string, 0, 2*len(msgs))
	places := make([]int, 0, len(msgs)) // place of each sent message in msgs
	seen := duplicateFinder(len(msgs))
	c := s.newCall(&s.scripts.send, queue, 3+3*len(msgs))
	create := len(c.args)
	c.add("0")
	c.addRepeat()
	longest := len(c.args)
	c.add(nil)
	most := 0
	for i := range msgs {
		m := &msgs[i]
		if seen.again(m.ID) {
			results[i].Duplicate = true
			continue
		}
		from := len(buf)
		buf = appendDue(buf, m.Due)
		texts = append(texts, text(from))
		from = len(buf)
		buf = envelope.Append(buf, &m.Message)
		most = max(most, len(buf)-from)
		texts = append(texts, text(from))
		places = append(places, i)
		c.add(&m.ID, &texts[len(texts)-2], &texts[len(texts)-1])
	}
	c.args[longest] = most
	reply, err := s.runRegistered(ctx, queue, c, create)
	if err != nil {
		return nil, err
	}
	for _, position := range reply.([]any) {
		results[places[position.(int64)-1]].Duplicate = true
	}
	return results, nil
}

// seenIDs finds an id that comes twice. For a single id it does nothing.
type seenIDs map[string]struct{}

func duplicateFinder(n int) seenIDs {
	if n < 2 {
		return nil
	}
	return make(seenIDs, n)
}

func (s seenIDs) again(id string) bool {
	if s == nil {
		return false
	}
	n := len(s)
	s[id] = struct{}{}
	return len(s) == n
}

func appendDue(b []byte, due store.Due) []byte {
	if due.At.IsZero() {
		return strconv.AppendInt(append(b, '+'), store.Millis(due.Delay), 10)
	}
	return strconv.AppendInt(b, store.UnixMillis(due.At), 10)
}

// claimNote goes with the receipts of one claim. While a claim is settled as a whole, the script need not take
// its lease apart: it compares the text.
type claimNote struct {
	text string
	held int
}

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	lease := newLease()
	c := s.newCall(&s.scripts.claim, queue, 4)
	c.add(req.Max, store.Millis(req.Lease), lease)
	c.addRepeat()
	asked := s.waker.claiming(queue)
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return store.Claim{}, err
	}
	r := reply.([]any)
	text := r[4].(string)
	envelopes := r[5].([]any)
	records, _ := r[6].([]any)
	claim := store.Claim{
		Now:      time.UnixMicro(r[0].(int64)),
		More:     r[2].(int64) == 1,
		Deadline: store.Time(r[3].(int64)),
		Messages: make([]store.Claimed, 0, len(envelopes)),
	}
	for _, id := range r[7].([]any) {
		claim.Died = append(claim.Died, id.(string))
	}
	s.waker.claimed(queue, asked, claim.Now, r[1].(int64), len(envelopes), claim.More)

	note := &claimNote{text: text}
	var bad []store.Receipt
	for i, e := range envelopes {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		var due string
		due, text, _ = strings.Cut(text, "\n")
		m := store.Claimed{Message: store.Message{ID: line}, Receipt: store.Receipt{Lease: lease, ID: line, Claim: note}, Attempt: 1}
		if due, rest, unusual := strings.Cut(due, " "); unusual {
			m.Due = parseMillis(due)
			epoch, _, _ := strings.Cut(rest, " ")
			m.Receipt.Epoch, _ = strconv.ParseInt(epoch, 10, 64)
		} else {
			m.Due = parseMillis(due)
		}
		if m.Receipt.Epoch == 0 {
			note.held++
		}
		envelopeText, ok := e.(string)
		if !ok {
			continue // cancelled between a claim and its repetition
		}
		if records != nil {
			if rec, ok := records[i].(string); ok {
				m.Attempt = parseRecord(rec).attempts + 1
			}
		}
		if err := envelope.Decode(envelopeText, &m.Message); err != nil {
			bad = append(bad, m.Receipt)
			continue
		}
		claim.Messages = append(claim.Messages, m)
	}
	if note.held != len(envelopes) {
		note.held = -1 // an id with an epoch is not its own token
	}
	if len(bad) > 0 {
		died, err := s.buryUnreadable(ctx, queue, bad)
		if err != nil {
			s.log.Error("later: cannot set an unreadable message aside; it comes back when its lease ends", "queue", queue, "error", err)
		}
		claim.Died = append(claim.Died, died...)
	}
	return claim, nil
}

func (s *Store) buryUnreadable(ctx context.Context, queue string, bad []store.Receipt) (died []string, err error) {
	c := s.newCall(&s.scripts.settle, queue, 1+6*len(bad))
	c.addRepeat()
	for i := range bad {
		c.add(bad[i].Lease, token(&bad[i]), "bury", 0, string(store.DeadUnreadable), store.UnreadableText)
		died = append(died, bad[i].ID)
	}
	_, err = s.run(ctx, queue, c)
	return died, err
}

func newLease() string {
	var b [9]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func parseMillis(s string) time.Time {
	ms, _ := strconv.ParseInt(s, 10, 64)
	return time.UnixMilli(ms)
}

// token names a held message in a script, see lua/_lease.lua.
func token(r *store.Receipt) string {
	if r.Epoch == 0 {
		return r.ID
	}
	return r.ID + "\t" + strconv.FormatInt(r.Epoch, 10)
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, queue string, settlements []store.Settlement) ([]store.SettleResult, error) {
	results := make([]store.SettleResult, len(settlements))
	acks := make([]int, 0, len(settlements))
	var others []int
	for i := range settlements {
		if settlements[i].Action == store.Ack {
			acks = append(acks, i)
		} else {
			others = append(others, i)
		}
	}
	if len(acks) > 0 {
		if err := s.ack(ctx, queue, settlements, acks, results); err != nil {
			return nil, err
		}
	}
	if len(others) > 0 {
		if err := s.putBack(ctx, queue, settlements, others, results); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// ack acks the settlements at places, grouped by lease.
func (s *Store) ack(ctx context.Context, queue string, settlements []store.Settlement, places []int, results []store.SettleResult) error {
	groups := make(map[string][]int, 4)
	var leases []string
	remembered := 0
	for _, p := range places {
		st := &settlements[p]
		group, known := groups[st.Receipt.Lease]
		if !known {
			leases = append(leases, st.Receipt.Lease)
		}
		groups[st.Receipt.Lease] = append(group, p)
		if st.Remember > 0 {
			remembered++
		}
	}
	c := s.newCall(&s.scripts.ack, queue, 2+2*remembered+3*len(leases)+len(places))
	c.addRepeat()
	c.add(remembered)
	for _, p := range places {
		if st := &settlements[p]; st.Remember > 0 {
			c.add(&st.Receipt.ID, store.Millis(st.Remember))
		}
	}
	order := make([]int, 0, len(places))
	for i := range leases {
		group := groups[leases[i]]
		order = append(order, group...)
		c.add(&leases[i])
		if note := wholeClaim(settlements, group); note != nil {
			c.add(&note.text, len(group))
			for _, p := range group {
				c.add(&settlements[p].Receipt.ID)
			}
			continue
		}
		c.add("", len(group))
		for _, p := range group {
			c.add(token(&settlements[p].Receipt))
		}
	}
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return err
	}
	for _, position := range reply.([]any) {
		p := order[position.(int64)-1]
		results[p].Err = leaseLost(&settlements[p].Receipt)
	}
	return nil
}

// wholeClaim gives the note of the claim of which the settlements at places are all there is, each once; else nil.
func wholeClaim(settlements []store.Settlement, places []int) *claimNote {
	note, _ := settlements[places[0]].Receipt.Claim.(*claimNote)
	if note == nil || note.held != len(places) {
		return nil
	}
	seen := duplicateFinder(len(places))
	for _, p := range places {
		r := &settlements[p].Receipt
		if r.Claim != any(note) || seen.again(r.ID) {
			return nil
		}
	}
	return note
}

// putBack nacks, snoozes, releases and buries.
func (s *Store) putBack(ctx context.Context, queue string, settlements []store.Settlement, places []int, results []store.SettleResult) error {
	c := s.newCall(&s.scripts.settle, queue, 1+6*len(places))
	c.addRepeat()
	for _, p := range places {
		st := &settlements[p]
		c.add(&st.Receipt.Lease, token(&st.Receipt), st.Action.String(), store.Millis(st.Delay), string(store.DeadBuried), &st.Reason)
	}
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return err
	}
	for i, state := range reply.([]any) {
		r := &results[places[i]]
		if r.State = store.State(state.(string)); r.State == store.StateNone {
			r.Err = leaseLost(&settlements[places[i]].Receipt)
		}
	}
	return nil
}

func leaseLost(r *store.Receipt) error {
	return fmt.Errorf("message %q is not held under lease %s: %w", r.ID, r.Lease, store.ErrLeaseLost)
}

// Extend implements store.Store.
func (s *Store) Extend(ctx context.Context, queue string, extensions []store.Extension) ([]store.ExtendResult, error) {
	if len(extensions) == 0 {
		return nil, nil
	}
	c := s.newCall(&s.scripts.extend, queue, 2*len(extensions))
	for i := range extensions {
		c.add(&extensions[i].Lease, store.Millis(extensions[i].For))
	}
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return nil, err
	}
	results := make([]store.ExtendResult, len(extensions))
	for i, answer := range reply.([]any) {
		deadline, lost := answer.([]any)[0].(int64), answer.([]any)[1].([]any)
		for _, t := range lost {
			id, epoch, _ := strings.Cut(t.(string), "\t")
			r := store.Receipt{Lease: extensions[i].Lease, ID: id}
			r.Epoch, _ = strconv.ParseInt(epoch, 10, 64)
			results[i].Lost = append(results[i].Lost, r)
		}
		if deadline == 0 {
			results[i].Err = fmt.Errorf("lease %s has expired or ended: %w", extensions[i].Lease, store.ErrLeaseLost)
		} else {
			results[i].Deadline = store.Time(deadline)
		}
	}
	return results, nil
}
