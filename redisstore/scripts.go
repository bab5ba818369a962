package redisstore

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// Negative replies, the same in every script.
const (
	replyUnregistered = -1 // the queue does not exist and its name may not be registered
	replyNewer        = -2 // the queue has a format that this version does not read
	replyBusy         = -3 // there is too much to read in one call
	replyUncommon     = -4 // the script handles only the common case, and did nothing
	replyConflict     = -5 // a condition is not met
	replyNotUrgent    = -6 // a message has an urgency, and the flow of the queue has none
	replyGone         = -7 // the sub-queue does not exist
)

// layoutFormat is the version of the key layout, stored in each queue's meta. Every change of stored data raises it.
// Scripts raise previousFormat to it; see lua/_format.lua. A queue with a flow has flowFormat, so that programs that do
// not know flows, or no order of keys or urgency, refuse it instead of ignoring its limits. No version was released
// that wrote 12, 13 or 14.
const (
	layoutFormat   = 11
	previousFormat = 10
	flowFormat     = 15
)

// signFormat is the format of a name that has a sign in place of a queue.
const signFormat = "sign"

// knownFormat reports whether this version reads queues of a format.
func knownFormat(format string) bool {
	return slices.Contains([]string{strconv.Itoa(previousFormat), strconv.Itoa(layoutFormat), strconv.Itoa(flowFormat)},
		format)
}

// packAfter is how far ahead a message is due at least to be packed. It is less than an hour, a common delay.
const packAfter = 59 * time.Minute

