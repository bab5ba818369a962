package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

const (
	// maxLost is how many messages lost.lua searches for in one call, in all leases.
	maxLost = 4
	// maxSamples is how many ids an issue names.
	maxSamples = 3
	// largeBytes is the size of a queue's keys that is reported as large.
	largeBytes = 1 << 30
)

// checkedKeys are the subjects of check.lua, keys and one field of meta, in the order of repair: records first, because
// everything else reads them, and messages last, when the remaining index entries are correct. The number is a level of
// bucket_counts; each is the sum of the next.
var checkedKeys = []string{"meta", "records", "due", "dead", "bucket_starts", "buckets", "bucket_counts 6",
	"bucket_counts 5", "bucket_counts 4", "bucket_counts 3", "bucket_counts 2", "bucket_counts 1", "packed_messages",
	"leases", "lease_deadlines", "groups", "messages"}

// checkedLanes are the subjects of check_lanes.lua.
var checkedLanes = []string{"due", "lanes", "turns", "turns_high", "turns_low", "rests", "key_states", "key_flows",
	"holders", "halted"}

// issueKind is a kind of issue that the scripts report.
type issueKind struct {
	check      string
	severity   store.Severity
	text       string // follows the count
	repairText string // the effect of a repair
}

var issueKinds = map[string]issueKind{
	"no format": {"format", store.SeverityError,
		"queue has messages but no recorded format, so claims return nothing", "records the format"},
	"record unreadable": {"records", store.SeverityError,
		"records of attempts cannot be read, so claims fail",
		"removes them; the attempts of their messages start over"},
	"tombstone with message": {"records", store.SeverityError,
		"live messages have the record of a cancelled one", "resets their attempts"},
	"successor of no message": {"records", store.SeverityError,
		"messages are recorded to follow leased ones and are due or dead, so they come again after their ack",
		"removes these records"},
	"original without successor": {"records", store.SeverityNote,
		"held messages are kept for a successor that does not exist", "removes them"},
	"record without message": {"records", store.SeverityNote,
		"records have no message", "removes them"},
	"due without message": {"entries", store.SeverityError,
		"entries of the due index have no message and are claimed again and again", "removes the entries"},
	"dead without message": {"entries", store.SeverityError,
		"entries of the dead index have no message", "removes the entries"},
	"deadline without lease": {"leases", store.SeverityWarning,
		"deadlines have no lease", "removes them"},
	"due and dead": {"states", store.SeverityError,
		"messages are both due and dead", "leaves them due"},
	"leased and elsewhere": {"states", store.SeverityError,
		"messages are leased and also due or dead", "removes them from the lease"},
	"dead without reason": {"records", store.SeverityWarning,
		"dead messages have no reason", "records that the reason was lost"},
	"lease of no message": {"leases", store.SeverityError,
		"lines of leases have no message", "removes the lines"},
	"lease without messages": {"leases", store.SeverityWarning,
		"leases are empty", "removes them"},
	"lease without deadline": {"leases", store.SeverityError,
		"leases have no deadline, so their messages are never delivered again",
		"ends them now, which counts as an attempt"},
	"lease unreadable": {"leases", store.SeverityError,
		"leases cannot be read", "ends them and makes their messages ready"},
	"max_envelope_bytes too small": {"meta", store.SeverityWarning,
		"messages are longer than the recorded maximum, so calls may be larger than they should be",
		"corrects the maximum"},
	"inspect_envelopes missing": {"meta", store.SeverityError,
		"messages have their own attempts or expiry, which claims ignore", "makes claims inspect them"},
	"retention not possible": {"meta", store.SeverityError,
		"limits of the dead messages to keep are no possible numbers, so claims fail or remove too many",
		"removes these limits, so that all dead messages are kept; set them again"},
	"packed without message": {"entries", store.SeverityError,
		"entries of buckets of messages due far ahead have no message", "removes the entries"},
	"packed and elsewhere": {"states", store.SeverityError,
		"messages are in a bucket and also due, dead or in the bucket again", "removes them from the bucket"},
	"packed but not found by id": {"buckets", store.SeverityError,
		"messages are in a bucket that their id does not lead to, so they cannot be cancelled",
		"moves them to the due index"},
	"packed in wrong bucket": {"buckets", store.SeverityError,
		"messages are in a bucket for other due times, so they may be late", "moves them to the due index"},
	"bucket unreadable": {"buckets", store.SeverityError,
		"buckets have unreadable lines", "removes the lines and makes their messages ready"},
	"bucket not indexed": {"buckets", store.SeverityError,
		"buckets are missing from the index of buckets or have a wrong start, so their messages are late or never " +
			"delivered",
		"moves their messages to the due index"},
	"bucket without messages": {"buckets", store.SeverityWarning,
		"buckets are empty", "removes them"},
	"indexed bucket missing": {"buckets", store.SeverityError,
		"entries of the index of buckets have no bucket", "removes them"},
	"wrong packed count": {"buckets", store.SeverityError,
		"recorded number of messages due far ahead is wrong, so counts are wrong or the messages are not found",
		"counts them again"},
	"group entry without message": {"groups", store.SeverityWarning,
		"entries of the index of groups have no message", "removes the entries"},
	"message not in its group": {"groups", store.SeverityError,
		"messages are missing from the index of groups or in it under another group, so that calls for a group miss " +
			"them",
		"corrects the index"},
	"wrong leased count": {"flow", store.SeverityError,
		"recorded number of messages that count against the concurrency is wrong, so too few or too many are claimed",
		"counts them again"},
	"wrong leased count of key": {"flow", store.SeverityError,
		"keys have a wrong number of messages that count against their concurrency, so too few or too many are claimed",
		"counts them again"},
	"turns in a queue without": {"flow", store.SeverityWarning,
		"queue has the state of keys, which do not take turns in it", "removes the state"},
	"sorted without lane": {"flow", store.SeverityError,
		"messages are sorted and missing from the lane of their key, so they are never delivered",
		"has the next claims sort them again"},
	"lane unreadable": {"flow", store.SeverityError, "entries of lanes cannot be read", "removes them"},
	"key without turn": {"flow", store.SeverityError,
		"keys have messages and no turn, so these are never delivered", "gives the keys turns"},
	"key waits twice": {"flow", store.SeverityError,
		"keys are among those that may start and those that may not", "lets the keys start"},
	"key waits for a free slot": {"flow", store.SeverityError,
		"keys wait for a slot although one is free", "gives the keys turns"},
	"state of key unreadable": {"flow", store.SeverityError,
		"states of keys cannot be read", "removes them; the keys begin with a full burst"},
	"state of key kept": {"flow", store.SeverityNote,
		"states of keys are kept although nothing of the keys is left", "forgets them"},
	"hold without order": {"flow", store.SeverityWarning,
		"keys without an order are held by messages", "has the next claims end the holds"},
	"wrong holder": {"flow", store.SeverityError,
		"keys wait for a message that cannot hold them, or not in its state", "corrects or ends the holds"},
	"hold not indexed": {"flow", store.SeverityError,
		"messages hold keys and are missing from the index of holders or of halted keys, so the holds do not end with " +
			"them",
		"adds them to the indexes"},
	"index of no hold": {"flow", store.SeverityError,
		"entries of the index of holders or of halted keys have no hold", "removes the entries"},
	"limits of key unreadable": {"flow", store.SeverityError,
		"limits of single keys cannot be read", "removes them, so that the limits of all keys apply; set them again"},
	"lost": {"lost", store.SeverityError,
		"messages are in no state, so they are never delivered", "makes them ready"},
}

