package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// Negative replies, the same in every script.
const (
	replyUnregistered = -1 // the queue does not exist and its name may not be registered
	replyNewer        = -2 // the queue has another format
	replyBusy         = -3 // there is too much to read in one call
)

// layoutFormat is the version of the key layout, stored in each queue's meta.
const layoutFormat = "4"

// luaConstants are the constants that scripts refer to by name. PACK_AFTER_MS is 59 min, so that a delay of an hour is
// packed. BUCKET_WIDEST_MS is less, so that no bucket has started when a send packs into it.
var luaConstants = map[string]string{
	"FORMAT":              strconv.Quote(layoutFormat),
	"UNREGISTERED":        strconv.Itoa(replyUnregistered),
	"NEWER":               strconv.Itoa(replyNewer),
	"MAX_BATCH":           strconv.Itoa(store.MaxBatch),
	"MAX_BYTES":           strconv.Itoa(store.MaxBatchBytes),
	"REAP_LEASES":         "100",
	"DEFAULT_ATTEMPTS":    strconv.Itoa(store.DefaultMaxAttempts),
	"LEASE_EXPIRED_TEXT":  strconv.Quote(store.LeaseExpiredText),
	"EXPIRED_TEXT":        strconv.Quote(store.ExpiredText),
	"UNREADABLE_TEXT":     strconv.Quote(store.UnreadableText),
	"REASON_LOST_TEXT":    strconv.Quote("the reason was lost; a repair put this text in its place"),
	"KEEP_SESSIONS":       "1000", // of each queue, at least
	"BUSY":                strconv.Itoa(replyBusy),
	"MAX_LEASE_ENTRIES":   strconv.Itoa(maxLeaseEntries),
	"LARGE_HASH":          "1048576",                        // messages; smaller tables are doubled quickly
	"PACK_AFTER_MS":       "3540000",                        // sends due later than this are packed
	"PROMOTE_LEAD_MS":     "60000",                          // how long before its start a bucket is emptied
	"BUCKET_BYTES":        "512",                            // maximum size of a bucket's text
	"BUCKET_WIDEST_MS":    "1048576",                        // width of class 0
	"BUCKET_CLASSES":      "11",                             // each a quarter of the last; max 16: packed_value
	"PACK_MAX_ENVELOPE":   "16384",                          // bytes of a packed envelope at most: a cancel has to read it
	"CLASS_IMBALANCE":     "100",                            // full minus empty buckets, at which sends change class
	"PACK_MAX_BUCKETS":    strconv.Itoa(3 * store.MaxBatch), // buckets that a send reads at most, about
	"BUCKET_PAGE":         "500",                            // buckets counted per call
	"MAX_COUNTED_BUCKETS": strconv.Itoa(maxCountedBuckets),
}

// script is one transition: lua/<name>.lua with its includes.
type script struct {
	name string
	body string
	sha  string
}

// scripts holds all scripts.
type scripts struct {
	send, claim, ack, settle, extend                     script
	cancel, reschedule, get, list, leases, replay, purge script
	restore, remove                                      script
	stats, histogram, pause, delete, mark                script
	check, lost                                          script
}

var production = loadScripts("", luaConstants)

// loadScripts renders every script. A clock that is not empty replaces the text of lua/_now.lua, so that tests can
// control time.
func loadScripts(clock string, constants map[string]string) *scripts {
	s := &scripts{}
	for _, x := range s.all() {
		body := render(x.name+".lua", clock, constants)
		sum := sha1.Sum([]byte(body))
		x.script.name, x.script.body, x.script.sha = x.name, body, hex.EncodeToString(sum[:])
	}
	return s
}

type namedScript struct {
	name   string
	script *script
}

func (s *scripts) all() []namedScript {
	return []namedScript{
		{"send", &s.send}, {"claim", &s.claim}, {"ack", &s.ack}, {"settle", &s.settle}, {"extend", &s.extend},
		{"cancel", &s.cancel}, {"reschedule", &s.reschedule}, {"get", &s.get}, {"list", &s.list},
		{"leases", &s.leases}, {"replay", &s.replay}, {"purge", &s.purge},
		{"restore", &s.restore}, {"remove", &s.remove}, {"stats", &s.stats},
		{"histogram", &s.histogram}, {"pause", &s.pause}, {"delete", &s.delete}, {"mark", &s.mark},
		{"check", &s.check}, {"lost", &s.lost},
	}
}

var (
	includeLine = regexp.MustCompile(`(?m)^[ ]*--@include (\w+)$`)
	constant    = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)
)