// luaConstants are the constants that scripts refer to by name. BUCKET_WIDEST_MS is less
// than PACK_AFTER_MS, so that no bucket has started when a send packs into it.
var luaConstants = map[string]string{
	"FORMAT":              strconv.Quote(strconv.Itoa(layoutFormat)),
	"PREVIOUS_FORMAT":     strconv.Quote(strconv.Itoa(previousFormat)),
	"PLAIN_FORMAT":        strconv.Quote(strconv.Itoa(layoutFormat)),
	"FLOW_FORMAT":         strconv.Quote(strconv.Itoa(flowFormat)),
	"UNREGISTERED":        strconv.Itoa(replyUnregistered),
	"NEWER":               strconv.Itoa(replyNewer),
	"GONE":                strconv.Itoa(replyGone),
	"SIGN":                strconv.Quote(signFormat),
	"SIGN_PROPERTY":       strconv.Quote(signProperty),
	"MAX_MOVED":           "1000", // processes that learn that their queue has moved
	"MAX_SCANNED_IDS":     strconv.Itoa(maxScannedIDs),
	"MAX_DEPARTURE_BYTES": strconv.Itoa(store.MaxDepartureBytes),
	"UNCOMMON":            strconv.Itoa(replyUncommon),
	"CONFLICT":            strconv.Itoa(replyConflict),
	"NOT_URGENT":          strconv.Itoa(replyNotUrgent),
	"UNMET":               strconv.Quote("unmet"), // recorded of a request in place of CONFLICT
	"QUEUE_KEYS":          strconv.Itoa(len(keyNames)),
	"FLOW_QUEUE_KEYS":     strconv.Itoa(len(keyNames) + len(flowKeyNames)),
	"MAX_HEADERS":         strconv.Itoa(store.MaxHeaders),
	"MAX_BATCH":           strconv.Itoa(store.MaxBatch),
	"MAX_BY_ID":           strconv.Itoa(maxByID),
	"MAX_DROPPED":         "200",   // dead messages that a claim drops
	"MAX_HELD_BACK":       "20",    // messages that a claim looks at while limits hold them back
	"HELD_BACK_BYTES":     "32768", // of these, about, or one message
	"MAX_PURGED_LEASED":   "2000",  // messages that still count after a purge of everything
	"MAX_PURGED_KEYS":     "2000",  // keys that a purge of all takes out of their turns, or whose rates it keeps
	"MAX_UNSORTED":        "500",   // sorted messages that one call makes plain ready ones
	"MAX_UNHELD":          "500",   // holds that one call ends when keys have no order any more
	"MAX_RECOUNTED":       "1000",  // keys with a wrong number of messages that one repair corrects
	"MAX_KEY_FLOWS":       strconv.Itoa(store.MaxKeyFlows),
	"MAX_KEYS_LOOKED":     "5000",    // entries of lanes that one call looks at to count them, about
	"MAX_LANE_LOOKED":     "100",     // of these, of each key
	"MAX_KEYS_READ":       "1000",    // keys that one call looks at, also if they have no messages any more
	"MAX_PROMOTED":        "400",     // messages of overdue buckets that a claim promotes, about
	"CLAIM_BYTES":         "1310720", // of messages that a claim returns
	"RECORD_BYTES":        "262144",  // of records of these messages, about
	"COLLAPSE_BYTES":      strconv.Itoa(collapseBytes),
	"MAX_PROPERTIES":      strconv.Itoa(store.MaxProperties),
	"MAX_DEAD_AGE_MS":     strconv.FormatInt(store.MaxDelay.Milliseconds(), 10),
	"MAX_DEAD_COUNT":      strconv.FormatInt(store.MaxDeadCount, 10),
	"MAX_FAILURES":        strconv.Itoa(store.MaxFailures),
	"RECORD_HEAD":         "48",                                  // bytes that hold the first fields of a record
	"PAGE_BYTES":          strconv.Itoa(store.MaxBatchBytes / 4), // of messages that a call reads to return them
	"FORWARD_WORK":        "2000",                                // µs of reading in a forward; it writes for as long
	"MAX_LOOKED":          "2000",                                // messages of leases that an extend looks at, about
	"MAX_READ":            "1048576",                             // of messages that a call reads and does not return
	"SEARCH_BYTES":        "4096",                                // read in the time of a search for a packed message
	"MAX_SCANNED":         "524288",                              // of leases that a call searches, about
	"REAP_LEASES":         "100",
	"DEFAULT_ATTEMPTS":    strconv.Itoa(store.DefaultMaxAttempts),
	"UNCOUNTED_LEASE":     strconv.Quote(store.UncountedLease),
	"LEASE_EXPIRED_TEXT":  strconv.Quote(store.LeaseExpiredText),
	"EXPIRED_TEXT":        strconv.Quote(store.ExpiredText),
	"UNREADABLE_TEXT":     strconv.Quote(store.UnreadableText),
	"REASON_LOST_TEXT":    strconv.Quote("the reason was lost; a repair put this text in its place"),
	"PLACEHOLDER":         strconv.Quote("longer than hash-max-listpack-value (64), so that lookups do not search"),
	"JOIN":                "0.99999904632568359375", // 1 - 2^-20, as in internal/turns
	"NORMAL_EVERY":        strconv.Itoa(store.NormalEvery),
	"LOW_EVERY":           strconv.Itoa(store.LowEvery),
	"FEW_RECORDS":         "32",
	"FEW_MESSAGES":        "4",
	"FEW_READY":           "8",
	"FEW_SESSIONS":        "16", // which SESSIONS keeps in the compact encoding of a small hash
	"ONCE_WINDOW_MS":      strconv.FormatInt(store.OnceWindow.Milliseconds(), 10),
	"SESSION_TURN_MS":     strconv.FormatInt(rememberRequests.Milliseconds(), 10),
	"SESSIONS_END_MS":     strconv.FormatInt((2*rememberRequests + lateTurn).Milliseconds(), 10),
	"BUSY":                strconv.Itoa(replyBusy),
	"MAX_LEASE_BYTES":     "1572864",                       // of leases of 100,000 messages, about
	"IDLE":                "2251799813685248",              // 2^51: later than every due time; with µs since 1970 < 2^53
	"SORTED":              "1125899906842624",              // 2^50: added to the due times of sorted messages
	"FULL":                "9007199254740992",              // 2^53: later than every time
	"LEASED_ONLY":         strconv.Quote("\t0\t0\t0\t0\t"), // rest of the state of a key without limits that none holds
	"CLAIM_TIME_US":       "1000000",                       // after which a claim records its time
	"MAX_SORTED":          "250",                           // messages that a claim sorts
	"MAX_PLACED":          "250",                           // keys that a claim looks at, once for each reason
	"MAX_ROUNDS":          "20",                            // in which a claim of a queue with urgency picks messages
	"MAX_STALE":           "500",                           // entries of lanes that a claim drops, about
	"MAX_FORGOTTEN":       "300",                           // keys that a claim looks at to forget them: more than it adds
	"MAX_NOTIFIED":        "20",                            // processes that a call tries to notify
	"BROKEN_AFTER_MS":     strconv.FormatInt(brokenAfter.Milliseconds(), 10),
	"LISTED_MS":           strconv.FormatInt(listedFor.Milliseconds(), 10),
	"DEAD_AFTER_MS":       strconv.FormatInt(deadAfter.Milliseconds(), 10),
	"FORGET_PROCESS_MS":   strconv.FormatInt(forgetProcess.Milliseconds(), 10),
	"LARGE_HASH":          "1048576",                // messages; smaller tables are doubled quickly
	"PREFIX_BYTES":        strconv.Itoa(prefixSize), // of the value of a packed message, before its envelope
	"PACK_AFTER_MS":       strconv.FormatInt(packAfter.Milliseconds(), 10),
	"PROMOTE_LEAD_MS":     "60000",                      // how long before its start a bucket is emptied
	"BUCKET_BYTES":        "512",                        // maximum size of a bucket's text that takes more lines
	"CHUNK_BYTES":         "2048",                       // maximum size of a new bucket's text
	"BUCKET_LINE_BYTES":   "24.5",                       // of a line of class 0 with a generated id, at most
	"BUCKET_WIDEST_MS":    strconv.Itoa(widestBucket),   // width of class 0
	"BUCKET_CLASSES":      strconv.Itoa(bucketClasses),  // each a quarter of the last, at least 1 ms; max 16
	"COUNT_LEVELS":        strconv.Itoa(countLevels),    // levels of BUCKET_COUNTS
	"HISTOGRAM_STEP":      "25",                         // parts of a histogram that are read together
	"HISTOGRAM_WORK":      "1000",                       // µs of a histogram call, about
	"MAX_DUE_MS":          "8796093022208",              // in the year 2248, more than any due time
	"PACK_MAX_ENVELOPE":   "16384",                      // bytes of a packed envelope at most: a cancel has to read it
	"PACK_ONE_IN":         "128",                        // far sends alone until their process packs them, about
	"MAX_PACKED":          "160",                        // messages that one call packs; more, so that it catches up
	"PACK_BYTES":          "262144",                     // of messages that are packed later in one call
	"PACK_MAX_BUCKETS":    strconv.Itoa(store.MaxBatch), // buckets that a send reads at most, about
}

