package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/internal/envelope"
	"github.com/laterq/later/store"
)

// token returns how scripts name a held message, see lua/_open_leases.lua.
func token(r *store.Receipt) string {
	if r.Epoch == 0 {
		return r.ID
	}
	return r.ID + "\t" + strconv.FormatInt(r.Epoch, 10)
}

// maxLeaseLines limits the lines of the leases of one call: a script parses a lease if it settles single messages of
// it, which takes about a microsecond for each line. maxExtensions limits the leases that one call extends.
const (
	maxLeaseLines = 1_000
	maxExtensions = store.MaxBatch
	maxOthers     = store.MaxBatch / 5 // settlements other than acks, because they rewrite records
)

// Settle implements store.Store. It makes one call for acks, one for acks with follow-ups and one for the rest, or more
// if they belong to many large claims. If a later call fails, the results of the earlier calls stand, and the remaining
// settlements get its error.
func (s *Store) Settle(
	ctx context.Context, queue string, settlements []store.Settlement,
) ([]store.SettleResult, error) {
	results := make([]store.SettleResult, len(settlements))
	indexes := sortSettlements(settlements)
	indexes = slices.DeleteFunc(indexes, func(i int) bool {
		if results[i].Err = settlements[i].Action.Check(); results[i].Err == nil {
			results[i].Err = settlements[i].CheckThen(s, queue)
		}
		return results[i].Err != nil
	})
	err := inParts(ctx, len(indexes), func(ctx context.Context, from int) (int, error) {
		part := indexes[from:][:batchSize(settlements, indexes[from:])]
		settle := s.settleOthers
		switch kindOf(&settlements[part[0]]) {
		case acks:
			settle = s.ack
		case acksThen:
			settle = s.ackThen
		}
		return len(part), settle(ctx, queue, settlements, part, results)
	}, func(i int, err error) { results[indexes[i]].Err = err })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// sortSettlements returns the indexes of settlements in sorted order. The acks of one whole claim, most calls of a
// busy worker, are sorted without comparisons.
func sortSettlements(settlements []store.Settlement) []int {
	indexes := make([]int, len(settlements))
	if sortWholeClaim(settlements, indexes) {
		return indexes
	}
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortFunc(indexes, func(a, b int) int { return compareSettlements(&settlements[a], &settlements[b]) })
	return indexes
}

// sortWholeClaim sorts settlements that ack each message of one claim exactly once. It reports whether they do.
func sortWholeClaim(settlements []store.Settlement, indexes []int) bool {
	var snapshot *leaseSnapshot
	for i := range settlements {
		st := &settlements[i]
		of, _ := st.Receipt.Claim.(*leaseSnapshot)
		if i == 0 {
			snapshot = of
		}
		index := st.Receipt.Index
		if of == nil || of != snapshot || len(of.lines) != len(indexes) || kindOf(st) != acks || index < 0 ||
			index >= len(indexes) || indexes[index] != 0 {
			clear(indexes)
			return false
		}
		indexes[index] = i + 1
	}
	for i := range indexes {
		indexes[i]--
	}
	return true
}

// settlementKind decides which script settles a message.
type settlementKind int

const (
	acks settlementKind = iota
	acksThen
	others
)

func kindOf(s *store.Settlement) settlementKind {
	switch {
	case s.Action != store.Ack:
		return others
	case len(s.Then) > 0:
		return acksThen
	}
	return acks
}

// compareSettlements sorts by kind, then by claim and place in it.
func compareSettlements(a, b *store.Settlement) int {
	if by := kindOf(a) - kindOf(b); by != 0 {
		return int(by)
	}
	if a.Receipt.Claim != nil && a.Receipt.Claim == b.Receipt.Claim {
		return a.Receipt.Index - b.Receipt.Index
	}
	return cmp.Or(strings.Compare(a.Receipt.Lease, b.Receipt.Lease), a.Receipt.Index-b.Receipt.Index)
}

// batchSize returns how many of the settlements at indexes, which are sorted, go into one call.
func batchSize(settlements []store.Settlement, indexes []int) int {
	first := &settlements[indexes[0]]
	kind := kindOf(first)
	if kind == others {
		indexes = indexes[:min(len(indexes), maxOthers)]
	}
	lines, lease := 0, ""
	var work followUpWork
	for n, p := range indexes {
		st := &settlements[p]
		if kindOf(st) != kind || !store.EqualCondition(st.If, first.If) || !work.add(st.Then) && n > 0 {
			return n
		}
		if n == 0 || st.Receipt.Lease != lease {
			lease = st.Receipt.Lease
			if snapshot, ok := st.Receipt.Claim.(*leaseSnapshot); ok {
				lines += len(snapshot.lines)
			} else {
				lines += store.MaxBatch
			}
			if n > 0 && lines > maxLeaseLines {
				return n
			}
		}
	}
	return len(indexes)
}

// ack acks the settlements at indexes, which are sorted: by lease, and within it in runs of adjacent messages.
func (s *Store) ack(
	ctx context.Context, queue string, settlements []store.Settlement, indexes []int, results []store.SettleResult,
) error {
	withDedup, grouped := 0, 0
	for _, p := range indexes {
		if st := &settlements[p]; st.Grouped {
			grouped++
		} else if st.DedupWindow > 0 {
			withDedup++
		}
	}
	c := s.newCall("ack", queue, 14+2*(withDedup+grouped)+2*len(indexes))
	condition := settlements[indexes[0]].If
	s.addConditionKey(c, queue, condition)
	defer s.sessions.release(s.stampRequest(ctx, c))
	c.add(withDedup + grouped)
	for left := indexes; len(left) > 0; {
		n := 1
		for n < len(left) && settlements[left[n]].Receipt.Lease == settlements[left[0]].Receipt.Lease {
			n++
		}
		c.addLease(settlements, left[:n])
		left = left[n:]
	}
	for i, p := range indexes {
		if st := &settlements[p]; st.DedupWindow > 0 && !st.Grouped {
			c.add(i+1, store.Millis(st.DedupWindow))
		}
	}
	for i, p := range indexes {
		if st := &settlements[p]; grouped > 0 && st.Grouped {
			c.add(i+1, windowOf(st))
		}
	}
	if condition != nil {
		c.addCondition(condition)
	}
	if withDedup+grouped == 0 && condition == nil {
		s.addFewAcks(c, queue, settlements, indexes)
	}
	reply, err := s.run(ctx, queue, c)
	if err != nil || reply == any(int64(0)) { // of ack_few.lua
		return err
	}
	if isConflict(reply) {
		refuseAll(indexes, results)
		return nil
	}
	for _, position := range reply.([]any) {
		results[indexes[position.(int64)-1]].Err = store.ErrLeaseLost
	}
	return nil
}

// maxFewAcks is the number of messages that an ack of the common case may have, unless they are all of a lease.
const maxFewAcks = 8

// addFewAcks makes an ack try the common case first if it is of all or a few messages of one lease.
func (s *Store) addFewAcks(c *call, queue string, settlements []store.Settlement, indexes []int) {
	r := &settlements[indexes[0]].Receipt
	snapshot, ok := r.Claim.(*leaseSnapshot)
	if _, singles := splitRuns(settlements, indexes); !ok || len(singles) > 0 {
		return
	}
	length := 0
	if len(snapshot.lines) == len(indexes) {
		length = len(snapshot.text)
	} else if len(indexes) > maxFewAcks {
		return
	}
	args := make([]any, 0, 2+len(indexes))
	args = append(args, &r.Lease)
	for _, p := range indexes {
		args = append(args, &settlements[p].Receipt.ID)
	}
	if len(snapshot.lines) > 1 {
		args = append(args, length)
	}
	s.addCommon(c, queue, ackFew, args...)
}

// refuseAll sets the results of settlements with a condition that is not met.
func refuseAll(indexes []int, results []store.SettleResult) {
	for _, p := range indexes {
		results[p].Err = store.ErrConflict
	}
}

// windowOf returns the dedup window of an acked message as lua/ack.lua reads it: in ms, with a "g" before it if the
// message is in a group.
func windowOf(st *store.Settlement) any {
	if st.Grouped {
		return "g" + strconv.FormatInt(store.Millis(st.DedupWindow), 10)
	}
	return store.Millis(st.DedupWindow)
}

// addLease adds the acks of one lease in order: as runs of adjacent messages if possible, otherwise as single messages.
func (c *call) addLease(settlements []store.Settlement, indexes []int) {
	first := &settlements[indexes[0]].Receipt
	runs, singles := splitRuns(settlements, indexes)
	c.add(&first.Lease, len(runs), len(singles))
	for _, run := range runs {
		snapshot := settlements[run[0]].Receipt.Claim.(*leaseSnapshot)
		from, to := settlements[run[0]].Receipt.Index, settlements[run[len(run)-1]].Receipt.Index
		if len(run) == len(snapshot.lines) {
			c.add("="+strconv.Itoa(len(snapshot.text)), len(run))
		} else {
			// Include the preceding line end, so that only whole lines match.
			c.add(snapshot.text[snapshot.lines[from].start-1:snapshot.lines[to].end], len(run))
		}
		for _, p := range run {
			c.add(&settlements[p].Receipt.ID)
		}
	}
	for _, p := range singles {
		c.add(token(&settlements[p].Receipt))
	}
}

// splitRuns splits the settlements at indexes, which are of one lease and sorted, into runs of adjacent messages. If
// one of them cannot be in a run, or the runs are too short to pay off, it returns all as singles, because the script
// then parses the lease anyway.
func splitRuns(settlements []store.Settlement, indexes []int) (runs [][]int, singles []int) {
	start := 0
	for i, p := range indexes {
		r := &settlements[p].Receipt
		snapshot, _ := r.Claim.(*leaseSnapshot)
		if snapshot == nil || r.Epoch != 0 || !snapshot.contains(r) {
			return nil, indexes
		}
		if i == start {
			continue
		}
		switch before := &settlements[indexes[i-1]].Receipt; {
		case before.Claim != r.Claim || before.Index >= r.Index:
			return nil, indexes // a repeated message, or tampered receipts
		case before.Index+1 < r.Index:
			runs = append(runs, indexes[start:i])
			start = i
		}
	}
	runs = append(runs, indexes[start:])
	if len(runs) > 4 && len(runs) > len(indexes)/4 {
		return nil, indexes
	}
	return runs, nil
}

// settleOthers nacks, snoozes, releases, buries and gives back.
func (s *Store) settleOthers(
	ctx context.Context, queue string, settlements []store.Settlement, indexes []int, results []store.SettleResult,
) error {
	c := s.newCall("settle", queue, 5+7*len(indexes))
	condition := settlements[indexes[0]].If
	s.addConditionKey(c, queue, condition)
	defer s.sessions.release(s.stampRequest(ctx, c))
	c.addCondition(condition)
	for _, p := range indexes {
		st := &settlements[p]
		failure := store.NewFailure(time.Time{}, 0, st)
		action := st.Action.String()
		if st.Action == store.Snooze && st.ResetAttempts {
			action = "restart"
		}
		detail := string(store.DeadBuried)
		if st.Action == store.GiveBack {
			detail = ""
			if st.Within >= 0 {
				detail = strconv.FormatInt(store.Millis(st.Within), 10)
			}
		}
		c.add(&st.Receipt.Lease, token(&st.Receipt), action, store.Millis(st.Delay), detail, &st.Reason,
			envelope.FailureTail(&failure))
	}
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return err
	}
	if isConflict(reply) {
		refuseAll(indexes, results)
		return nil
	}
	for i, state := range reply.([]any) {
		r := &results[indexes[i]]
		if r.State = store.State(state.(string)); r.State == store.StateNone {
			r.Err = store.ErrLeaseLost
		}
	}
	return nil
}
