package redisstore

import "sync"

// The keys of a queue have its name as their hash tag, so that a Cluster keeps them on one node. Every script
// receives all twelve in this order; lua/_keys.lua names them.
//
//	due     zset  id → due ms                        scheduled and ready messages, except packed ones
//	msg     hash  id → envelope                      every live message; see stripPrefix for the prefix of packed ones
//	lease   hash  lease id → lease text              see lua/_lease.lua
//	expiry  zset  lease id → deadline ms
//	tries   hash  id → record                        only state that differs from the defaults, see lua/_record.lua
//	dead    zset  id → time of death ms
//	done    zset  id → end of dedup window ms        acked ids
//	meta    hash  format, paused, longest, far       longest: bytes of the longest envelope so far; far: number of packed
//	                                                 messages; and more, see docs/redis-layout.md
//	calls   zset  session → last request number      so that a repeated request is executed once, see session.go
//	far     hash  bucket → messages due far ahead    see lua/_buckets.lua
//	fars    zset  bucket → start ms
//	wake    zset  "m" → earliest due ms              the marker that wakes one waiter
//
// One more key, <prefix>queues, is the set of all queue names. It has a slot of its own, so it cannot change
// atomically with a queue; see runRegistered and Delete.
var keyNames = [...]string{"due", "msg", "lease", "expiry", "tries", "dead", "done", "meta", "calls",
	"far", "fars", "wake"}

// keyTable caches the keys of each queue.
type keyTable struct {
	prefix string
	queues sync.Map // name → *queueKeys
}

type queueKeys struct {
	args []any // as command arguments
	wake string
}

func (t *keyTable) of(queue string) *queueKeys {
	if keys, ok := t.queues.Load(queue); ok {
		return keys.(*queueKeys)
	}
	keys := &queueKeys{}
	for _, name := range keyNames {
		keys.wake = t.prefix + "{" + queue + "}:" + name
		keys.args = append(keys.args, keys.wake)
	}
	stored, _ := t.queues.LoadOrStore(queue, keys)
	return stored.(*queueKeys)
}

func (t *keyTable) registry() string { return t.prefix + "queues" }