// script is one transition: lua/<name>.lua with its includes.
type script struct {
	name string
	body string
	sha  string
	id   any            // sha, as an argument without an allocation
	flow func() *script // its rendering for queues with a flow; nil if there is no other
	sub  func() *script // its rendering for sub-queues; nil if it is one, or if there is no other

	limits bool // it is the rendering for queues with a flow, which receives the keys of flowKeyNames
	short  bool // it handles a common case, see common.go
}

// scripts are the scripts of lua/ by name. Files with names that start with "_" are only included.
type scripts map[string]*script

// production returns the scripts that stores use. They are rendered when the first store needs them.
var production = sync.OnceValue(func() scripts { return loadScripts("", luaConstants) })

// forEveryQueue are scripts with a single rendering, with the parts for flows, which work on queues of every format.
var forEveryQueue = map[string]bool{"set_flow": true, "finish_flow": true, "set_key_flow": true, "resume": true,
	"recount": true, "create": true, "rename": true, "retire": true, "set_sign": true}

// serverTime is how scripts read the clock.
const serverTime = "redis.call('TIME')"

// loadScripts renders every script. A clock that is not empty replaces serverTime, so that tests can control time.
func loadScripts(clock string, constants map[string]string) scripts {
	files, err := luaFiles.ReadDir("lua")
	if err != nil {
		panic(err) // the files are embedded
	}
	plain := newRenderer(clock, constants, false, false)
	all := scripts{}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "_") {
			continue
		}
		name := strings.TrimSuffix(f.Name(), ".lua")
		of := func(r renderer, sub bool) *script {
			flow := sync.OnceValue(func() *script { return newRenderer(clock, constants, true, sub).script(name) })
			if forEveryQueue[name] {
				return flow()
			}
			sc := r.script(name)
			if keysOfCommon(name) == "" {
				sc.flow = flow
			}
			return sc
		}
		all[name] = of(plain, false)
		if keysOfCommon(name) == "" {
			all[name].sub = sync.OnceValue(func() *script { return of(newRenderer(clock, constants, false, true), true) })
		}
	}
	return all
}

