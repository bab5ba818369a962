package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/calls"
	"github.com/laterq/later/store"
)

// A goroutine that waits for a reply on a connection of go-redis returns after the read timeout, not when its context
// ends. Another goroutine could wait instead, but to hand the call over and back takes as much CPU again as the call.
// So a send that must be prompt uses a connection of its own to a single server, which the end of the context
// interrupts.

// promptKey marks the context of a call that returns as soon as the context ends.
type promptKey struct{}

// SendPromptly implements store.PromptSender.
func (s *Store) SendPromptly(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	return s.Send(context.WithValue(ctx, promptKey{}, true), queue, msgs)
}

// process executes a command other than a script.
func (s *Store) process(ctx context.Context, cmd redis.Cmder) error {
	_, err := inTime(ctx, func(ctx context.Context) (any, error) { return nil, s.rdb.Process(ctx, cmd) })
	return err
}

// evaluate calls a script once, with the arguments of EVALSHA or EVAL. Prompt calls go on lines; so do short ones,
// unless the client was passed to New: its hooks, which the store cannot notice, see all but prompt calls.
func (s *Store) evaluate(ctx context.Context, sc *script, args []any) (any, error) {
	prompt := isPrompt(ctx)
	// go-redis alone knows which server of Sentinels or of a Cluster to use now.
	client, single := s.rdb.(*redis.Client)
	if single = single && !s.followsPrimary(); single && (prompt || sc.short && s.shortOnLines) {
		caller := calls.Untimed(ctx)
		if caller.Err() != nil {
			return nil, context.Cause(caller)
		}
		now := time.Now()
		line, dial := s.lines.take(now)
		if line != nil {
			if !prompt {
				caller = context.Background()
			}
			return s.lines.call(ctx, caller, line, now, args)
		}
		if dial { // it takes longer
			return inTime(ctx, func(ctx context.Context) (any, error) {
				return s.lines.first(ctx, s.lines.dial(client), args)
			})
		}
	}
	return inTime(ctx, func(ctx context.Context) (any, error) { return callBy(ctx, s.rdb, args) })
}

// callBy calls a script on a client of go-redis.
func callBy(ctx context.Context, client redis.UniversalClient, args []any) (any, error) {
	cmd := scriptCmd{redis.NewCmd(ctx, args...)}
	cmd.SetFirstKeyPos(3)
	err := client.Process(ctx, cmd)
	return cmd.Val(), err
}

// scriptCmd is a script call that go-redis does not retry, because the store does.
type scriptCmd struct{ *redis.Cmd }

func (scriptCmd) NoRetry() bool { return true }

// isPrompt reports whether a call returns as soon as its context ends.
func isPrompt(ctx context.Context) bool { return ctx.Value(promptKey{}) != nil }

// inTime calls f. A prompt call calls it on a goroutine of its own and returns as soon as the context ends. f may still
// run then.
func inTime[T any](ctx context.Context, f func(ctx context.Context) (T, error)) (T, error) {
	if !isPrompt(ctx) {
		return f(ctx)
	}
	ended := ctx.Done() // before calls.Untimed of f
	type outcome struct {
		v   T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		v, err := f(context.WithoutCancel(ctx))
		done <- outcome{v, err}
	}()
	select {
	case o := <-done:
		return o.v, o.err
	case <-ended:
		var none T
		return none, context.Cause(ctx)
	}
}
