package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// ZSetConfig configures FromZSet.
type ZSetConfig struct {
	FromConfig
	// Queue is the queue to send to. Default: the name of the key.
	Queue string
	// Unit is the unit of the scores, time.Second or time.Millisecond. Default: it is recognised by the first and the
	// last score, if both are times of the years 1973 to 5138 in the same unit.
	Unit time.Duration
	// IDFrom selects the ids of the messages. The default, "hash", is the hash of the member in hexadecimal digits.
	// "member" is the member itself. "json:FIELD" is a field of members that are JSON objects, a text or a number.
	IDFrom string
}

// Scores below secondsBelow are seconds, others below millisBelow are milliseconds. The first second that would be
// taken for milliseconds is in the year 5138, and the last millisecond that would be taken for seconds in 1973.
const (
	secondsBelow = 1e11
	millisBelow  = 1e14
)

// FromZSet copies messages from a sorted set with payloads as members and due times as scores, as many programs use one
// as a delay queue. Stop these programs first.
//
// A score is rounded up to the next millisecond. One of zero or less means at once, in the order of scores.
//
// FromZSet can be repeated after it failed or was stopped: ids keep messages from being copied twice, as long as they
// are live. A message that was delivered at the target in the meantime, and is still in the source, is delivered again:
// start the target's workers after the migration, or use DeleteSource.
//
// It returns its result along with any error: ErrNotFound if the key does not exist; ErrInvalid for an argument that is
// not allowed; ErrLeased if the source is in use; ErrInvalid or ErrTooLarge for messages over a limit, and ErrDuplicate
// for messages with ids that the target has for others, which stay in the source. Several are joined by errors.Join.
func FromZSet(
	ctx context.Context, to *later.Client, rdb redis.UniversalClient, key string, cfg ZSetConfig,
) (FromResult, error) {
	cfg.Queue = cmp.Or(cfg.Queue, key)
	if err := cfg.check(); err != nil {
		return FromResult{}, err
	}
	kind, err := rdb.Type(ctx, key).Result()
	switch {
	case err != nil:
		return FromResult{}, sourceError(key, err)
	case kind == "none":
		return FromResult{}, fmt.Errorf("key %q of the source: %w", key, store.ErrNotFound)
	case kind != "zset":
		return FromResult{}, store.Invalid("key %q of the source is a %s: give the key of a sorted set", key, kind)
	}
	index := fromIndex{rdb, key, asZSet}
	if cfg.Unit == 0 {
		if cfg.Unit, err = detectUnit(ctx, index); err != nil {
			return FromResult{}, err
		}
	}
	source := fromSource{
		name:  key,
		queue: cfg.Queue,
		parts: []fromPart{{state: "waiting", index: index, load: cfg.items}},
		remove: func(ctx context.Context, part *fromPart, items []fromItem) (int64, error) {
			return removeEntries(ctx, rdb, part, items, nil)
		},
	}
	return migrateFrom(ctx, to, []fromSource{source}, cfg.FromConfig)
}

func (cfg ZSetConfig) check() error {
	if cfg.Unit != 0 && cfg.Unit != time.Second && cfg.Unit != time.Millisecond {
		return store.Invalid("unit of scores is %v: must be a second or a millisecond, or omitted", cfg.Unit)
	}
	field, isField := strings.CutPrefix(cfg.IDFrom, "json:")
	if cfg.IDFrom != "" && cfg.IDFrom != "hash" && cfg.IDFrom != "member" && (!isField || field == "") {
		return store.Invalid("ids are from %q: must be hash, member or json:FIELD", cfg.IDFrom)
	}
	return nil
}

// detectUnit recognises the unit of scores by the first and the last one that is a time.
func detectUnit(ctx context.Context, x fromIndex) (time.Duration, error) {
	var units []time.Duration
	by := &redis.ZRangeBy{Min: "(0", Max: "(+inf", Count: 1}
	for _, one := range []func(context.Context, string, *redis.ZRangeBy) *redis.ZSliceCmd{
		x.rdb.ZRangeByScoreWithScores, x.rdb.ZRevRangeByScoreWithScores,
	} {
		entries, err := one(ctx, x.key, by).Result()
		if err != nil {
			return 0, sourceError(x.key, err)
		}
		for _, e := range entries {
			switch {
			case e.Score < secondsBelow:
				units = append(units, time.Second)
			case e.Score < millisBelow:
				units = append(units, time.Millisecond)
			default:
				return 0, store.Invalid("score %.0f of key %q is neither seconds nor milliseconds since 1970: "+
					"rewrite the scores, or give the unit", e.Score, x.key)
			}
		}
	}
	if len(units) < 2 { // nothing is due after 1970
		return time.Second, nil
	}
	if units[0] != units[1] {
		return 0, store.Invalid("the scores of key %q are partly seconds and partly milliseconds since 1970: "+
			"give the unit", x.key)
	}
	return units[0], nil
}

// items returns the messages of entries.
func (cfg ZSetConfig) items(_ context.Context, entries []redis.Z) ([]fromItem, error) {
	items := make([]fromItem, len(entries))
	for i, entry := range entries {
		items[i] = cfg.item(entry)
	}
	return items, nil
}

// item returns the message of an entry.
func (cfg ZSetConfig) item(entry redis.Z) fromItem {
	item := fromItem{member: memberOf(entry)}
	due, err := dueOf(entry.Score, cfg.Unit)
	if err != nil {
		item.err = err
		return item
	}
	id, err := cfg.idOf(item.member)
	if err != nil {
		item.err = err
		return item
	}
	item.info = &store.Info{
		Message: store.Message{ID: id, Payload: []byte(item.member)}, State: store.StateScheduled, Due: due,
	}
	return item
}

// dueOf returns the time of a score, rounded up to a millisecond.
func dueOf(score float64, unit time.Duration) (time.Time, error) {
	ms := math.Ceil(score * float64(unit.Milliseconds()))
	switch {
	case math.IsNaN(ms) || ms > math.MaxInt64/2:
		return time.Time{}, store.Invalid("score %v is no time: give seconds or milliseconds since 1970", score)
	case ms < 1:
		return time.UnixMilli(1), nil
	}
	return time.UnixMilli(int64(ms)), nil
}

// idOf returns the id of a member.
func (cfg ZSetConfig) idOf(member string) (string, error) {
	field, isField := strings.CutPrefix(cfg.IDFrom, "json:")
	switch {
	case isField:
		return jsonField(member, field)
	case cfg.IDFrom == "member":
		return member, nil
	}
	return hashOf(member), nil
}

// jsonField returns a field of a JSON object.
func jsonField(text, field string) (string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return "", store.Invalid("member is no JSON object, so it has no field %q for its id: %v", field, err)
	}
	var id string
	var number json.Number
	switch value := object[field]; {
	case value == nil:
		return "", store.Invalid("member has no field %q for its id", field)
	case json.Unmarshal(value, &id) == nil:
		return id, nil
	case json.Unmarshal(value, &number) == nil:
		return number.String(), nil
	}
	return "", store.Invalid("field %q of the member is no text or number, so it is no id", field)
}
