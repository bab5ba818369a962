package redisstore

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// maxByID bounds the ids of a call that removes or settles messages, because it reads their records.
const maxByID = store.MaxBatch / 2

// inParts makes the calls for n ids. do makes one for ids from a position on, and returns for how many it has results:
// a script handles as many as take a few milliseconds. If the first call fails, inParts returns its error. If a later
// one does, the results of the earlier ones stand, and fail is called for each id that is left.
func inParts(
	ctx context.Context, n int, do func(ctx context.Context, from int) (int, error), fail func(int, error),
) error {
	for from := 0; from < n; {
		done, err := do(partFrom(ctx, from), from)
		if err != nil && from == 0 {
			return err
		}
		if err != nil {
			for i := from; i < n; i++ {
				fail(i, err)
			}
			return nil
		}
		if done == 0 { // executed before, and the reply was not kept because its caller has gone
			return nil
		}
		from += done
	}
	return nil
}

// Cancel implements store.Store. If it makes several calls and a later one fails, the results of the earlier ones
// stand, and the remaining ids get its error.
func (s *Store) Cancel(ctx context.Context, queue string, req store.CancelRequest) ([]store.CancelResult, error) {
	results := make([]store.CancelResult, len(req.IDs))
	err := inParts(ctx, len(req.IDs), func(ctx context.Context, from int) (int, error) {
		states, err := s.cancel(ctx, queue, req.IDs[from:min(len(req.IDs), from+maxByID)], req.KeepIDs)
		for i, state := range states {
			if results[from+i].State = state; state == store.StateNone {
				results[from+i].Err = store.ErrNotFound
			}
		}
		return len(states), err
	}, func(i int, err error) { results[i].Err = err })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// cancel makes one call. It returns the states of the first ids.
func (s *Store) cancel(ctx context.Context, queue string, ids []string, keepIDs bool) ([]store.State, error) {
	return states(s.request(ctx, "cancel", queue, anys([]any{keepIDs}, ids)...))
}

// Reschedule implements store.Store. Like Cancel, it may make several calls.
func (s *Store) Reschedule(ctx context.Context, queue string, ids []string, due store.Due) ([]error, error) {
	errs := make([]error, len(ids))
	err := inParts(ctx, len(ids), func(ctx context.Context, from int) (int, error) {
		states, err := s.reschedule(ctx, queue, ids[from:], due)
		for i, state := range states {
			switch state {
			case store.StateNone:
				errs[from+i] = store.ErrNotFound
			case store.StateLeased:
				errs[from+i] = store.ErrLeased
			case store.StateDead:
				errs[from+i] = store.ErrDead
			}
		}
		return len(states), err
	}, func(i int, err error) { errs[i] = err })
	if err != nil {
		return nil, err
	}
	return errs, nil
}

// reschedule makes one call. It returns the states of the first ids.
func (s *Store) reschedule(ctx context.Context, queue string, ids []string, due store.Due) ([]store.State, error) {
	return states(s.request(ctx, "reschedule", queue, anys([]any{string(appendDue(nil, due))}, ids)...))
}

// states returns the result of a call that replies with the state of each of its messages, or of the first ones.
func states(reply any, err error) ([]store.State, error) {
	if err != nil {
		return nil, err
	}
	states := make([]store.State, len(reply.([]any)))
	for i, state := range reply.([]any) {
		states[i] = store.State(state.(string))
	}
	return states, nil
}

// Get implements store.Store. The due time and deadline of a leased message are in its lease. Only the leases know who
// holds it, so that a claim has one lease to write, however many messages it takes. So Get searches the leases, in
// bounded calls.
func (s *Store) Get(ctx context.Context, queue string, ids []string) ([]*store.Info, error) {
	infos, epochs, err := s.read(ctx, queue, ids)
	if err != nil {
		return nil, err
	}
	leased := map[messageEpoch]*store.Info{}
	for i, in := range infos {
		if in != nil && in.State == store.StateLeased {
			leased[messageEpoch{in.ID, epochs[i]}] = in
		}
	}
	return infos, s.findLeases(ctx, queue, leased)
}

// read returns messages without reading their leases, and the epoch of each.
func (s *Store) read(ctx context.Context, queue string, ids []string) (infos []*store.Info, epochs []int64, err error) {
	all, err := s.readFields(ctx, queue, ids)
	if err != nil {
		return nil, nil, err
	}
	infos, epochs = readInfos(ids, all)
	return infos, epochs, nil
}

func readInfos(ids []string, all []storedMessage) (infos []*store.Info, epochs []int64) {
	for i, stored := range all {
		recorded, _ := stored.fields[3].(string)
		infos = append(infos, readInfo(ids[i], stored.fields, stored.now))
		epochs = append(epochs, parseRecord(recorded).epoch)
	}
	return infos, epochs
}

// storedMessage holds the stored fields of a message: value in messages, due time, time of death and record, each nil
// if absent.
type storedMessage struct {
	fields []any
	now    time.Time // when it was read
}

// readFields reads messages as they are stored, in as many calls as necessary.
func (s *Store) readFields(ctx context.Context, queue string, ids []string) (all []storedMessage, err error) {
	for len(all) < len(ids) {
		some, err := s.readBatch(ctx, queue, ids[len(all):])
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// readBatch reads as many of the messages as fit in one reply, at least one.
func (s *Store) readBatch(ctx context.Context, queue string, ids []string) (some []storedMessage, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	reply, err := s.query(ctx, "get", queue, anys(nil, ids)...)
	if err != nil {
		return nil, err
	}
	now := time.UnixMilli(reply.([]any)[0].(int64))
	for _, one := range reply.([]any)[1:] {
		some = append(some, storedMessage{one.([]any), now})
	}
	return some, nil
}

func readInfo(id string, fields []any, now time.Time) *store.Info {
	text, ok := fields[0].(string)
	if !ok {
		return nil
	}
	if due, ok := fields[1].(string); ok {
		in := info(id, text, fields[3], store.StateScheduled)
		if in.Due = parseMillis(due); !in.Due.After(now) {
			in.State = store.StateReady
		}
		return &in
	}
	if died, ok := fields[2].(string); ok {
		in := info(id, text, fields[3], store.StateDead)
		in.DiedAt = parseMillis(died)
		return &in
	}
	in := info(id, text, fields[3], store.StateLeased)
	return &in
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	if err := req.Check(); err != nil {
		return store.Page{}, err
	}
	if req.State == store.StateLeased {
		return s.listLeased(ctx, queue, req)
	}
	if req.Group != "" {
		return s.listGroup(ctx, queue, req)
	}
	score, id, err := parseCursor(req.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	reply, err := s.query(ctx, "list", queue, string(req.State), bound(req.From), bound(req.To), req.Limit, score, id,
		req.IDsOnly)
	if err != nil {
		return store.Page{}, err
	}
	r := reply.([]any)
	listed, envelopes, records := r[2].([]any), r[3].([]any), r[4].([]any)
	page := store.Page{Messages: make([]store.Info, 0, len(envelopes))}
	for i := range envelopes {
		id, score := listed[2*i].(string), parseMillis(listed[2*i+1].(string))
		text, ok := envelopes[i].(string)
		if !ok {
			continue // an id without a message, which a check reports
		}
		if req.IDsOnly {
			page.Messages = append(page.Messages, onlyID(id))
			continue
		}
		in := info(id, text, records[i], req.State)
		if req.State == store.StateDead {
			in.DiedAt = score
		} else {
			in.Due = score
		}
		page.Messages = append(page.Messages, in)
	}
	if r[1].(int64) == 0 {
		page.Next = formatCursor(r[5].(string), r[6].(string))
	}
	return page, nil
}

func bound(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(store.UnixMillis(t), 10)
}

func formatCursor(position, id string) string {
	return position + "." + base64.RawURLEncoding.EncodeToString([]byte(id))
}

// parseCursor reads the output of formatCursor.
func parseCursor(cursor string) (score, id string, err error) {
	if cursor == "" {
		return "", "", nil
	}
	score, encoded, ok := strings.Cut(cursor, ".")
	raw, decodeErr := base64.RawURLEncoding.DecodeString(encoded)
	if _, err := strconv.ParseUint(score, 10, 64); !ok || err != nil || decodeErr != nil {
		return "", "", badCursor(cursor)
	}
	return score, string(raw), nil
}

func badCursor(cursor string) error {
	return store.Field("cursor", store.Invalid("cursor %q is invalid: pass Page.Next of the previous page, or \"\" "+
		"for the first", cursor))
}

// Replay implements store.Store.
func (s *Store) Replay(ctx context.Context, queue string, sel store.Selection, due store.Due) (store.Bulk, error) {
	if err := sel.CheckReplay(); err != nil {
		return store.Bulk{}, err
	}
	return s.bulk(ctx, "replay", queue, string(appendDue(nil, due)), sel)
}

// Purge implements store.Store.
func (s *Store) Purge(ctx context.Context, queue string, sel store.Selection) (store.Bulk, error) {
	if err := sel.CheckPurge(); err != nil {
		return store.Bulk{}, err
	}
	return s.bulk(ctx, "purge", queue, string(sel.State), sel)
}

// bulk makes one call, or several if many ids are given.
func (s *Store) bulk(
	ctx context.Context, script, queue, first string, sel store.Selection,
) (all store.Bulk, err error) {
	for from := 0; err == nil && (from == 0 || from < len(sel.IDs)); from += maxByID {
		some := sel
		some.IDs = sel.IDs[from:min(len(sel.IDs), from+maxByID)]
		var part store.Bulk
		part, err = s.bulkPart(partFrom(ctx, from), script, queue, first, some)
		part.Done += all.Done
		part.Resumed = append(all.Resumed, part.Resumed...)
		all = part
	}
	return all, err
}

func (s *Store) bulkPart(
	ctx context.Context, script, queue, first string, sel store.Selection,
) (store.Bulk, error) {
	reply, err := s.request(ctx, script, queue, anys([]any{first, bound(sel.Before)}, sel.IDs)...)
	if err != nil {
		return store.Bulk{}, err
	}
	r := reply.([]any)
	if len(r) == 0 { // executed before, and the reply was not kept
		return store.Bulk{}, nil
	}
	done := store.Bulk{Done: int(r[0].(int64)), More: r[1].(int64) == 1, Before: store.Time(r[2].(int64))}
	if len(r) > 3 {
		done.Resumed = texts(r[3])
	}
	return done, nil
}

// Stats implements store.Store.
func (s *Store) Stats(ctx context.Context, queue string) (store.Stats, error) {
	reply, err := s.query(ctx, "stats", queue)
	if err != nil {
		return store.Stats{}, err
	}
	r := reply.([]any)
	n := func(i int) int64 { return r[i].(int64) }
	st := store.Stats{Now: time.UnixMicro(n(0)), Exists: n(1) == 1, Paused: n(2) == 1, Dead: n(7)}
	packed, err := newPackedCounts(r[12].([]any))
	if err != nil {
		return store.Stats{}, fmt.Errorf("queue %q: %w", queue, err)
	}
	overdue := packed.before(st.Now.UnixMilli() + 1)
	st.Ready, st.Scheduled = n(3)+overdue, max(0, n(4)+n(5)-overdue)
	st.Leased = max(0, n(6)-st.Ready-st.Scheduled-st.Dead)
	earliest := n(8)
	for _, b := range r[13].([]any) {
		start, text := b.([]any)[0].(int64), b.([]any)[1].(string)
		if offset, found := earliestLine(text); found && (earliest < 0 || start+offset < earliest) {
			earliest = start + offset
		}
	}
	if earliest >= 0 {
		st.NextDue = time.UnixMilli(earliest)
	}
	text := func(i int) int64 {
		number, _ := strconv.ParseInt(r[i].(string), 10, 64)
		return number
	}
	st.DeadRetention = store.Retention{MaxAge: time.Duration(text(9)) * time.Millisecond, MaxCount: text(10)}
	st.Dropped = text(11)
	if len(r) > 14 {
		st.Flow = flowOf(r[14].([]any), st.Now)
	}
	return st, nil
}

// SetPaused implements store.Store. A queue that exists is paused or resumed without registering its name, which a full
// server refuses.
func (s *Store) SetPaused(ctx context.Context, queue string, paused bool) error {
	c := s.newCall("pause", queue, 4)
	defer s.sessions.release(s.stampRequest(ctx, c))
	create := len(c.args)
	c.add("0", paused)
	_, err := s.runCreating(ctx, queue, c, create)
	return err
}

// SetDeadRetention implements store.Store. Like SetPaused, it works on a full server if the queue exists.
func (s *Store) SetDeadRetention(ctx context.Context, queue string, r store.Retention, former *store.Retention) error {
	if err := r.Check(); err != nil {
		return err
	}
	c := s.newCall("retain", queue, 7)
	defer s.sessions.release(s.stampRequest(ctx, c))
	create := len(c.args)
	limit := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	c.add("0", limit(store.Millis(r.MaxAge)), limit(r.MaxCount))
	if former != nil {
		c.add(limit(store.Millis(former.MaxAge)), limit(former.MaxCount))
	}
	reply, err := s.runCreating(ctx, queue, c, create)
	if err == nil && isConflict(reply) {
		err = fmt.Errorf("queue %q: %w", queue, store.ErrConflict)
	}
	return err
}
