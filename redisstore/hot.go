package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
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
	texts := make([]string, 0, 2*len(msgs)) // due times and envelopes
	places := make([]int, 0, len(msgs))     // place of each sent message in msgs
	seen := duplicateFinder(len(msgs), func(i int) string { return msgs[i].ID })
	c := s.newCall(&s.scripts.send, queue, 7+3*len(msgs))
	create := len(c.args)
	c.add("0")
	defer s.callers.giveBack(s.sign(c))
	most, unusual := 0, false
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
		most = max(most, len(buf)-from+prefixSize)
		unusual = unusual || envelope.Unusual(buf[from])
		texts = append(texts, text(from))
		places = append(places, i)
	}
	durable := msgs[0].Durable
	if durable.Asked() {
		c.confirm(durable)
	}
	c.add(most, unusual, durable.Asked(), len(places))
	for i := range places {
		c.add(&texts[2*i])
	}
	for i, p := range places {
		c.add(&msgs[p].ID, &texts[2*i+1])
	}
	reply, err := s.runRegistered(ctx, queue, c, create)
	if err != nil {
		return nil, err
	}
	for _, position := range reply.([]any) {
		results[places[position.(int64)-1]].Duplicate = true
	}
	if durable.Asked() {
		for i := range results {
			results[i].Err = c.confirmed.err
		}
	}
	return results, nil
}

// seenIDs finds an id that comes twice; nil when none can.
type seenIDs map[string]struct{}