// render inserts includes and constants into a script. It panics on a missing file: the files are embedded, so any
// test finds that.
func render(file, clock string, constants map[string]string) string {
	text, err := luaFiles.ReadFile("lua/" + file)
	if err != nil {
		panic(err)
	}
	body := includeLine.ReplaceAllStringFunc(string(text), func(line string) string {
		name := includeLine.FindStringSubmatch(line)[1]
		if name == "now" && clock != "" {
			return clock
		}
		return strings.TrimSuffix(render("_"+name+".lua", clock, constants), "\n")
	})
	if strings.HasPrefix(file, "_") {
		return body
	}
	return constant.ReplaceAllStringFunc(body, func(word string) string {
		if value, ok := constants[word]; ok {
			return value
		}
		return word
	})
}

// scriptCmd is a script call that go-redis does not retry, because the store does.
type scriptCmd struct{ *redis.Cmd }

func (scriptCmd) NoRetry() bool { return true }

// call is a script call under construction. args reserves space for what precedes the script's own arguments.
type call struct {
	script *script
	args   []any

	confirmed *confirmation // only for a durable send
}

const callHead = 3 + len(keyNames) // EVALSHA, sha, number of keys, keys

// newCall returns a call with room for n arguments.
func (s *Store) newCall(sc *script, queue string, n int) *call {
	c := &call{script: sc, args: make([]any, 3, callHead+n)}
	c.args[0], c.args[1], c.args[2] = "evalsha", sc.sha, len(keyNames)
	c.args = append(c.args, s.keys.of(queue).args...)
	return c
}

func (c *call) add(args ...any) { c.args = append(c.args, args...) }

// stampRequest adds the session and request number that identify the call when it is repeated. The caller must
// release the session after the call.
func (s *Store) stampRequest(c *call) *session {
	sess, number := s.sessions.acquire()
	c.add(&sess.name, number)
	return sess
}

// do executes a call once. If the server does not know the script, it sends the script's text.
func (s *Store) do(ctx context.Context, c *call) (any, error) {
	if c.confirmed != nil {
		return s.doDurably(ctx, c)
	}
	cmd := scriptCmd{redis.NewCmd(ctx, c.args...)}
	cmd.SetFirstKeyPos(3)
	err := s.rdb.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args := append([]any(nil), c.args...)
		args[0], args[1] = "eval", c.script.body
		cmd = scriptCmd{redis.NewCmd(ctx, args...)}
		cmd.SetFirstKeyPos(3)
		err = s.rdb.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}

// run executes a call, retrying until there is a reply, and handles the replies common to all scripts.
func (s *Store) run(ctx context.Context, queue string, c *call) (any, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	reply, err := s.retry(ctx, func(ctx context.Context) (any, error) { return s.do(ctx, c) })
	if err != nil {
		return nil, fmt.Errorf("%s on queue %q: %w", c.script.name, queue, err)
	}
	if code, ok := reply.(int64); ok && code == replyNewer {
		return nil, fmt.Errorf("queue %q was created by another version of Later, and this one reads only format %s: "+
			"use that version, or drain the queue with it first: %w", queue, layoutFormat, store.ErrUnsupported)
	}
	return reply, nil
}

// runRegistered executes a call that may create the queue, and registers the queue's name first. It does so on the
// first use in this process, and whenever the script reports that the queue does not exist; then it repeats the call
// with permission to create it. flag is the index in args of that permission.
func (s *Store) runRegistered(ctx context.Context, queue string, c *call, flag int) (any, error) {
	if _, known := s.registered.Load(queue); !known {
		// Register on the first use even if the queue exists, so that a lost registry is rebuilt.
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
		if err := s.register(ctx, queue); err != nil {
			return nil, err
		}
		c.args[flag] = "1"
		return s.run(ctx, queue, c)
	}
	reply, err := s.run(ctx, queue, c)
	if err != nil || reply != any(int64(replyUnregistered)) {
		return reply, err
	}
	if err := s.register(ctx, queue); err != nil {
		return nil, err
	}
	c.args[flag] = "1"
	if reply, err = s.run(ctx, queue, c); err != nil {
		return nil, err
	}
	// Register again, in case a Delete removed the name in between.
	return reply, s.register(ctx, queue)
}

// register adds a queue's name to the registry.
func (s *Store) register(ctx context.Context, queue string) error {
	_, err := s.retry(ctx, func(ctx context.Context) (any, error) {
		return s.rdb.SAdd(ctx, s.keys.registry(), queue).Result()
	})
	if err != nil {
		return fmt.Errorf("register queue %q: %w", queue, err)
	}
	s.registered.Store(queue, true)
	return nil
}
