package redisstore

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/laterq/later/store"
)

// The keys of a queue have its name as their hash tag, so that a Cluster keeps them on one node. Every script
// receives all fifteen in this order, and the flow rendering eleven more; lua/_keys.lua names them.
//
//	due              zset  id → due ms                      scheduled and ready messages, except packed ones
//	messages         hash  id → envelope                    every live message; see stripPrefix
//	leases           hash  lease id → lease text            see lua/_lease.lua
//	lease_deadlines  zset  lease id → deadline ms
//	records          hash  id → record                      only differences from the defaults, see lua/_record.lua
//	dead             zset  id → time of death ms
//	dedup            zset  id → end of dedup window ms      acked ids
//	meta             hash  see below
//	sessions         hash  session → last request           executes a repeated request once, see session.go
//	old_sessions     hash  the same, from before            see lua/_session.lua
//	buckets          hash  bucket → messages due far ahead  see lua/_buckets.lua
//	bucket_starts    zset  bucket → start ms
//	bucket_counts    hash  cell → messages in buckets       see lua/_bucket_counts.lua
//	wake             zset  channel → promise                processes that wait, see lua/_waiting.lua
//	groups           zset  id → number of its group         messages in a group, see lua/_groups.lua
//
// The fields of meta:
//
//	format              layoutFormat; a queue exists if it has this field
//	paused              1 if it is paused
//	max_envelope_bytes  length of the longest value in messages since a claim found the queue empty, at least
//	inspect_envelopes   1 if one was sent since then with its own attempts or expiry, which claims then look for
//	dead_max_age_ms     how long dead messages are kept; none: for ever
//	dead_max_count      how many dead messages are kept; none: all
//	dead_dropped        how many dead messages were removed because of these
//	packed_messages     number of messages in buckets
//	repeats_until       when first attempts of repeated claims have arrived at the latest, in ms
//
// Five more keys of a queue are properties, a hash name → value; activity, a hash bucket of time → counts of events;
// once and old_once, hashes key → send, see lua/_once.lua; and outbox, a hash, see lua/depart.lua. Only the scripts
// that use them receive them, after the fifteen; see propertiesKey, activityKey, onceKey and outboxKey.
//
// A name that has a sign in place of a queue (store.SubQueues) has meta with two fields: format, which is signFormat,
// so that every script refuses it, and sign, the text. Unless it is that of a sub-queue, it has properties with
// signProperty.
//
// A queue with a flow may have eleven more keys, the ones of flowKeyNames, which only the rendering of scripts for such
// queues receives, behind the fifteen; see lua/_lanes.lua.
//
// Another key, <prefix>queues, is the set of all queue names. It has a slot of its own, so it cannot change
// atomically with a queue; see runRegistered and Delete. A third one, <prefix>processes, has the processes that wait;
// see lua/beat.lua.
var keyNames = [...]string{"due", "messages", "leases", "lease_deadlines", "records", "dead", "dedup", "meta",
	"sessions", "old_sessions", "buckets", "bucket_starts", "bucket_counts", "wake", "groups"}

// flowKeyNames are the keys of keys and their turns.
//
//	lanes       zset  key, class, place, id, score 0  sorted messages
//	key_states  hash  key → state                     slots, rate, pass and holder of a key
//	turns       zset  key → pass                      keys that wait with normal urgency and may go
//	rests       zset  key → ms of the next start      keys that wait for their rate, a slot or their holder
//	old_rests   zset  the same, from before           rests before the last change of limits
//	forget      zset  key → ms                        when to look whether the state of a key is needed
//	key_flows   hash  key → limits                    overrides, and marks of expected keys
//	holders     hash  id → key                        messages that hold a key and are not leased
//	halted      zset  key → ms of the halt            keys that a dead message halts
//	turns_high  zset  key → pass                      the same as turns for high urgency
//	turns_low   zset  key → pass                      the same for low urgency
var flowKeyNames = [...]string{"lanes", "key_states", "turns", "rests", "old_rests", "forget", "key_flows",
	"holders", "halted", "turns_high", "turns_low"}