// call is a script call under construction. args reserves space for the arguments before the script's own.
type call struct {
	script   *script      // the rendering that do calls first
	plain    *script      // its rendering for plain queues, or the only one
	queues   []*queueKeys // those that it works on; several in a script with one rendering for both kinds of queues
	flowArgs []any        // arguments that only that rendering takes, after all others
	common   *commonCall  // executed instead, unless it replies replyUncommon; nil for none
	few      commonCall   // what common points to
	args     []any
	session  *session // nil for the session of a store.Request, or none
	stamp    int      // index in args of the session and the request number, which follows
	repeated int      // index in args of the argument that is "1" in a repeated call, "2" after common; 0 for none

	confirmed *confirmation // only for a durable send
	safe      bool          // the call waits until a failover keeps what it read and wrote; see safely.go
	urgency   store.Urgency // of a message that is sent; see needUrgency
}

const callHead = 3 + len(keyNames) // EVALSHA, sha, number of keys, keys

// newCall returns a call of the named script with room for n arguments.
func (s *Store) newCall(name, queue string, n int) *call {
	keys := s.keys.of(queue)
	c := &call{plain: s.scripts[name], args: make([]any, 3, callHead+n), queues: keys.alone[:]}
	if keys.sub && c.plain.sub != nil {
		c.plain = c.plain.sub()
	}
	c.choose()
	c.args[0], c.args[1], c.args[2] = "evalsha", c.script.id, len(keyNames)
	c.args = append(c.args, keys.args...)
	return c
}

// newServerCall returns a call of a script with one key, which belongs to no queue.
func (s *Store) newServerCall(name, key string, args ...any) *call {
	sc := s.scripts[name]
	return &call{script: sc, plain: sc, args: append([]any{"evalsha", sc.id, 1, key}, args...)}
}

// addKey adds a key after the keys that every script receives. It comes before all other arguments.
func (c *call) addKey(key string) {
	c.args = append(c.args, key)
	c.args[2] = c.args[2].(int) + 1
}

// addQueue adds the keys of a further queue. It comes before all other arguments.
func (c *call) addQueue(keys *queueKeys) {
	c.args = append(c.args, keys.args...)
	c.queues = append(c.queues[:len(c.queues):len(c.queues)], keys)
}

func (c *call) add(args ...any) { c.args = append(c.args, args...) }

// request executes a call of the named script that changes a queue: the arguments follow the session and the number of
// the request.
func (s *Store) request(ctx context.Context, name, queue string, args ...any) (any, error) {
	c := s.newCall(name, queue, 2+len(args))
	defer s.sessions.release(s.stampRequest(ctx, c))
	c.add(args...)
	return s.run(ctx, queue, c)
}

// query executes a call of the named script that need not be known again.
func (s *Store) query(ctx context.Context, name, queue string, args ...any) (any, error) {
	c := s.newCall(name, queue, len(args))
	c.add(args...)
	return s.run(ctx, queue, c)
}

// anys returns texts as arguments, behind others.
func anys(args []any, texts []string) []any {
	args = slices.Grow(args, len(texts))
	for i := range texts {
		args = append(args, &texts[i])
	}
	return args
}

// stampOwn is stampRequest for a call that is not one of the store.Request in whose course it is made.
func (s *Store) stampOwn(c *call) *session { return s.stampRequest(context.Background(), c) }

