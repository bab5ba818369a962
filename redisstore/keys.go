package redisstore

import "sync"

// A queue's keys all carry its name as their hash tag, so that a Cluster keeps them on one node. Every script
// gets all twelve in this order; lua/_keys.lua names them.
//
//	due     zset  id → due ms                      scheduled and ready messages
//	msg     hash  id → envelope                    every living message; see bare for what may be before it
//	lease   hash  lease id → what it holds         see lua/_lease.lua
//	expiry  zset  lease id → deadline ms
//	tries   hash  id → record                      only what is unusual, see lua/_record.lua
//	dead    zset  id → time of death ms
//	done    zset  id → when it is forgotten ms     acked ids that are remembered
//	meta    hash  format, paused, longest, far     longest: bytes of the longest envelope that was here; far: messages
//	                                               that are in buckets; and more, see docs/redis-layout.md
//	calls   zset  caller → number of its last call  so that a repeated call is done once, see callers.go
//	far     hash  bucket → messages due far ahead  see lua/_far.lua
//	fars    zset  bucket → when it begins ms
//	wake    zset  "m" → earliest due ms            the marker that wakes one waiter
//
// One more key, <prefix>queues, is the set of all queues' names. It has a slot of its own, so it cannot change in
// one step with a queue; see runRegistered and Delete.
var keyNames = [...]string{"due", "msg", "lease", "expiry", "tries", "dead", "done", "meta", "calls", "far", "fars", "wake"}

// keyTable makes each queue's keys once.
type keyTable struct {
	prefix string
	queues sync.Map // name → *queueKeys
}

type queueKeys struct {
	args []any // as arguments of a command
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
