package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/redisstore"
	"github.com/laterq/later/store"
)

// scriptCalls are a send, a claim and an ack of a batch as made by a Store, to be repeated with other ids.
type scriptCalls struct {
	keys             []string
	send, claim, ack recordedCall
}

// recordedCall is a script call.
type recordedCall struct {
	body, sha string
	keys      []string
	args      []string // as sent to the server
	reply     any
}

// Indexes of the arguments of a send, a claim and an ack; see send.lua, claim.lua and ack.lua in redisstore/lua.
const (
	sendSession  = 0
	sendNumber   = 1
	sendCount    = 6
	sendDues     = 7 // one for each message, followed by its id and envelope
	claimSession = 0
	claimNumber  = 1
	claimLease   = 5
	claimCount   = 7
	ackSession   = 0
	ackNumber    = 1
)

// recordCalls records how a Store sends, claims and acks batches on the Redis at addr. It leaves the queue empty.
func recordCalls(ctx context.Context, addr string, batch, size int) (calls *scriptCalls, err error) {
	s, err := openStore(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r := &callRecorder{bodies: map[string]string{}}
	s.Client().AddHook(r)

	msgs := make([]store.Outgoing, batch)
	for range 2 { // the first round creates the queue, with other arguments
		for i := range msgs {
			msgs[i].Message = store.Message{ID: store.NewID(), Payload: benchmark.NewPayload(size, i, time.Time{})}
		}
		if _, err := s.Send(ctx, queueName, msgs); err != nil {
			return nil, err
		}
	}
	for range 2 {
		claim, err := s.Claim(ctx, queueName, store.ClaimRequest{Max: batch, Lease: time.Minute})
		if err != nil {
			return nil, err
		}
		acks := make([]store.Settlement, len(claim.Messages))
		for i := range acks {
			acks[i] = store.Settlement{Receipt: claim.Messages[i].Receipt, Action: store.Ack}
		}
		if _, err := s.Settle(ctx, queueName, acks); err != nil {
			return nil, err
		}
	}
	if len(r.calls) != 6 {
		return nil, fmt.Errorf("two sends, claims and acks made %d script calls, want 6", len(r.calls))
	}
	for i := range r.calls {
		r.calls[i].body = r.bodies[r.calls[i].sha]
	}
	calls = &scriptCalls{keys: r.calls[1].keys, send: r.calls[1], claim: r.calls[2], ack: r.calls[3]}
	return calls, calls.check(msgs)
}

// openStore opens a Redis as a user would.
func openStore(ctx context.Context, addr string) (*redisstore.Store, error) {
	s, err := store.Open(ctx, "redis://"+addr, store.OpenConfig{})
	if err != nil {
		return nil, err
	}
	return s.(*redisstore.Store), nil
}

// check rebuilds the recorded calls and returns an error if they differ. Then the scripts' arguments have changed, and
// this file must follow. msgs are the messages that were sent.
func (s *scriptCalls) check(msgs []store.Outgoing) error {
	send := s.send.args
	if want := sendDues + 3*len(msgs); len(send) != want || send[sendCount] != strconv.Itoa(len(msgs)) {
		return fmt.Errorf("a send of %d messages has %d arguments, want %d: %.200q", len(msgs), len(send), want, send)
	}
	ids := make([]string, len(msgs))
	for i := range msgs {
		ids[i] = msgs[i].ID
	}
	if again := s.sendArgs(nil, send[sendSession], send[sendNumber], ids); !slices.Equal(again, send) {
		return fmt.Errorf("arguments of a send are %.300q, rebuilt as %.300q", send, again)
	}
	if len(s.claim.args) != claimCount {
		return fmt.Errorf("a claim has %d arguments, want %d: %q", len(s.claim.args), claimCount, s.claim.args)
	}
	reply, _ := s.claim.reply.([]any)
	if len(reply) < 6 {
		return fmt.Errorf("reply to a claim is %.300v", s.claim.reply)
	}
	text, _ := reply[4].(string)
	if len(s.ack.args) <= ackNumber {
		return fmt.Errorf("an ack has %d arguments: %q", len(s.ack.args), s.ack.args)
	}
	again := ackArgs(
		nil, s.ack.args[ackSession], s.ack.args[ackNumber], s.claim.args[claimLease], text, heldIDs(nil, text))
	if !slices.Equal(again, s.ack.args) {
		return fmt.Errorf("arguments of an ack are %.300q, rebuilt as %.300q", s.ack.args, again)
	}
	return nil
}

// sendArgs appends the arguments of a send of other messages, which differ from the recorded ones only in their ids.
func (s *scriptCalls) sendArgs(args []string, session, number string, ids []string) []string {
	args = append(args, s.send.args...)
	args[sendSession], args[sendNumber] = session, number
	for i, id := range ids {
		args[sendDues+len(ids)+2*i] = id
	}
	return args
}

// claimArgs appends the arguments of a first attempt of a claim.
func (s *scriptCalls) claimArgs(args []string, session, number, lease string) []string {
	args = append(args, s.claim.args...)
	args[claimSession], args[claimNumber], args[claimLease] = session, number, lease
	return args
}

// ackArgs appends the arguments of an ack of a whole claim; see redisstore/lua/ack.lua. It has no dedup window, one
// lease, one run that covers all of the lease's text, and no single messages.
func ackArgs(args []string, session, number, lease, text string, ids []string) []string {
	args = append(args, session, number, "0", lease, "1", "0", "="+strconv.Itoa(len(text)), strconv.Itoa(len(ids)))
	return append(args, ids...)
}

// heldIDs appends the ids in a lease's text. Lines that start with a tab are due times.
func heldIDs(ids []string, text string) []string {
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != '\t' {
			ids = append(ids, line)
		}
	}
	return ids
}

// callRecorder is a go-redis hook that records script calls.
type callRecorder struct {
	calls  []recordedCall
	bodies map[string]string // by SHA-1
}

func (r *callRecorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *callRecorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook records a call that succeeded. A server that does not know a script rejects its hash, and then receives
// its text.
func (r *callRecorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		scripted, ok := cmd.(interface{ Val() any })
		if err != nil || !ok || cmd.Name() != "evalsha" && cmd.Name() != "eval" {
			return err
		}
		var texts []string
		for _, arg := range cmd.Args() {
			texts = append(texts, argText(arg))
		}
		call := recordedCall{sha: texts[1], reply: scripted.Val()}
		if cmd.Name() == "eval" {
			sum := sha1.Sum([]byte(texts[1]))
			call.sha = hex.EncodeToString(sum[:])
			r.bodies[call.sha] = texts[1]
		}
		keys, err := strconv.Atoi(texts[2])
		if err != nil {
			return fmt.Errorf("number of keys of a script: %w", err)
		}
		call.keys, call.args = texts[3:3+keys], texts[3+keys:]
		r.calls = append(r.calls, call)
		return nil
	}
}

// argText returns an argument in the form that go-redis sends.
func argText(arg any) string {
	switch v := arg.(type) {
	case *string:
		return *v
	case bool:
		if v {
			return "1"
		}
		return "0"
	}
	return fmt.Sprint(arg)
}