// queueCheck collects the issues of one queue.
type queueCheck struct {
	*checkRun
	name      string
	found     map[string]*occurrences
	order     []string
	unchecked int // messages that may be lost, but too many are leased to be sure
}

type occurrences struct {
	count int64
	ids   []string
}

func (x *checkRun) queue(ctx context.Context, name string) error {
	q := &queueCheck{checkRun: x, name: name, found: map[string]*occurrences{}}
	sound, err := q.types(ctx)
	if err != nil || !sound {
		return err
	}
	if known, err := q.format(ctx); err != nil || !known {
		return err
	}
	for _, key := range checkedKeys {
		if err := q.pages(ctx, key); err != nil {
			return err
		}
	}
	for _, key := range checkedLanes {
		err := q.scan(func(cursor string) (any, error) {
			return q.s.query(ctx, "check_lanes", q.name, key, cursor, q.repair)
		}, func([]any) error { return nil })
		if err != nil {
			return err
		}
	}
	if err := q.recount(ctx); err != nil {
		return err
	}
	return q.summary(ctx)
}

// recount compares how many messages count against the concurrency of the queue with its leases.
func (q *queueCheck) recount(ctx context.Context) error {
	reply, err := q.s.query(ctx, "recount", q.name, q.repair)
	if err != nil {
		return err
	}
	if counts, ok := reply.([]any); !ok {
		q.report(store.CheckResult{Severity: store.SeverityNote, Check: "flow", Queue: q.name,
			Text:   "too many messages are leased to count those that count against the concurrency",
			Advice: "check again when fewer are leased"})
	} else {
		if counts[0] != counts[1] {
			q.add("wrong leased count", "")
		}
		for _, key := range texts(counts[2]) {
			q.add("wrong leased count of key", key)
		}
	}
	return nil
}

