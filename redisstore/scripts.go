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

// Replies below zero, the same in every script.
const (
	replyUnregistered = -1 // the queue does not exist and its name may not be registered
	replyNewer        = -2 // the queue has another format
	replyBusy         = -3 // so much is leased that it cannot be looked through in one call
)

// layoutFormat is the layout's version, kept in each queue's meta.
const layoutFormat = "4"

// luaConstants are what the scripts call by name.
var luaConstants = map[string]string{
	"FORMAT":             strconv.Quote(layoutFormat),
	"UNREGISTERED":       strconv.Itoa(replyUnregistered),
	"NEWER":              strconv.Itoa(replyNewer),
	"MAX_BATCH":          strconv.Itoa(store.MaxBatch),
	"MAX_BYTES":          strconv.Itoa(store.MaxBatchBytes),
	"REAP_LEASES":        "100",
	"DEFAULT_ATTEMPTS":   strconv.Itoa(store.DefaultMaxAttempts),
	"LEASE_EXPIRED_TEXT": strconv.Quote(store.LeaseExpiredText),
	"EXPIRED_TEXT":       strconv.Quote(store.ExpiredText),
	"UNREADABLE_TEXT":    strconv.Quote(store.UnreadableText),
	"REASON_LOST_TEXT":   strconv.Quote("its reason was lost; an examination put this in its place"),
	"KEEP_CALLERS":       "1000", // at least, of each queue
	"BUSY":               strconv.Itoa(replyBusy),
	"MAX_HELD":           strconv.Itoa(maxHeld),
	"LARGE_HASH":         "1048576",                        // messages; the tables of fewer are doubled soon
	"FAR_AFTER":          "3540000",                        // ms ahead from which on a message that is sent is far: 59 min, so that an hour is
	"FAR_LEAD":           "60000",                          // ms before a bucket begins at which it is emptied
	"FAR_BYTES":          "512",                            // of a bucket's text
	"FAR_WIDEST":         "1048576",                        // ms that a bucket of class 0 is wide; less than FAR_AFTER, so none has begun when it is sent to
	"FAR_CLASSES":        "11",                             // of buckets, each a quarter as wide as the one before; 16 at most, see far_value
	"FAR_LONGEST":        "16384",                          // bytes of an envelope that may be far: a cancel has to read it
	"FAR_MOST":           "100",                            // full buckets above empty ones, or below, by which the class of sends changes
	"FAR_READ":           strconv.Itoa(3 * store.MaxBatch), // buckets that a send looks into before it gives up
	"FAR_PAGE":           "500",                            // buckets that a call counts
	"FAR_COUNTED":        strconv.Itoa(maxCounted),
}

// A script is one transition: lua/<name>.lua with its includes.
type script struct {
	name string
	body string
	sha  string
}

// scripts are all there are.
type scripts struct {
	send, claim, ack, settle, extend                     script
	cancel, reschedule, get, list, leases, replay, purge script
	restore, remove                                      script
	stats, histogram, pause, delete, mark                script
	examine, lost                                        script
}

var production = loadScripts("", luaConstants)

// loadScripts reads every script. A clock that is not empty is the Lua text that replaces lua/_now.lua: tests
// move time with it.
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
		{"examine", &s.examine}, {"lost", &s.lost},
	}
}

var (
	includeLine = regexp.MustCompile(`(?m)^[ ]*--@include (\w+)$`)
	constant    = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)
)

// render puts the includes and the constants into a script. The files are part of the program, so what is
// wrong with them is found by any test.
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

// scriptCmd is a script call that go-redis does not repeat by itself, since the store does.
type scriptCmd struct{ *redis.Cmd }

func (scriptCmd) NoRetry() bool { return true }

// call is one script call in the making. args holds space for what comes before the script's own arguments.
type call struct {
	script *script
	args   []any

	confirmed *confirmation // of a durable send
}

const callHead = 3 + len(keyNames) // EVALSHA, sha, number of keys, keys

// newCall starts a call with room for n arguments.
func (s *Store) newCall(sc *script, queue string, n int) *call {
	c := &call{script: sc, args: make([]any, 3, callHead+n)}
	c.args[0], c.args[1], c.args[2] = "evalsha", sc.sha, len(keyNames)
	c.args = append(c.args, s.keys.of(queue).args...)
	return c
}

func (c *call) add(args ...any) { c.args = append(c.args, args...) }

// sign adds the name and number by which the script knows a call that was done before. The caller is given back when the call
// is over.
func (s *Store) sign(c *call) *caller {
	who, number := s.callers.take()
	c.add(&who.name, number)
	return who
}

// do runs a call once. A server that does not know the script gets its text.
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

// run runs a call until it is answered, and reads the replies that every script has.
func (s *Store) run(ctx context.Context, queue string, c *call) (any, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	reply, err := s.retry(ctx, func(ctx context.Context) (any, error) { return s.do(ctx, c) })
	if err != nil {
		return nil, fmt.Errorf("%s on queue %q: %w", c.script.name, queue, err)
	}
	if code, ok := reply.(int64); ok && code == replyNewer {
		return nil, fmt.Errorf("queue %q was made by another version of Later (this one knows format %s): use that version, or drain the queue with it first: %w",
			queue, layoutFormat, store.ErrUnsupported)
	}
	return reply, nil
}

// runRegistered runs a call that may create the queue. Its name is registered before: at the first use in this
// process, and whenever the script says that the queue does not exist, after which the call is made again with
// leave to create it. flag is the index in args of that leave.
func (s *Store) runRegistered(ctx context.Context, queue string, c *call, flag int) (any, error) {
	if _, known := s.registered.Load(queue); !known {
		// The first use in this process: name it whatever is there, so that a registry that was lost heals.
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
	// Once more, in case a Delete took the name out in between.
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
