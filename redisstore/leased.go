package redisstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laterq/later/store"
)

// leaseEntry is a message of an open lease.
type leaseEntry struct {
	messageEpoch
	due, deadline time.Time
}

// messageEpoch distinguishes messages that used the same id: a lease may still list one that was cancelled.
type messageEpoch struct {
	id    string
	epoch int64
}

func (m messageEpoch) compare(other messageEpoch) int {
	return cmp.Or(cmp.Compare(m.id, other.id), cmp.Compare(m.epoch, other.epoch))
}

// scanLeases makes one step of a scan over the open leases. It returns their messages sorted by id and epoch,
// whichever leases hold them.
func (s *Store) scanLeases(ctx context.Context, queue, cursor string) (held []leaseEntry, next string, err error) {
	reply, err := s.query(ctx, "leases", queue, cursor)
	if err != nil {
		return nil, "", err
	}
	r := reply.([]any)
	for _, lease := range r[1:] {
		text := lease.([]any)[0].(string)
		deadline, _ := lease.([]any)[1].(string)
		for l := range leaseLines(text) {
			held = append(held, leaseEntry{messageEpoch{l.id, l.epoch}, l.due, parseMillis(deadline)})
		}
	}
	slices.SortFunc(held, func(a, b leaseEntry) int { return a.compare(b.messageEpoch) })
	return held, r[0].(string), nil
}

// setLease sets the deadline of a leased message, and its due time, unless that is the due time of a successor.
func setLease(in *store.Info, due, deadline time.Time) {
	in.LeaseDeadline = deadline
	if !in.Follows {
		in.Due = due
	}
}

// searchLeases makes one step of a search for the leases of messages. It calls found for all messages of the leases
// that it finds, not only for the given ones.
func (s *Store) searchLeases(
	ctx context.Context, queue, cursor string, ids []string, found func(l leaseLine, deadline time.Time),
) (next string, err error) {
	reply, err := s.query(ctx, "find_leases", queue, anys([]any{cursor}, ids)...)
	if err != nil {
		return "", err
	}
	r := reply.([]any)
	for i := 1; i < len(r); i += 2 {
		deadline, _ := r[i+1].(string)
		for l := range leaseLines(r[i].(string)) {
			found(l, parseMillis(deadline))
		}
	}
	return r[0].(string), nil
}

// findLeases sets the due time and deadline of leased messages, as far as it finds them.
func (s *Store) findLeases(ctx context.Context, queue string, leased map[messageEpoch]*store.Info) (err error) {
	for cursor := "0"; len(leased) > 0; {
		ids := make([]string, 0, len(leased))
		for m := range leased {
			ids = append(ids, m.id)
		}
		cursor, err = s.searchLeases(ctx, queue, cursor, ids, func(l leaseLine, deadline time.Time) {
			m := messageEpoch{l.id, l.epoch}
			if in := leased[m]; in != nil {
				setLease(in, l.due, deadline)
				delete(leased, m)
			}
		})
		if err != nil || cursor == "0" {
			return err
		}
	}
	return nil
}

// notLeased returns the ids that it finds in no lease.
func (s *Store) notLeased(ctx context.Context, queue string, ids []string) (missed []string, err error) {
	left := map[string]bool{}
	for _, id := range ids {
		left[id] = true
	}
	for cursor := "0"; len(left) > 0; {
		ids := slices.Collect(maps.Keys(left))
		cursor, err = s.searchLeases(ctx, queue, cursor, ids, func(l leaseLine, _ time.Time) {
			if !l.due.IsZero() { // otherwise the lease is damaged
				delete(left, l.id)
			}
		})
		if err != nil {
			return nil, err
		}
		if cursor == "0" {
			break
		}
	}
	return slices.Collect(maps.Keys(left)), nil
}

// listLeased lists the messages of a few leases per page. Its cursor consists of Redis' cursor and the last message
// returned of that step, with its epoch, because an id may be listed twice: by the lease that lost it to a cancel and
// by the next one.
func (s *Store) listLeased(ctx context.Context, queue string, req store.ListRequest) (store.Page, error) {
	cursor, last, err := parseLeasedCursor(req.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	held, next, err := s.scanLeases(ctx, queue, cursor)
	if err != nil {
		return store.Page{}, err
	}
	page := store.Page{}
	held = slices.DeleteFunc(held, func(h leaseEntry) bool { return h.compare(last) <= 0 })
	switch {
	case len(held) > req.Limit:
		held = held[:req.Limit]
		page.Next = formatLeasedCursor(cursor, held[len(held)-1])
	case next != "0":
		page.Next = formatLeasedCursor(next, leaseEntry{})
	}
	ids := make([]string, len(held))
	for i := range held {
		ids[i] = held[i].id
	}
	some, err := s.readBatch(ctx, queue, ids)
	if err != nil {
		return store.Page{}, err
	}
	if len(some) < len(ids) {
		page.Next = formatLeasedCursor(cursor, held[len(some)-1])
	}
	infos, epochs := readInfos(ids, some)
	for i, in := range infos {
		if in == nil || in.State != store.StateLeased || epochs[i] != held[i].epoch {
			continue
		}
		setLease(in, held[i].due, held[i].deadline)
		switch {
		case !req.From.IsZero() && in.Due.Before(req.From), !req.To.IsZero() && !in.Due.Before(req.To):
		case req.IDsOnly:
			page.Messages = append(page.Messages, onlyID(in.ID))
		default:
			page.Messages = append(page.Messages, *in)
		}
	}
	return page, nil
}

func formatLeasedCursor(step string, last leaseEntry) string {
	return formatCursor(step, strconv.FormatInt(last.epoch, 10)+"\t"+last.id)
}

// parseLeasedCursor parses the output of formatLeasedCursor.
func parseLeasedCursor(cursor string) (step string, last messageEpoch, err error) {
	if cursor == "" {
		return "0", messageEpoch{}, nil
	}
	step, place, err := parseCursor(cursor)
	if err != nil {
		return "", messageEpoch{}, err
	}
	epoch, id, ok := strings.Cut(place, "\t")
	if last.epoch, err = strconv.ParseInt(epoch, 10, 64); !ok || err != nil {
		return "", messageEpoch{}, badCursor(cursor)
	}
	last.id = id
	return step, last, nil
}
