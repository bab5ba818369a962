package delayqueue

import (
	"errors"
	"time"
)

// NilErr is the error that a RedisCli returns for a reply that is nil.
//
//lint:ignore ST1012 the name is the original's
var NilErr = errors.New("nil")

// RedisCli is access to Redis for NewQueue0, NewPublisher0 and NewMonitor0, by clients other than go-redis. Eval,
// EvalSha, ScriptLoad, Publish and Subscribe are used; the others are part of the original's interface.
type RedisCli interface {
	// Eval runs a script. The arguments are strings. The result is a string, an int64 or an []interface{} of these, of
	// nil and of further slices. For a nil result it returns NilErr.
	Eval(script string, keys []string, args []interface{}) (interface{}, error)
	Set(key string, value string, expiration time.Duration) error
	Get(key string) (string, error)
	Del(keys []string) error
	HSet(key string, field string, value string) error
	HDel(key string, fields []string) error
	SMembers(key string) ([]string, error)
	SRem(key string, members []string) error
	ZAdd(key string, values map[string]float64) error
	ZRem(key string, fields []string) (int64, error)
	ZCard(key string) (int64, error)
	ZScore(key string, member string) (float64, error)
	LLen(key string) (int64, error)
	LRem(key string, count int64, value string) (int64, error)

	// Publish publishes a message on a channel.
	Publish(channel string, payload string) error
	// Subscribe returns a channel that receives the messages of a channel of Redis, and a function that ends it.
	Subscribe(channel string) (payloads <-chan string, close func(), err error)

	// ScriptLoad loads a script and returns its SHA-1.
	ScriptLoad(script string) (string, error)
	// EvalSha runs a script by its SHA-1, like Eval. The text of the error for a script that is not loaded begins with
	// NOSCRIPT.
	EvalSha(sha1 string, keys []string, args []interface{}) (interface{}, error)
}