// duplicateFinder makes nothing where ids rise, as those that Later makes for a batch do.
func duplicateFinder(n int, id func(i int) string) seenIDs {
	for i := 1; i < n; i++ {
		if id(i) <= id(i-1) {
			return make(seenIDs, n)
		}
	}
	return nil
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

// claimNote goes with the receipts of one claim: the lease's text as it was, and where in it the line of each message
// begins and ends. Neighbors that are acked together are cut out of the lease as one piece of text.
type claimNote struct {
	text  string
	lines []textRange
}

type textRange struct{ start, end int32 }

// names tells whether the receipt is of a message of this claim, and not tampered with.
func (n *claimNote) names(r *store.Receipt) bool {
	if r.Index < 0 || r.Index >= len(n.lines) {
		return false
	}
	line := n.text[n.lines[r.Index].start:n.lines[r.Index].end]
	return len(line) > len(r.ID) && line[:len(r.ID)] == r.ID && (line[len(r.ID)] == '\n' || line[len(r.ID)] == '\t')
}

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	lease := newLease()
	c := s.newCall(&s.scripts.claim, queue, 3)
	c.add(req.Max, store.Millis(req.Lease), lease)
	asked := s.waker.claiming(queue)
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return store.Claim{}, err
	}
	r := reply.([]any)
	envelopes := r[5].([]any)
	records, _ := r[6].([]any)
	claim := store.Claim{
		Now:      time.UnixMicro(r[0].(int64)),
		More:     r[2].(int64) == 1,
		Deadline: store.Time(r[3].(int64)),
		Messages: slices.Grow(req.Buffer[:0], len(envelopes)),
	}
	for _, id := range r[7].([]any) {
		claim.Died = append(claim.Died, id.(string))
	}
	for _, id := range r[8].([]any) {
		claim.Expired = append(claim.Expired, id.(string))
	}
	s.waker.claimed(queue, asked, claim.Now, r[1].(int64), len(envelopes), claim.More)

	note := &claimNote{text: r[4].(string), lines: make([]textRange, 0, len(envelopes))}
	var bad, missing []store.Receipt
	i := 0
	for l := range leaseLines(note.text) {
		if i == len(envelopes) {
			return store.Claim{}, fmt.Errorf("%w: a lease of queue %q lists more than was claimed", store.ErrCorrupt, queue)
		}
		note.lines = append(note.lines, textRange{int32(l.start), int32(l.end)})
		m := store.Claimed{
			Message: store.Message{ID: l.id},
			Receipt: store.Receipt{Lease: lease, ID: l.id, Epoch: l.epoch, Claim: note, Index: i},
			Due:     l.due,
			Attempt: 1,
		}
		text, ok := envelopes[i].(string)
		if records != nil {
			if rec, ok := records[i].(string); ok {
				m.Attempt = parseRecord(rec).attempts + 1
			}
		}
		i++
		if !ok {
			missing = append(missing, m.Receipt)
			continue
		}
		if err := envelope.Decode(bare(text), &m.Message); err != nil {
			bad = append(bad, m.Receipt)
			continue
		}
		claim.Messages = append(claim.Messages, m)
	}
	if len(missing) > 0 {
		s.dropMissing(ctx, queue, missing)
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

// dropMissing takes messages out of a lease that are not there: they were cancelled between a claim and its
// repetition, or somebody else removed them from the hash alone.
func (s *Store) dropMissing(ctx context.Context, queue string, missing []store.Receipt) {
	acks := make([]store.Settlement, len(missing))
	for i, r := range missing {
		r.Claim = nil // so that no other message of its lease is taken for it
		acks[i] = store.Settlement{Receipt: r, Action: store.Ack}
	}
	if _, err := s.Settle(ctx, queue, acks); err != nil {
		s.log.Warn("later: messages that are gone stay in their lease until it ends", "queue", queue, "messages", len(missing), "error", err)
	}
}

func (s *Store) buryUnreadable(ctx context.Context, queue string, bad []store.Receipt) (died []string, err error) {
	c := s.newCall(&s.scripts.settle, queue, 2+6*len(bad))
	defer s.callers.giveBack(s.sign(c))
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

// A script takes a lease apart when it settles single messages of it or extends it while messages were cancelled.
// So many lines, and so many leases whose lines are not known here, go into one call.
const (
	maxLeaseLines = 10_000
	maxExtensions = maxLeaseLines / store.MaxBatch
)

// Settle implements store.Store. It makes one call for acks and one for the rest, more where they are of many
// large claims. When a later call fails, the results of the earlier ones stand, and the others have its error.
func (s *Store) Settle(ctx context.Context, queue string, settlements []store.Settlement) ([]store.SettleResult, error) {
	results := make([]store.SettleResult, len(settlements))
	places := sorted(settlements)
	for done := 0; done < len(places); {
		n := callSize(settlements, places[done:])
		settle := s.putBack
		if settlements[places[done]].Action == store.Ack {
			settle = s.ack
		}
		if err := settle(ctx, queue, settlements, places[done:done+n], results); err != nil {
			if done == 0 {
				return nil, err
			}
			for _, p := range places[done:] {
				results[p].Err = err
			}
			break
		}
		done += n
	}
	return results, nil
}

// sorted gives the places of settlements in their order. The acks of one whole claim, which are most of a busy worker's
// calls, are put in order without comparing.
func sorted(settlements []store.Settlement) []int {
	places := make([]int, len(settlements))
	if whole(settlements, places) {
		return places
	}
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int { return compareSettlements(&settlements[a], &settlements[b]) })
	return places
}

// whole puts the settlements in order when they ack each message of one claim once.
func whole(settlements []store.Settlement, places []int) bool {
	var note *claimNote
	for i := range settlements {
		st := &settlements[i]
		of, _ := st.Receipt.Claim.(*claimNote)
		if i == 0 {
			note = of
		}
		index := st.Receipt.Index
		if of == nil || of != note || len(of.lines) != len(places) || st.Action != store.Ack || index < 0 || index >= len(places) || places[index] != 0 {
			clear(places)
			return false
		}
		places[index] = i + 1
	}
	for i := range places {
		places[i]--
	}
	return true
}

// compareSettlements sorts acks first, then by claim and place in it.
func compareSettlements(a, b *store.Settlement) int {
	if (a.Action == store.Ack) != (b.Action == store.Ack) {
		if a.Action == store.Ack {
			return -1
		}
		return 1
	}
	if a.Receipt.Claim != nil && a.Receipt.Claim == b.Receipt.Claim {
		return a.Receipt.Index - b.Receipt.Index
	}
	return cmp.Or(strings.Compare(a.Receipt.Lease, b.Receipt.Lease), a.Receipt.Index-b.Receipt.Index)
}

// callSize tells how many of the settlements at places, which are sorted, go into one call.
func callSize(settlements []store.Settlement, places []int) int {
	acks := settlements[places[0]].Action == store.Ack
	lines, lease := 0, ""
	for n, p := range places {
		st := &settlements[p]
		if (st.Action == store.Ack) != acks {
			return n
		}
		if n == 0 || st.Receipt.Lease != lease {
			lease = st.Receipt.Lease
			if note, ok := st.Receipt.Claim.(*claimNote); ok {
				lines += len(note.lines)
			} else {
				lines += store.MaxBatch
			}
			if n > 0 && lines > maxLeaseLines {
				return n
			}
		}
	}
	return len(places)
}

// ack acks the settlements at places, which are sorted: by lease, and there in runs of neighbors.
func (s *Store) ack(ctx context.Context, queue string, settlements []store.Settlement, places []int, results []store.SettleResult) error {
	remembered := 0
	for _, p := range places {
		if settlements[p].Remember > 0 {
			remembered++
		}
	}
	c := s.newCall(&s.scripts.ack, queue, 11+2*remembered+2*len(places))
	defer s.callers.giveBack(s.sign(c))
	c.add(remembered)
	for left := places; len(left) > 0; {
		n := 1
		for n < len(left) && settlements[left[n]].Receipt.Lease == settlements[left[0]].Receipt.Lease {
			n++
		}
		c.addLease(settlements, left[:n])
		left = left[n:]
	}
	for i, p := range places {
		if st := &settlements[p]; st.Remember > 0 {
			c.add(i+1, store.Millis(st.Remember))
		}
	}
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return err
	}
	for _, position := range reply.([]any) {
		results[places[position.(int64)-1]].Err = store.ErrLeaseLost
	}
	return nil
}

