// Package delayqueue has the API of github.com/hdt3213/delayqueue v1 on top of Later, so that a program moves to Later
// by changing one import line:
//
//	import "github.com/laterq/later/compat/delayqueue" // was "github.com/hdt3213/delayqueue"
//
// A queue made here is an ordinary queue of Later: the later command, the other packages of Later and programs in this
// API can use it at the same time. Its keys in Redis begin with "later:", or with the prefix of UseCustomPrefix and a
// colon. Messages that the original has stored are moved with
//
//	later migrate from-delayqueue redis://localhost:6379/0 --queue NAME
//
// Where Later is safer, its behaviour holds. No message is deleted without having been handled: a message that is out
// of retries or past its TTL is kept as a dead letter, and a message without a TTL never expires. No message is early.
// Consumers learn of messages at once, so WithScriptPreload has no effect and WithFetchInterval another meaning. A
// server that may evict keys, or is older than Redis 7.0, is refused. docs/migrating.md lists all differences.
//
// Methods have no context, as in the original. A send blocks for up to ten seconds while Redis cannot be reached.
// Arguments that the original refuses by a panic, such as an empty name or a missing callback, are refused by the same
// panic. Other arguments that are not allowed, such as a name that is longer than store.MaxQueueName, are an error of
// every call.
//
// The package imports later, redisstore and go-redis. Start reading at DelayQueue.
package delayqueue
