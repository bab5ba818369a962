package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// leaseSnapshot is shared by the receipts of one claim: the original text of the lease and the range of each
// message's line in it. Adjacent messages that are acked together are cut from the lease as one piece of text.
type leaseSnapshot struct {
	text  string
	lines []textRange
}

type textRange struct{ start, end int32 }

// contains reports whether the receipt is of a message of this claim and has not been tampered with.
func (s *leaseSnapshot) contains(r *store.Receipt) bool {
	if r.Index < 0 || r.Index >= len(s.lines) {
		return false
	}
	line := s.text[s.lines[r.Index].start:s.lines[r.Index].end]
	return len(line) > len(r.ID) && line[:len(r.ID)] == r.ID && (line[len(r.ID)] == '\n' || line[len(r.ID)] == '\t')
}

// unsorted is added to the part of the reply to a claim that says whether there is more, if store.Claim.Unsorted is
// set.
const unsorted = 4

// Claim implements store.Store.
func (s *Store) Claim(ctx context.Context, queue string, req store.ClaimRequest) (store.Claim, error) {
	lease := leaseOf(ctx)
	if req.Uncounted {
		lease = store.UncountedLease + lease
	}
	if err := s.ready(ctx); err != nil {
		return store.Claim{}, err
	}
	c := s.newCall("claim", queue, 7)
	defer s.sessions.release(s.stampRequest(ctx, c))
	repeated := "0"
	if _, ok := store.RequestOf(ctx); ok {
		repeated = "1" // another server may have made the call before
	}
	c.repeated = len(c.args)
	waiting := s.waker.claiming(ctx, queue)
	c.add(repeated, req.Max, store.Millis(req.Lease), lease, waiting.channel)
	until := any("")
	if !req.Until.IsZero() {
		until = req.Until.UnixMilli()
	}
	c.flowArgs = []any{req.Ahead, until}
	if repeated == "0" {
		few := []any{store.Millis(req.Lease), lease, req.Max, waiting.channel}
		if req.Max == 1 {
			few = few[:2]
		}
		s.addCommon(c, queue, claimFew, few...)
	}
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		s.waker.failed(waiting)
		return store.Claim{}, err
	}
	r := reply.([]any)
	var envelopes, records, died, expired, dropped []any // records: position and record alternating
	found := false                                       // the lease: another attempt of this call made it
	if _, few := r[5].(string); few {                    // of claim_few.lua
		envelopes = r[5:]
	} else {
		envelopes, records, died, expired = r[5].([]any), r[6].([]any), r[7].([]any), r[8].([]any)
		if len(r) > 9 {
			dropped = r[9].([]any)
		}
		found = len(r) > 10
	}
	claim := store.Claim{
		Now:      time.UnixMicro(r[0].(int64)),
		More:     r[2].(int64)%unsorted == 1,
		Unsorted: r[2].(int64) >= unsorted,
		Deadline: store.Time(r[3].(int64)),
		Messages: slices.Grow(req.Buffer[:0], len(envelopes)),
		Died:     texts(died),
		Expired:  texts(expired),
		Dropped:  texts(dropped),
		Limited:  c.limited(),
	}
	s.waker.claimed(waiting, claimReply{now: claim.Now, next: c.nextTime(r[1]), more: claim.More,
		busy: r[2].(int64)%unsorted == 2, removed: len(envelopes) > 0 && c.args[c.repeated] == "0" && !found})

	fence := fenceIn(r[4].(string))
	snapshot := &leaseSnapshot{text: r[4].(string), lines: make([]textRange, 0, len(envelopes))}
	var bad, missing []store.Receipt
	i := 0
	for l := range leaseLines(snapshot.text) {
		if i == len(envelopes) {
			return store.Claim{}, fmt.Errorf("%w: a lease of queue %q lists more messages than were claimed",
				store.ErrCorrupt, queue)
		}
		snapshot.lines = append(snapshot.lines, textRange{int32(l.start), int32(l.end)})
		m := store.Claimed{
			Message: store.Message{ID: l.id},
			Receipt: store.Receipt{Lease: lease, ID: l.id, Epoch: l.epoch, Claim: snapshot, Index: i},
			Due:     l.due,
			Attempt: 1,
		}
		text, ok := envelopes[i].(string)
		i++
		if len(records) > 0 && records[0] == any(int64(i)) {
			m.Attempt = parseRecord(records[1].(string)).attempts + 1
			records = records[2:]
		}
		if !ok {
			missing = append(missing, m.Receipt)
			continue
		}
		if err := envelope.Decode(stripPrefix(text), &m.Message); err != nil {
			bad = append(bad, m.Receipt)
			continue
		}
		if m.Key != "" {
			m.Fence = fence
		}
		claim.Messages = append(claim.Messages, m)
	}
	if found {
		return claim, nil // it settles nothing: the message of a lease belongs to the process that has the reply
	}
	if len(missing) > 0 {
		s.dropMissing(part(ctx, "missing"), queue, missing)
	}
	if len(bad) > 0 {
		died, err := s.buryUnreadable(part(ctx, "unreadable"), queue, bad)
		if err != nil {
			s.log.Error("later: cannot bury an unreadable message, which returns when its lease expires",
				"queue", queue, "error", err)
		}
		claim.Died = append(claim.Died, died...)
	}
	return claim, nil
}

// dropMissing acks messages of a new lease that do not exist, because another program deleted them from the hash alone.
func (s *Store) dropMissing(ctx context.Context, queue string, missing []store.Receipt) {
	acks := make([]store.Settlement, len(missing))
	for i, r := range missing {
		r.Claim = nil // so that the ack of a run cannot match another message
		acks[i] = store.Settlement{Receipt: r, Action: store.Ack}
	}
	if _, err := s.Settle(ctx, queue, acks); err != nil {
		s.log.Warn("later: messages that no longer exist stay in their lease until it expires",
			"queue", queue, "messages", len(missing), "error", err)
	}
}

func (s *Store) buryUnreadable(ctx context.Context, queue string, bad []store.Receipt) (died []string, err error) {
	args := []any{"", ""} // no condition
	for i := range bad {
		args = append(args, bad[i].Lease, token(&bad[i]), "bury", 0, string(store.DeadUnreadable), store.UnreadableText, "")
	}
	states, err := states(s.request(ctx, "settle", queue, args...))
	if err != nil {
		return nil, err
	}
	for i, state := range states { // others were cancelled or followed in between
		if state == store.StateDead {
			died = append(died, bad[i].ID)
		}
	}
	return died, nil
}

func newLease() string {
	var b [9]byte
	rand.Read(b[:]) // never fails: crypto/rand crashes the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func parseMillis(s string) time.Time {
	ms, _ := strconv.ParseInt(s, 10, 64)
	return time.UnixMilli(ms)
}
