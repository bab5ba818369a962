package main

import (
	"context"
	"runtime"

	"github.com/redis/rueidis"
)

// rueidisClient calls scripts as the rueidis documentation recommends, with its type Lua, and reads replies in place.
type rueidisClient struct {
	client                             rueidis.Client
	keys                               []string
	sendScript, claimScript, ackScript *rueidis.Lua
}

// connectRueidis connects with one call at a time on each connection if pool is set, and with pipelining otherwise.
func connectRueidis(pool bool) func(context.Context, string, *scriptCalls) (scriptClient, error) {
	return func(_ context.Context, addr string, calls *scriptCalls) (scriptClient, error) {
		option := rueidis.ClientOption{
			InitAddress: []string{addr}, ForceSingleClient: true,
			DisableCache: true, DisableRetry: true, // Later does not cache, and retries by itself
		}
		if pool {
			option.DisableAutoPipelining, option.BlockingPoolSize = true, 10*runtime.GOMAXPROCS(0)
		}
		client, err := rueidis.NewClient(option)
		if err != nil {
			return nil, err
		}
		return &rueidisClient{
			client, calls.keys, rueidis.NewLuaScript(calls.send.body), rueidis.NewLuaScript(calls.claim.body),
			rueidis.NewLuaScript(calls.ack.body),
		}, nil
	}
}

func (c *rueidisClient) close() error {
	c.client.Close()
	return nil
}

func (c *rueidisClient) call(ctx context.Context, script *rueidis.Lua, args []string) ([]rueidis.RedisMessage, error) {
	return script.Exec(ctx, c.client, c.keys, args).ToArray()
}

func (c *rueidisClient) send(ctx context.Context, args []string) (duplicates int, err error) {
	reply, err := c.call(ctx, c.sendScript, args)
	return len(reply), err
}

func (c *rueidisClient) claim(ctx context.Context, args []string) (text string, messages, size int, err error) {
	reply, err := c.call(ctx, c.claimScript, args)
	if err != nil {
		return "", 0, 0, err
	}
	if text, err = reply[4].ToString(); err != nil {
		return "", 0, 0, err
	}
	envelopes, err := reply[5].ToArray()
	if err != nil {
		return "", 0, 0, err
	}
	for i := range envelopes {
		envelope, err := envelopes[i].ToString()
		if err != nil {
			return "", 0, 0, err
		}
		size += len(envelope)
	}
	return text, len(envelopes), size, nil
}

func (c *rueidisClient) ack(ctx context.Context, args []string) (refused int, err error) {
	reply, err := c.call(ctx, c.ackScript, args)
	return len(reply), err
}