// types checks the types of the keys. If one is wrong, the rest of the queue cannot be checked.
func (q *queueCheck) types(ctx context.Context) (sound bool, err error) {
	want := map[string]string{"due": "zset", "messages": "hash", "leases": "hash", "lease_deadlines": "zset",
		"records": "hash", "dead": "zset", "dedup": "zset", "meta": "hash", "sessions": "hash",
		"old_sessions": "hash", "buckets": "hash", "bucket_starts": "zset", "bucket_counts": "hash", "wake": "zset",
		"groups": "zset", "lanes": "zset", "key_states": "hash", "turns": "zset", "rests": "zset",
		"old_rests": "zset", "forget": "zset", "key_flows": "hash", "holders": "hash", "halted": "zset",
		"turns_high": "zset", "turns_low": "zset",
		"properties": "hash", "activity": "hash", "once": "hash", "old_once": "hash", "outbox": "hash"}
	sound = true
	for _, name := range allKeyNames {
		key := q.s.keys.key(q.name, name)
		kind, err := q.s.rdb.Type(ctx, key).Result()
		if err != nil {
			return false, err
		}
		if kind != "none" && kind != want[name] {
			sound = false
			q.report(store.CheckResult{Severity: store.SeverityError, Check: "types", Queue: q.name, Count: 1,
				Text: fmt.Sprintf("key %s is a %s and should be a %s; the rest of the queue was not checked", key, kind,
					want[name]),
				Advice: "another program wrote it: find out which, save valuable data, delete that key (RENAME " +
					"keeps it) and check with repair"})
		}
	}
	return sound, nil
}

func (q *queueCheck) format(ctx context.Context) (known bool, err error) {
	format, err := q.s.rdb.HGet(ctx, q.s.keys.key(q.name, "meta"), "format").Result()
	if err != nil && err != redis.Nil {
		return false, err
	}
	switch {
	case format == "" && isSubQueue(q.name):
		return false, q.missing(ctx)
	case format == signFormat:
		if !isSubQueue(q.name) {
			q.report(store.CheckResult{Severity: store.SeverityOK, Check: "queue", Queue: q.name,
				Text: "the queue has shards, which are checked by themselves"})
		}
		return false, nil
	}
	if format != "" && !knownFormat(format) {
		of, advice := formatAdvice(format)
		q.report(store.CheckResult{Severity: store.SeverityError, Check: "format", Queue: q.name,
			Text: fmt.Sprintf("the queue has %s; it was not checked", of), Advice: advice})
		return false, nil
	}
	return true, nil
}

// missing reports a sub-queue that does not exist and has messages.
func (q *queueCheck) missing(ctx context.Context) error {
	n, err := q.s.rdb.HLen(ctx, q.s.keys.key(q.name, "messages")).Result()
	if err == nil && n > 0 {
		q.report(store.CheckResult{Severity: store.SeverityError, Check: "format", Queue: q.name, Count: n,
			Text:   fmt.Sprintf("%d messages are in a shard that does not exist, so they are never delivered", n),
			Advice: "find out who deleted the key " + q.s.keys.key(q.name, "meta") + ", and save the messages"})
	}
	return err
}

// pages runs check.lua over one key.
func (q *queueCheck) pages(ctx context.Context, key string) error {
	var stateless []string
	key, level, _ := strings.Cut(key, " ")
	err := q.scan(func(cursor string) (any, error) {
		return q.s.query(ctx, "check", q.name, key, cursor, q.repair, level)
	}, func(rest []any) error {
		stateless = append(stateless, texts(rest[0])...)
		if len(stateless) < 10*store.MaxBatch {
			return nil
		}
		ids := stateless
		stateless = nil
		return q.lost(ctx, ids)
	})
	if err != nil {
		return err
	}
	return q.lost(ctx, stateless)
}