// addLease adds the acks of one lease, in their order: runs of neighbors where that is possible, else single messages.
func (c *call) addLease(settlements []store.Settlement, places []int) {
	first := &settlements[places[0]].Receipt
	runs, singles := runsOf(settlements, places)
	c.add(&first.Lease, len(runs), len(singles))
	for _, run := range runs {
		note := settlements[run[0]].Receipt.Claim.(*claimNote)
		from, to := settlements[run[0]].Receipt.Index, settlements[run[len(run)-1]].Receipt.Index
		if len(run) == len(note.lines) {
			c.add("="+strconv.Itoa(len(note.text)), len(run))
		} else {
			// With the line end before it, so that it matches whole lines only.
			c.add(note.text[note.lines[from].start-1:note.lines[to].end], len(run))
		}
		for _, p := range run {
			c.add(&settlements[p].Receipt.ID)
		}
	}
	for _, p := range singles {
		c.add(token(&settlements[p].Receipt))
	}
}

// runsOf parts the settlements at places, which are of one lease and sorted, into runs of neighbors. Where one
// of them cannot be in a run, or the runs are so short that they cost more than they save, all are singles: the
// script then takes the lease apart anyway.
func runsOf(settlements []store.Settlement, places []int) (runs [][]int, singles []int) {
	start := 0
	for i, p := range places {
		r := &settlements[p].Receipt
		note, _ := r.Claim.(*claimNote)
		if note == nil || r.Epoch != 0 || !note.names(r) {
			return nil, places
		}
		if i == start {
			continue
		}
		switch before := &settlements[places[i-1]].Receipt; {
		case before.Claim != r.Claim || before.Index >= r.Index:
			return nil, places // the same message twice, or receipts that were tampered with
		case before.Index+1 < r.Index:
			runs = append(runs, places[start:i])
			start = i
		}
	}
	runs = append(runs, places[start:])
	if len(runs) > 4 && len(runs) > len(places)/4 {
		return nil, places
	}
	return runs, nil
}

// putBack nacks, snoozes, releases and buries.
func (s *Store) putBack(ctx context.Context, queue string, settlements []store.Settlement, places []int, results []store.SettleResult) error {
	c := s.newCall(&s.scripts.settle, queue, 2+6*len(places))
	defer s.callers.giveBack(s.sign(c))
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
			r.Err = store.ErrLeaseLost
		}
	}
	return nil
}
