package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// bridged returns a go-redis client with commands that a RedisCli executes. Each of its connections is a bridge, which
// speaks the protocol of Redis on one side and calls the RedisCli on the other.
func bridged(cli RedisCli) redis.UniversalClient {
	return redis.NewClient(&redis.Options{
		Addr:     "rediscli",
		Protocol: 2,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return newBridge(cli), nil
		},
		MaxRetries:               -1, // Later retries
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// anyCommand executes a command of Redis for which RedisCli has no method.
const anyCommand = "return redis.call(unpack(ARGV))"

// execute executes a command and returns its reply as bytes of the protocol.
func (b *bridge) execute(args []string) []byte {
	switch name := strings.ToLower(args[0]); {
	case name == "hello" || name == "client":
		return replyError(errors.New("ERR unknown command")) // go-redis goes on without it
	case name == "ping" && b.subscribed():
		return reply([]any{"pong", strings.Join(args[1:], "")})
	case name == "subscribe" && len(args) == 2:
		return b.subscribe(args[1])
	case name == "unsubscribe":
		return b.unsubscribe()
	case name == "publish" && len(args) == 3:
		if err := b.cli.Publish(args[1], args[2]); err != nil {
			return replyError(err)
		}
		return reply(int64(0))
	case (name == "eval" || name == "evalsha") && len(args) >= 3:
		n, err := strconv.Atoi(args[2])
		if err != nil || n < 0 || n > len(args)-3 {
			return replyError(errors.New("ERR wrong number of keys"))
		}
		run := b.cli.Eval
		if name == "evalsha" {
			run = b.cli.EvalSha
		}
		return replyOf(run(args[1], args[3:3+n], values(args[3+n:])))
	case name == "script" && len(args) == 3 && strings.EqualFold(args[1], "load"):
		sha, err := b.cli.ScriptLoad(args[2])
		return replyOf(sha, err)
	default:
		return replyOf(b.cli.Eval(anyCommand, keysOf(args), values(args)))
	}
}

// keysOf returns the key of a command, which selects the node of a Cluster. The commands that Later uses in addition to
// scripts have it as their first argument, or have none.
func keysOf(args []string) []string {
	switch strings.ToLower(args[0]) {
	case "info", "config", "ping", "time", "wait", "waitaof":
		return []string{}
	case "memory":
		return args[2:min(3, len(args))]
	}
	return args[1:min(2, len(args))]
}

func values(args []string) []any {
	all := make([]any, len(args))
	for i, arg := range args {
		all[i] = arg
	}
	return all
}

func replyOf(value any, err error) []byte {
	switch {
	case errors.Is(err, NilErr) || errors.Is(err, redis.Nil):
		return reply(nil)
	case err != nil:
		return replyError(err)
	}
	return reply(value)
}

// replyError returns an error reply. Its text is that of the server's own error, if the RedisCli passes it on.
func replyError(err error) []byte {
	return []byte("-" + strings.NewReplacer("\r", " ", "\n", " ").Replace(err.Error()) + "\r\n")
}

// reply returns a value as bytes of the protocol, version 2.
func reply(value any) []byte {
	switch v := value.(type) {
	case nil:
		return []byte("$-1\r\n")
	case string:
		return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(v), v)
	case []byte:
		return reply(string(v))
	case int:
		return reply(int64(v))
	case int64:
		return fmt.Appendf(nil, ":%d\r\n", v)
	case []any:
		all := fmt.Appendf(nil, "*%d\r\n", len(v))
		for _, element := range v {
			all = append(all, reply(element)...)
		}
		return all
	case error:
		return replyError(v)
	}
	return replyError(fmt.Errorf("ERR the RedisCli returned a %T: return a string, an int64 or a slice of these",
		value))
}
