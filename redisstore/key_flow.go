package redisstore

import (
	"context"
	"strconv"
	"strings"

	"github.com/laterq/later/store"
)

// SetKeyFlow implements store.Store.
func (s *Store) SetKeyFlow(ctx context.Context, queue, key string, o store.KeyOverride) error {
	if err := store.CheckKeyFlow(queue, key, o); err != nil {
		return err
	}
	reply, err := s.request(ctx, "set_key_flow", queue, key, formatOverride(o))
	switch {
	case err != nil:
		return err
	case reply == any(int64(0)):
		return store.NotFair(queue)
	case reply == any(int64(2)):
		return store.OneOfOrder(queue, *o.Concurrency)
	case reply == any(int64(replyBusy)):
		return store.TooManyKeyFlows(queue)
	}
	return nil
}

// formatOverride returns an override as the hash key_flows has it; see lua/_lanes.lua.
func formatOverride(o store.KeyOverride) string {
	if o.IsZero() {
		return ""
	}
	var fields [5]string
	if o.Concurrency != nil {
		fields[0] = strconv.Itoa(*o.Concurrency)
	}
	if o.Rate != nil {
		rate := o.Rate.Normal()
		fields[1] = strconv.Itoa(rate.N)
		fields[2] = strconv.FormatInt(rate.Per.Microseconds(), 10)
		fields[3] = strconv.Itoa(rate.Burst)
	}
	if o.Weight != nil {
		fields[4] = strconv.Itoa(*o.Weight)
	}
	return strings.Join(fields[:], "\t")
}

// parseOverride reads the output of formatOverride. It returns nil if there is no override. Scripts return no marks.
func parseOverride(text string) *store.KeyOverride {
	fields := strings.Split(text, "\t")
	if len(fields) != 5 {
		return nil
	}
	o := &store.KeyOverride{Concurrency: parseLimit(fields[0]), Weight: parseLimit(fields[4])}
	if n := parseLimit(fields[1]); n != nil {
		rate := rateOf(*n, int(parseNumber(fields[2])), int(parseNumber(fields[3])))
		o.Rate = &rate
	}
	return o
}

func parseLimit(text string) *int {
	if text == "" {
		return nil
	}
	n := int(parseNumber(text))
	return &n
}

// parseNumber returns 0 for a text that is not a number.
func parseNumber(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// ResumeKey implements store.Store.
func (s *Store) ResumeKey(ctx context.Context, queue, key string) error {
	if err := store.CheckResume(queue, key); err != nil {
		return err
	}
	reply, err := s.request(ctx, "resume", queue, key)
	if err == nil && reply == any(int64(0)) {
		err = store.ErrNotFound
	}
	return err
}
