package redisstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/laterq/later/store"
)

// Extend implements store.Store. It makes one call for some leases each, or more where messages were cancelled, which
// the script searches for in a bounded part of the leases. If a later call fails, the results of the earlier calls
// stand, and the remaining extensions get its error.
func (s *Store) Extend(ctx context.Context, queue string, extensions []store.Extension) ([]store.ExtendResult, error) {
	results := make([]store.ExtendResult, len(extensions))
	err := inParts(ctx, len(extensions), func(ctx context.Context, from int) (int, error) {
		extended, err := s.extend(ctx, queue, extensions[from:min(len(extensions), from+maxExtensions)])
		return copy(results[from:], extended), err
	}, func(i int, err error) { results[i].Err = err })
	if err != nil {
		return nil, err
	}
	return results, nil
}

// extend makes one call. It returns the results of the first extensions, at least of one.
func (s *Store) extend(ctx context.Context, queue string, extensions []store.Extension) ([]store.ExtendResult, error) {
	c := s.newCall("extend", queue, 2+2*len(extensions))
	defer s.sessions.release(s.stampRequest(ctx, c))
	for i := range extensions {
		c.add(&extensions[i].Lease, store.Millis(extensions[i].For))
	}
	reply, err := s.run(ctx, queue, c)
	if err != nil {
		return nil, err
	}
	results := make([]store.ExtendResult, len(reply.([]any)))
	for i, answer := range reply.([]any) {
		results[i] = extended(extensions[i].Lease, answer.([]any))
	}
	return results, nil
}

func extended(lease string, answer []any) (r store.ExtendResult) {
	for _, t := range answer[1].([]any) {
		id, epoch, _ := strings.Cut(t.(string), "\t")
		lost := store.Receipt{Lease: lease, ID: id}
		lost.Epoch, _ = strconv.ParseInt(epoch, 10, 64)
		r.Lost = append(r.Lost, lost)
	}
	if deadline := answer[0].(int64); deadline > 0 {
		r.Deadline = store.Time(deadline)
	} else {
		r.Err = store.ErrLeaseLost
	}
	return r
}
