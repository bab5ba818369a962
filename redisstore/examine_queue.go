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
	// maxHeld is how many leased messages lost.lua looks through in one call: about 20 ms of the server's time.
	maxHeld = 100_000
	// maxCounted is how many buckets examine.lua counts in one call: 40 to 60 ms of the server's time.
	maxCounted = 25_000
	// samples is how many ids a finding names.
	samples = 3
	// bigBytes is from when on a queue's key is worth a word.
	bigBytes = 1 << 30
)

// examined are the keys that examine.lua takes, in the order in which they are mended: records first, since all
// else reads them, and messages last, when the index entries that are left are right.
var examined = []string{"meta", "tries", "due", "dead", "fars", "far", "total", "lease", "expiry", "msg"}

// flaw is one thing that the scripts find.
type flaw struct {
	check    string
	severity store.Severity
	text     string // what follows the number
	mending  string
}

var flaws = map[string]flaw{
	"no format": {"format", store.SeverityError,
		"queue has messages and no note of its format, so claims give nothing", "the note is written"},
	"record unreadable": {"records", store.SeverityError,
		"records of attempts cannot be read, and claims fail on them", "they are removed, and their messages' attempts begin anew"},
	"record of no attempt": {"records", store.SeverityError,
		"living messages have the record of a cancelled one", "their attempts begin anew"},
	"record without message": {"records", store.SeverityNote,
		"records are of no message", "they are removed"},
	"due without message": {"orphans", store.SeverityError,
		"entries of the due index have no message, and are claimed again and again", "the entries are removed"},
	"dead without message": {"orphans", store.SeverityError,
		"entries of the dead index have no message", "the entries are removed"},
	"deadline without lease": {"leases", store.SeverityWarning,
		"deadlines are of no lease", "they are removed"},
	"due and dead": {"states", store.SeverityError,
		"messages are due and dead at once", "they stay due"},
	"leased and elsewhere": {"states", store.SeverityError,
		"messages are leased, and due or dead as well", "the lease lets go of them"},
	"dead without reason": {"records", store.SeverityWarning,
		"dead messages have no reason", "they get one that says so"},
	"lease of no message": {"leases", store.SeverityError,
		"lines of leases are of no message", "the lines are removed"},
	"lease without messages": {"leases", store.SeverityWarning,
		"leases hold nothing", "they are removed"},
	"lease without deadline": {"leases", store.SeverityError,
		"leases have no deadline, so what they hold never comes again", "they end now, which counts as an attempt"},
	"lease unreadable": {"leases", store.SeverityError,
		"leases cannot be read", "they end, and their messages are ready"},
	"longer than noted": {"meta", store.SeverityWarning,
		"messages are longer than the queue's note of its longest, so calls may be larger than they should", "the note is corrected"},
	"more unusual than noted": {"meta", store.SeverityError,
		"messages have attempts or an expiry of their own that claims do not look for", "the note that makes them look is written"},
	"far without message": {"orphans", store.SeverityError,
		"messages due far ahead are in a bucket and nowhere else", "they leave it"},
	"far and elsewhere": {"states", store.SeverityError,
		"messages are in a bucket, and due, dead or in it once more as well", "they leave the bucket"},
	"far and not known to be": {"far", store.SeverityError,
		"messages are in a bucket that is not found by their id, so they cannot be cancelled", "they leave it and stay scheduled"},
	"far in another bucket": {"far", store.SeverityError,
		"messages are in a bucket of other due times, so they may come late", "they leave it and stay scheduled"},
	"bucket unreadable": {"far", store.SeverityError,
		"buckets have lines that cannot be read", "the lines are removed, and their messages are ready"},
	"bucket without begin": {"far", store.SeverityError,
		"buckets are not in the index of when buckets begin, or at a wrong time, so what is in them comes late or never", "their messages leave them and stay scheduled"},
	"bucket without messages": {"far", store.SeverityWarning,
		"buckets are empty", "they are removed"},
	"begin without bucket": {"far", store.SeverityError,
		"entries of the index of when buckets begin are of no bucket", "they are removed"},
	"another number is far": {"far", store.SeverityError,
		"number of messages due far ahead is noted wrongly, so counts are wrong or the messages are not looked for", "it is counted anew"},
	"lost": {"lost", store.SeverityError,
		"messages are in no state, so they are never delivered", "they are ready"},
}

// queueExamination gathers what is found in one queue.
type queueExamination struct {
	*examination
	name  string
	found map[string]*tally
	order []string
	looks int  // leased messages that could not be looked through
	total bool // there are too many buckets to be counted
}

type tally struct {
	count int64
	ids   []string
}

func (x *examination) queue(ctx context.Context, name string) error {
	q := &queueExamination{examination: x, name: name, found: map[string]*tally{}}
	sound, err := q.types(ctx)
	if err != nil || !sound {
		return err
	}
	if known, err := q.format(ctx); err != nil || !known {
		return err
	}
	for _, key := range examined {
		if err := q.pages(ctx, key); err != nil {
			return err
		}
	}
	return q.summary(ctx)
}