// stampRequest adds the session and request number that identify the call when it is repeated, the first arguments of
// every script that takes them. They come from a store.Request, so that any process knows a repetition, or else from
// this process; then the caller must release the session after the call.
func (s *Store) stampRequest(ctx context.Context, c *call) *session {
	c.stamp = len(c.args)
	if r, ok := store.RequestOf(ctx); ok {
		c.add(requestPrefix+r.Session, r.Number)
		return nil
	}
	sess, number := s.sessions.acquire()
	c.add(&sess.name, number)
	c.session = sess
	return sess
}

// execute executes a script with the arguments of a call. If the server does not know the script, it sends the
// script's text.
func (s *Store) execute(ctx context.Context, sc *script, callArgs []any) (any, error) {
	callArgs[1] = sc.id
	reply, err := s.evaluate(ctx, sc, callArgs)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args := append([]any(nil), callArgs...)
		args[0], args[1] = "eval", sc.body
		reply, err = s.evaluate(ctx, sc, args)
	}
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// run executes a call, retrying until there is a reply, and handles the replies common to all scripts.
func (s *Store) run(ctx context.Context, queue string, c *call) (any, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	first := true
	var unknown error // of the last attempt that may have been executed
	reply, err := s.retry(ctx, func(ctx context.Context) (any, error) {
		if !first && c.repeated > 0 {
			if c.common != nil { // its script does not look whether the call was repeated, so this one has to say so
				c.args[c.repeated] = "2"
			} else if c.args[c.repeated] != "2" {
				c.args[c.repeated] = "1"
			}
		}
		if !first {
			c.common = nil
		}
		first = false
		reply, err := s.do(ctx, c)
		if err != nil && mayHaveExecuted(err) {
			unknown = err
		}
		return reply, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s on queue %q: %w", c.script.name, queue, err)
	}
	switch reply {
	case any(int64(replyNewer)):
		return nil, c.movedAfter(ctx, unknown, s.newerError(ctx, queue, c))
	case any(int64(replyGone)):
		return nil, c.movedAfter(ctx, unknown, &store.Moved{Name: queue})
	case any(int64(replyNotUrgent)):
		return nil, store.NoUrgency(queue, c.urgency)
	}
	return reply, nil
}

// formatError returns the error of a name with a format that this version does not read: a *store.Moved if it has a
// sign in place of a queue.
func (s *Store) formatError(ctx context.Context, queue string) error {
	format, sign, err := s.readFormat(ctx, queue)
	flows := s.scripts["claim"].flow != nil
	switch {
	case err != nil:
		return fmt.Errorf("queue %q has a format that this version of Later does not read, and reading it "+
			"failed: %w; %w", queue, err, store.ErrUnsupported)
	case format == signFormat, format == "" && isSubQueue(queue):
		return &store.Moved{Name: queue, Sign: sign}
	case format == "", knownFormat(format) && (flows || format != strconv.Itoa(flowFormat)):
		return fmt.Errorf("the format of queue %q has changed during the call, which changed nothing: try again: %w",
			queue, store.ErrUnavailable)
	}
	of, advice := formatAdvice(format)
	return fmt.Errorf("queue %q has %s: %s: %w", queue, of, advice, store.ErrUnsupported)
}

// readFormat returns the format and the sign at a name, "" for none.
func (s *Store) readFormat(ctx context.Context, queue string) (format, sign string, err error) {
	cmd := redis.NewSliceCmd(ctx, "hmget", s.keys.key(queue, "meta"), "format", "sign")
	if err := s.process(ctx, cmd); err != nil {
		return "", "", err
	}
	format, _ = cmd.Val()[0].(string)
	sign, _ = cmd.Val()[1].(string)
	return format, sign, nil
}

// formatAdvice says which version wrote a queue that this version does not read, and names the remedy.
func formatAdvice(format string) (of, advice string) {
	version, advice := "a newer", "use that version, or export the queue with it (later export) and import it with "+
		"this one (later import)"
	if n, err := strconv.Atoi(format); err == nil && n < flowFormat {
		version, advice = "an older", "export the queue with that version (later export), delete it with "+
			"that version, and import it with this one (later import)"
	}
	return fmt.Sprintf("format %s of %s version of Later, and this one reads formats %d, %d and %d", format, version,
		previousFormat, layoutFormat, flowFormat), advice
}
