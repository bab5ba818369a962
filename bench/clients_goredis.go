package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/redisstore"
)

// goRedisClient calls scripts as redisstore does: arguments are pointers to texts in a slice of the right size, and
// go-redis does not retry.
type goRedisClient struct {
	calls *scriptCalls
	store *redisstore.Store
	rdb   redis.UniversalClient
	keys  []any
}

func connectGoRedis(ctx context.Context, addr string, calls *scriptCalls) (scriptClient, error) {
	s, err := openStore(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &goRedisClient{calls: calls, store: s, rdb: s.Client()}
	for _, key := range calls.keys {
		c.keys = append(c.keys, key)
	}
	return c, nil
}

func (c *goRedisClient) close() error { return c.store.Close() }

// onceCmd is a command that go-redis does not retry.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

const scriptHead = 3 // EVALSHA, sha, number of keys

func (c *goRedisClient) call(ctx context.Context, script *recordedCall, args []string) ([]any, error) {
	all := make([]any, scriptHead, scriptHead+len(c.keys)+len(args))
	all[0], all[1], all[2] = "evalsha", script.sha, len(c.keys)
	all = append(all, c.keys...)
	for i := range args {
		all = append(all, &args[i])
	}
	cmd := onceCmd{redis.NewCmd(ctx, all...)}
	cmd.SetFirstKeyPos(scriptHead)
	if err := c.rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	reply, ok := cmd.Val().([]any)
	if !ok {
		return nil, fmt.Errorf("a script replied %v", cmd.Val())
	}
	return reply, nil
}

func (c *goRedisClient) send(ctx context.Context, args []string) (duplicates int, err error) {
	reply, err := c.call(ctx, &c.calls.send, args)
	return len(reply), err
}

func (c *goRedisClient) claim(ctx context.Context, args []string) (text string, messages, size int, err error) {
	reply, err := c.call(ctx, &c.calls.claim, args)
	if err != nil {
		return "", 0, 0, err
	}
	text = reply[4].(string)
	envelopes := reply[5].([]any)
	for _, envelope := range envelopes {
		size += len(envelope.(string))
	}
	return text, len(envelopes), size, nil
}

func (c *goRedisClient) ack(ctx context.Context, args []string) (refused int, err error) {
	reply, err := c.call(ctx, &c.calls.ack, args)
	return len(reply), err
}
