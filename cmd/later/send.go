package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// sendOptions are the flags of later send.
type sendOptions struct {
	set         *pflag.FlagSet
	when        whenFlags
	batch       bool
	id          string
	headers     []string
	maxAttempts int
	timeout     time.Duration
	expireAfter time.Duration
	expireAt    time.Time
	remember    time.Duration
	durable     later.Durability
}

func (m *Main) sendCommand() *cobra.Command {
	var o sendOptions
	cmd := &cobra.Command{
		Use:   "send QUEUE [PAYLOAD|-] [--in DURATION | --at TIME]",
		Short: "Send a message, or one for each line of standard input",
		Long: fmt.Sprintf(`Send sends a message to a queue, which its first message makes, and prints the message's id. When it has
printed the id the store has the message, and it will be delivered at least once, never before it is due.
Without --in and --at it is due at once.

PAYLOAD is any text; - reads it from standard input, byte for byte, up to %d bytes.

With --id the message has an id that you choose. While a message of that id is scheduled, ready, leased or
dead (or remembered, see --remember) sending it again changes nothing and exits with %d. Sending again after an
error is therefore safe.

With --durable it waits until the message is safer than the store makes it always: on the disk of the server, and on so
many replicas of a Redis. When that is not confirmed in time it exits with %d; the message is there, and sending it again
with the same --id waits on.

With --batch each line of standard input is a message, an empty line too. Lines are sent as they come, many in
one call when they come fast, and a summary ends it. When it fails, the lines before the one it names are sent. With
--durable it ends, too, when some are not confirmed in time: they are sent and counted, and it names them.`,
			store.MaxPayload, store.ErrDuplicate.Code.Exit, store.ErrNotDurable.Code.Exit),
		Example: `  later send mail 'hello' --in 30m
  later send reports - --at 18:00 --header kind=daily < report.json
  later send orders '{"order":17}' --id order-17 --in 2d12h --max-attempts 5
  later send payments 'charge' --id charge-9 --durable 1,2s
  seq 1 100000 | later send numbers --batch --in 10s`,
		Args: arguments(1, 2),
		RunE: run(func(ctx context.Context, args []string) error {
			message, err := m.readMessage(args[1:], &o) // before a store is made for what is refused
			if err != nil {
				return err
			}
			client, err := m.open(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			if o.batch {
				return m.sendBatch(ctx, client.Queue(args[0]), message)
			}
			return m.send(ctx, client.Queue(args[0]), message)
		}),
		ValidArgsFunction: m.queueNames(false),
	}
	o.set = cmd.Flags()
	o.when.add(o.set)
	o.set.BoolVar(&o.batch, "batch", false, "send each line of standard input as a message")
	o.set.StringVar(&o.id, "id", "", "`id` of the message (default: one that sorts by time)")
	o.set.StringArrayVar(&o.headers, "header", nil, "a header, as `key=value`; may be given again")
	o.set.IntVar(&o.maxAttempts, "max-attempts", store.DefaultMaxAttempts, "dead after `N` failed attempts")
	durationFlag(o.set, &o.timeout, "timeout", "time limit for one run of its handler (default: the worker's)")
	durationFlag(o.set, &o.expireAfter, "expire-after", "dead when not delivered so long after it is due")
	timeFlag(o.set, &o.expireAt, "expire-at", "dead when not delivered by then")
	durationFlag(o.set, &o.remember, "remember", "refuse the id for so long after the message is done")
	durableFlag(o.set, &o.durable)
	return cmd
}

// message gives a message as the flags say, without a payload.
func (o *sendOptions) message() (later.Outgoing, error) {
	when, _, err := o.when.when()
	if err != nil {
		return later.Outgoing{}, err
	}
	// Zero means a default in Outgoing, but whoever types it means zero.
	for _, name := range []string{"max-attempts", "timeout", "expire-after", "remember"} {
		if flag := o.set.Lookup(name); flag.Changed && (flag.Value.String() == "0" || flag.Value.String() == "") {
			return later.Outgoing{}, store.Invalid("--%s is 0: give more, or leave it out", name)
		}
	}
	if o.timeout > store.MaxLease {
		return later.Outgoing{}, store.Invalid("--timeout is %s: the limit is %s",
			formatDuration(o.timeout), formatDuration(store.MaxLease))
	}
	if o.id == "" && o.set.Changed("id") {
		return later.Outgoing{}, store.Invalid("--id is empty: give 1 to %d bytes, or leave it out", store.MaxID)
	}
	headers := map[string]string{}
	for _, header := range o.headers {
		key, value, ok := strings.Cut(header, "=")
		if !ok {
			return later.Outgoing{}, store.Invalid("--header is %q: give key=value", header)
		}
		if _, twice := headers[key]; twice {
			return later.Outgoing{}, store.Invalid("--header gives %q twice: give each key once", key)
		}
		headers[key] = value
	}
	return later.Outgoing{
		ID:          o.id,
		Headers:     headers,
		When:        when,
		MaxAttempts: o.maxAttempts,
		Timeout:     o.timeout,
		ExpireAfter: o.expireAfter,
		ExpireAt:    o.expireAt,
		Remember:    o.remember,
		Durability:  o.durable,
	}, nil
}

// options gives what is set in a message as options, which refuse what is not allowed in words for one message.
func options(o later.Outgoing) []later.SendOption {
	set := []later.SendOption{o.When, later.Headers(o.Headers), later.MaxAttempts(o.MaxAttempts)}
	if o.ID != "" {
		set = append(set, later.WithID(o.ID))
	}
	if o.Timeout != 0 {
		set = append(set, later.Timeout(o.Timeout))
	}
	if o.ExpireAfter != 0 {
		set = append(set, later.ExpireAfter(o.ExpireAfter))
	}
	if !o.ExpireAt.IsZero() {
		set = append(set, later.ExpireAt(o.ExpireAt))
	}
	if o.Remember != 0 {
		set = append(set, later.RememberID(o.Remember))
	}
	if o.Durability != (later.Durability{}) {
		set = append(set, o.Durability)
	}
	return set
}

// readMessage gives the message as flags and arguments say; with --batch without a payload.
func (m *Main) readMessage(payload []string, o *sendOptions) (message later.Outgoing, err error) {
	switch {
	case o.batch && len(payload) > 0 && payload[0] != "-":
		err = store.Invalid("--batch reads the payloads from standard input: leave out PAYLOAD")
	case o.batch && o.id != "":
		err = store.Invalid("--id cannot be that of all messages of a --batch: leave it out")
	case !o.batch && len(payload) == 0:
		err = store.Invalid("no payload: give one ('' for an empty one), - to read it from standard input, or --batch")
	default:
		message, err = o.message()
	}
	if err == nil && !o.batch {
		message.Payload, err = m.payload(payload[0])
	}
	return message, err
}

func (m *Main) send(ctx context.Context, q *later.Queue, message later.Outgoing) error {
	id, err := q.Send(ctx, message.Payload, options(message)...)
	if errors.Is(err, later.ErrDuplicate) {
		return fmt.Errorf("id %q is already in queue %q, and nothing was changed (see later get %s %s): %w",
			id, q.Name(), q.Name(), id, later.ErrDuplicate)
	}
	if errors.Is(err, later.ErrNotDurable) {
		return fmt.Errorf("sent, with the id %s; %w", id, err)
	}
	if err != nil {
		return err
	}
	return m.printResult(struct {
		ID    string `json:"id"`
		Queue string `json:"queue"`
	}{id, q.Name()}, "%s", id)
}

// payload gives the payload that was asked for: the argument, or standard input.
func (m *Main) payload(argument string) ([]byte, error) {
	if argument != "-" {
		return []byte(argument), nil
	}
	// One byte too many is enough to be refused.
	payload, err := io.ReadAll(io.LimitReader(m.Stdin, store.MaxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	if len(payload) > store.MaxPayload {
		return nil, store.TooLarge("payload is more than %d bytes, which is the limit; keep large data elsewhere and send its address",
			store.MaxPayload)
	}
	return payload, nil
}