// types checks the keys' types; a wrong one leaves nothing to examine.
func (q *queueExamination) types(ctx context.Context) (sound bool, err error) {
	want := map[string]string{"due": "zset", "msg": "hash", "lease": "hash", "expiry": "zset", "tries": "hash",
		"dead": "zset", "done": "zset", "meta": "hash", "calls": "zset",
		"far": "hash", "fars": "zset", "wake": "zset"}
	sound = true
	for i, key := range q.s.keys.of(q.name).args {
		kind, err := q.s.rdb.Type(ctx, key.(string)).Result()
		if err != nil {
			return false, err
		}
		if kind != "none" && kind != want[keyNames[i]] {
			sound = false
			q.report(store.Finding{Severity: store.SeverityError, Check: "types", Queue: q.name, Count: 1,
				Text: fmt.Sprintf("key %s is a %s and should be a %s; the rest of the queue was not examined", key, kind, want[keyNames[i]]),
				Advice: "another program wrote it: find out which, save what is of value, delete that key (RENAME keeps it) and " +
					"examine with repair"})
		}
	}
	return sound, nil
}

func (q *queueExamination) format(ctx context.Context) (known bool, err error) {
	meta := q.s.keys.of(q.name).args[slices.Index(keyNames[:], "meta")].(string)
	format, err := q.s.rdb.HGet(ctx, meta, "format").Result()
	if err != nil && err != redis.Nil {
		return false, err
	}
	if format != "" && format != layoutFormat {
		q.report(store.Finding{Severity: store.SeverityError, Check: "format", Queue: q.name,
			Text:   fmt.Sprintf("the queue has format %s and this version of Later knows %s; it was not examined", format, layoutFormat),
			Advice: "use the version of Later that made it, or drain it with that one first"})
		return false, nil
	}
	return true, nil
}

// pages runs examine.lua over one key.
func (q *queueExamination) pages(ctx context.Context, key string) error {
	mend := "0"
	if q.mend {
		mend = "1"
	}
	var stateless []string
	for cursor := "0"; ; {
		c := q.s.newCall(&q.s.scripts.examine, q.name, 3)
		c.add(key, cursor, mend)
		reply, err := q.s.run(ctx, q.name, c)
		if err != nil {
			return err
		}
		if reply == any(int64(replyBusy)) {
			q.total = true
			return nil
		}
		r := reply.([]any)
		found := r[1].([]any)
		for i := 0; i+1 < len(found); i += 2 {
			q.add(found[i].(string), found[i+1].(string))
		}
		for _, id := range r[2].([]any) {
			stateless = append(stateless, id.(string))
		}
		if len(stateless) >= 10*store.MaxBatch {
			if err := q.lost(ctx, stateless); err != nil {
				return err
			}
			stateless = stateless[:0]
		}
		if cursor = r[0].(string); cursor == "0" {
			return q.lost(ctx, stateless)
		}
	}
}

// lost runs lost.lua over messages that are neither due nor far nor dead, which most of the time means leased.
func (q *queueExamination) lost(ctx context.Context, ids []string) error {
	mend := "0"
	if q.mend {
		mend = "1"
	}
	for part := range slices.Chunk(ids, store.MaxBatch) {
		c := q.s.newCall(&q.s.scripts.lost, q.name, 1+len(part))
		c.add(mend)
		for i := range part {
			c.add(&part[i])
		}
		reply, err := q.s.run(ctx, q.name, c)
		if err != nil {
			return err
		}
		if reply == any(int64(replyBusy)) {
			q.looks += len(part)
			continue
		}
		for _, id := range reply.([]any)[0].([]any) {
			q.add("lost", id.(string))
		}
	}
	return nil
}

func (q *queueExamination) add(what, id string) {
	t := q.found[what]
	if t == nil {
		t = &tally{}
		q.found[what] = t
		q.order = append(q.order, what)
	}
	t.count++
	if id != "" && len(t.ids) < samples && !slices.Contains(t.ids, id) {
		t.ids = append(t.ids, id)
	}
}

// summary reports what was found, and what the queue holds.
func (q *queueExamination) summary(ctx context.Context) error {
	for _, what := range q.order {
		t, f := q.found[what], flaws[what]
		text := strconv.FormatInt(t.count, 10) + " " + f.text
		if len(t.ids) > 0 {
			text += fmt.Sprintf(" (such as %q)", t.ids)
		}
		finding := store.Finding{Severity: f.severity, Check: f.check, Queue: q.name, Count: t.count, Text: text, Repaired: q.mend,
			Advice: "examine with repair: " + f.mending}
		if q.mend {
			finding.Advice = f.mending
		}
		q.report(finding)
	}
	if q.looks > 0 {
		q.report(store.Finding{Severity: store.SeverityNote, Check: "lost", Queue: q.name, Count: int64(q.looks),
			Text:   fmt.Sprintf("more than %d messages are leased, so messages in no state were not looked for", maxHeld),
			Advice: "examine again when fewer are leased"})
	}
	if q.total {
		q.report(store.Finding{Severity: store.SeverityNote, Check: "far", Queue: q.name,
			Text:   fmt.Sprintf("more than %d buckets are of messages due far ahead, so the number of these was not compared", maxCounted),
			Advice: "examine again when fewer are scheduled"})
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
	if bytes >= bigBytes {
		severity, advice = store.SeverityNote, "keys of this size take seconds to move to another node of a Cluster, and to copy to a new replica"
	}
	q.report(store.Finding{Severity: severity, Check: "queue", Queue: q.name, Text: text, Advice: advice,
		Count: st.Scheduled + st.Ready + st.Leased + st.Dead})
	return nil
}

// memory estimates what the queue's keys take, by samples; 0 where the server does not tell.
func (q *queueExamination) memory(ctx context.Context) (int64, error) {
	var sum int64
	for _, key := range q.s.keys.of(q.name).args {
		bytes, err := q.s.rdb.MemoryUsage(ctx, key.(string), 20).Result()
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