// propertiesKey is the name of the key that has the properties of a queue.
const propertiesKey = "properties"

// activityKey is the name of the key that has the counts of events of a queue; see events.go.
const activityKey = "activity"

// onceKey and oldOnceKey are the names of the keys that have the sends with a store.Once.
const (
	onceKey    = "once"
	oldOnceKey = "old_once"
)

// outboxKey is the name of the key of the parcel that departs, and of the numbers of the parcels that have arrived.
const outboxKey = "outbox"

// allKeyNames are the names of all keys of a queue.
var allKeyNames = slices.Concat(keyNames[:], flowKeyNames[:],
	[]string{propertiesKey, activityKey, onceKey, oldOnceKey, outboxKey})

// maxNames is about how many names of queues a process remembers. A process that uses more forgets all of them now and
// then.
const maxNames = 1 << 17

// keyTable caches the keys of each queue.
type keyTable struct {
	prefix string
	queues sync.Map // name → *queueKeys
	count  atomic.Int64
}

type queueKeys struct {
	args   []any // as command arguments
	limits []any // the same of flowKeyNames
	wake   string
	common [commonCases]commonUse
	flow   atomic.Bool   // the queue had a flow at the last call; see rendering.go
	sub    bool          // it is a sub-queue
	alone  [1]*queueKeys // itself
}

func (t *keyTable) of(queue string) *queueKeys {
	if keys, ok := t.queues.Load(queue); ok {
		return keys.(*queueKeys)
	}
	keys := &queueKeys{sub: isSubQueue(queue)}
	keys.alone[0] = keys
	keys.wake = t.key(queue, "wake")
	for _, name := range keyNames {
		keys.args = append(keys.args, t.key(queue, name))
	}
	for _, name := range flowKeyNames {
		keys.limits = append(keys.limits, t.key(queue, name))
	}
	for i, script := range commonScripts {
		for _, name := range script.keys {
			keys.common[i].keys = append(keys.common[i].keys, keys.args[slices.Index(keyNames[:], name)])
		}
	}
	stored, known := t.queues.LoadOrStore(queue, keys)
	if !known && t.count.Add(1) > maxNames {
		t.queues.Clear()
		t.count.Store(0)
	}
	return stored.(*queueKeys)
}

func (t *keyTable) forget(queue string) {
	if _, known := t.queues.LoadAndDelete(queue); known {
		t.count.Add(-1)
	}
}

// The keys of a sub-queue have the name of the queue as their hash tag, too, or that and the salt with a brace between
// them, which no name of a queue has. So the sub-queues of all generations with one salt are on one node, and those
// without a salt on that of the queue. The generation stands before the name of the key.

// key returns the key of a queue with one of the names in allKeyNames.
func (t *keyTable) key(queue, name string) string {
	tag, generation := keyParts(queue)
	return t.prefix + "{" + tag + "}:" + generation + name
}

// keyParts returns the hash tag of the keys of a queue, and what their names begin with.
func keyParts(queue string) (tag, generation string) {
	of, generation, salt, sub := store.CutSubQueue(queue)
	switch {
	case !sub:
		return queue, ""
	case salt == "":
		return of, generation + ":"
	}
	return of + "{" + salt, generation + ":"
}

// queueOf returns the queue of a key and the name of the key, and whether it can be such a key.
func (t *keyTable) queueOf(key string) (queue, name string, ok bool) {
	rest, ok := strings.CutPrefix(key, t.prefix+"{")
	if !ok {
		return "", "", false
	}
	tag, name, ok := strings.Cut(rest, "}:")
	generation, inner, sub := strings.Cut(name, ":")
	if !sub {
		return tag, name, ok
	}
	queue, salt, _ := strings.Cut(tag, "{")
	return store.SubQueue(queue, generation, salt), inner, ok
}

func isSubQueue(queue string) bool {
	_, _, _, ok := store.CutSubQueue(queue)
	return ok
}

func (t *keyTable) registry() string { return t.prefix + "queues" }