// scan makes the calls that check one key, a part from a cursor at a time, and records the faults that they find. rest
// is called with the elements of each reply behind the cursor and the faults.
func (q *queueCheck) scan(part func(cursor string) (any, error), rest func([]any) error) error {
	for cursor := "0"; ; {
		reply, err := part(cursor)
		if err != nil {
			return err
		}
		r := reply.([]any)
		for issue := range slices.Chunk(texts(r[1]), 2) {
			q.add(issue[0], issue[1])
		}
		if err := rest(r[2:]); err != nil {
			return err
		}
		if cursor = r[0].(string); cursor == "0" {
			return nil
		}
	}
}

// lost takes messages that are neither due nor packed nor dead, and finds the ones that no lease lists. Usually all of
// them are leased, and a search of the leases in short calls finds them. A message that the search misses may have been
// claimed in between, so lost.lua then looks for it in all leases at once, unless the leases are too large for that.
func (q *queueCheck) lost(ctx context.Context, ids []string) error {
	for some := range slices.Chunk(ids, store.MaxBatch) {
		missed, err := q.s.notLeased(ctx, q.name, some)
		if err != nil {
			return err
		}
		for part := range slices.Chunk(missed, maxLost) {
			reply, err := q.s.query(ctx, "lost", q.name, anys([]any{q.repair}, part)...)
			if err != nil {
				return err
			}
			if reply == any(int64(replyBusy)) {
				q.unchecked += len(part)
				continue
			}
			for _, id := range texts(reply.([]any)[0]) {
				q.add("lost", id)
			}
		}
	}
	return nil
}

func (q *queueCheck) add(what, id string) {
	t := q.found[what]
	if t == nil {
		t = &occurrences{}
		q.found[what] = t
		q.order = append(q.order, what)
	}
	t.count++
	if id != "" && len(t.ids) < maxSamples && !slices.Contains(t.ids, id) {
		t.ids = append(t.ids, id)
	}
}

// summary reports the issues found and the size of the queue.
func (q *queueCheck) summary(ctx context.Context) error {
	for _, what := range q.order {
		t, f := q.found[what], issueKinds[what]
		text := strconv.FormatInt(t.count, 10) + " " + f.text
		if len(t.ids) > 0 {
			text += fmt.Sprintf(" (such as %q)", t.ids)
		}
		result := store.CheckResult{Severity: f.severity, Check: f.check, Queue: q.name, Count: t.count, Text: text,
			Repaired: q.repair, Advice: "check with repair, which " + f.repairText}
		if q.repair {
			result.Advice = "the repair " + f.repairText
		}
		q.report(result)
	}
	if q.unchecked > 0 {
		q.report(store.CheckResult{Severity: store.SeverityNote, Check: "lost", Queue: q.name,
			Count:  int64(q.unchecked),
			Text:   fmt.Sprintf("%d messages seem to be in no state; too many are leased to be sure", q.unchecked),
			Advice: "check again when fewer are leased"})
	}
	st, err := q.s.Stats(ctx, q.name)
	if err != nil {
		return err
	}
	bytes, err := q.memory(ctx)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d scheduled, %d ready, %d leased, %d dead", st.Scheduled, st.Ready, st.Leased, st.Dead)
	if st.Paused {
		text += "; paused"
	}
	if bytes > 0 {
		text += fmt.Sprintf("; about %.1f MiB in memory", float64(bytes)/(1<<20))
	}
	severity, advice := store.SeverityOK, ""
	if bytes >= largeBytes {
		severity = store.SeverityNote
		advice = "keys of this size take seconds to move to another Cluster node and to copy to a new replica"
	}
	q.report(store.CheckResult{Severity: severity, Check: "queue", Queue: q.name, Text: text, Advice: advice,
		Count: st.Scheduled + st.Ready + st.Leased + st.Dead})
	return nil
}

// memory estimates the memory of the queue's keys by sampling. It returns 0 if the server does not report it.
func (q *queueCheck) memory(ctx context.Context) (int64, error) {
	var sum int64
	for _, name := range allKeyNames {
		bytes, err := q.s.rdb.MemoryUsage(ctx, q.s.keys.key(q.name, name), 20).Result()
		switch {
		case err == redis.Nil:
		case err != nil && (forbidden(err) || strings.HasPrefix(err.Error(), "ERR")):
			return 0, nil
		case err != nil:
			return 0, err
		}
		sum += bytes
	}
	return sum, nil
}
