package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Plain queues, which are most, must not pay for limits that they do not have, so each script has two renderings: with
// and without the parts for queues with a flow. A queue with a flow has a format of its own, and each rendering refuses
// the queues of the other one. A process remembers for each queue which rendering it accepted last. So a call costs a
// second one after the first use of a queue with a flow, and after the flow was set or removed.
//
// Scripts that work on several queues are the exception: their rendering for flows takes queues of both kinds.

// maxRenderings is how many times a call is made if each rendering refuses the queue. Three are enough if the flow is
// set or removed in between, and the others if programs disagree about it.
const maxRenderings = 8

// do executes a call once, with the rendering of its script that fits the queue.
func (s *Store) do(ctx context.Context, c *call) (any, error) {
	for tries := 1; ; tries++ {
		reply, err := s.doRendering(ctx, c)
		if err != nil || tries == maxRenderings || !c.otherRendering(reply) {
			return reply, err
		}
		if c.confirmed != nil {
			c.confirmed.reply = nil // a refusal
		}
		if tries == 2 && reply == any(int64(replyNewer)) { // of both renderings: perhaps of a sign, or of a newer queue
			format, err := s.formatOf(ctx, c)
			if err != nil || format != "" && !knownFormat(format) {
				return reply, err
			}
		}
	}
}

// formatOf returns the format of the queue of a call, "" if there is none.
func (s *Store) formatOf(ctx context.Context, c *call) (string, error) {
	cmd := redis.NewStringCmd(ctx, "hget", c.queues[0].args[metaIndex], "format")
	if err := s.process(ctx, cmd); err != nil && err != redis.Nil {
		return "", err
	}
	return cmd.Val(), nil
}

// metaIndex is the index of meta in keyNames.
var metaIndex = slices.Index(keyNames[:], "meta")

// doRendering executes a call once.
func (s *Store) doRendering(ctx context.Context, c *call) (any, error) {
	c.choose()
	if c.safe {
		return s.doSafely(ctx, c)
	}
	if c.confirmed != nil {
		return s.doDurably(ctx, c)
	}
	if c.common != nil && !c.limited() {
		var began time.Time // reading the clock takes a tenth of a microsecond
		if c.common.looks {
			began = time.Now()
		}
		reply, err := s.execute(ctx, c.common.script, c.common.args)
		if err != nil {
			return nil, err
		}
		common := reply != any(int64(replyUncommon))
		if c.common.use.tried(common); common {
			if c.common.looks {
				c.session.look(c.queues[0], began)
			}
			return reply, nil
		}
	}
	c.common = nil
	return s.execute(ctx, c.script, c.arguments())
}

// arguments returns the arguments for the rendering that choose has set. The rendering for queues with a flow has more
// keys for each queue, and may have an argument more.
func (c *call) arguments() []any {
	c.args[1] = c.script.id
	if !c.script.limits || len(c.queues) == 0 {
		return c.args
	}
	args := make([]any, 3, len(c.args)+len(c.queues)*len(flowKeyNames)+len(c.flowArgs))
	copy(args, c.args)
	args[2] = c.args[2].(int) + len(c.queues)*len(flowKeyNames)
	for i, keys := range c.queues {
		from := 3 + i*len(keyNames)
		args = append(append(args, c.args[from:from+len(keyNames)]...), keys.limits...)
	}
	args = append(args, c.args[3+len(c.queues)*len(keyNames):]...)
	return append(args, c.flowArgs...)
}

// choose sets the rendering of the script of a call.
func (c *call) choose() {
	c.script = c.plain
	if c.plain.flow != nil && slices.ContainsFunc(c.queues, func(q *queueKeys) bool { return q.flow.Load() }) {
		c.script = c.plain.flow()
	}
}

// otherRendering reports whether a reply asks for the other rendering, and remembers it for the queue.
func (c *call) otherRendering(reply any) bool {
	if c.plain.flow == nil {
		return false
	}
	limited := c.limited()
	if reply == any(int64(replyNewer)) {
		c.queues[0].flow.Store(!limited)
		return true
	}
	if i, ok := newerQueue(reply); ok && !limited {
		c.queues[i].flow.Store(true)
		return true
	}
	return false
}

// limited reports whether the last reply is of the rendering for queues with a flow.
func (c *call) limited() bool { return c.script != c.plain }

// nextTime returns when a process has to claim again according to a reply, which has µs for a queue with a flow, and ms
// for a plain one. It is zero if the process need not.
func (c *call) nextTime(reply any) time.Time {
	switch n := reply.(int64); {
	case n < 0:
		return time.Time{}
	case c.limited():
		return time.UnixMicro(n)
	default:
		return time.UnixMilli(n)
	}
}

// together makes calls in one request, and returns the reply or the error of each. A call that did nothing there is
// made alone.
func (s *Store) together(ctx context.Context, calls []*call) (replies []any, errs []error) {
	cmds := make([]*redis.Cmd, len(calls))
	s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its error
		for i, c := range calls {
			cmds[i] = redis.NewCmd(ctx, c.arguments()...)
			cmds[i].SetFirstKeyPos(3)
			p.Process(ctx, scriptCmd{cmds[i]})
		}
		return nil
	})
	replies, errs = make([]any, len(calls)), make([]error, len(calls))
	for i, cmd := range cmds {
		replies[i], errs[i] = cmd.Result()
		if errs[i] != nil && redis.HasErrorPrefix(errs[i], "NOSCRIPT") ||
			errs[i] == nil && replies[i] == any(int64(replyNewer)) {
			replies[i], errs[i] = s.do(ctx, calls[i])
		}
	}
	return replies, errs
}

// newerQueue returns which of the further queues of a call has another format, according to its reply.
func newerQueue(reply any) (number int64, ok bool) {
	if list, isList := reply.([]any); isList && len(list) == 2 && list[0] == any(int64(replyNewer)) {
		return list[1].(int64), true
	}
	return 0, false
}
