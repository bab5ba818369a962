package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/kind"
	"github.com/laterq/later/internal/message"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// sendOptions are the flags of later send and later topic publish.
type sendOptions struct {
	set         *pflag.FlagSet
	when        whenFlags
	batch       bool
	id          string
	kind        string
	headers     []string
	onDuplicate string
	wait        time.Duration
	maxWait     time.Duration
	options     message.Options
	durable     later.Durability
}

func (m *Main) sendCommand() *cobra.Command {
	var o sendOptions
	cmd := m.command("send QUEUE [PAYLOAD|-] [--in DURATION | --at TIME]",
		"Send a message, or one per line of standard input",
		fmt.Sprintf(`Send sends a message to a queue and prints its id. Once the id is printed, the store has the
message and delivers it at least once, never before it is due. Without --in and --at the message is due at once. The
first message creates the queue; if another queue has a similar name, a note on standard error says so.

PAYLOAD is any text; - reads it unchanged from standard input, up to %d bytes.

With --id you choose the message's id. While a message with that id is live, that is scheduled, ready, leased or dead,
or the id is within its dedup window (see --dedup-window), sending it again changes nothing and exits with code %d.
It is therefore safe to send again after an error.

With --on-duplicate replace, the sent message takes the place of a scheduled or ready one with its id, and the due time
stays unless --in or --at sets another. With --on-duplicate debounce, it does too, and is due --wait after the last send
but no later than --max-wait after the first. A message that a worker holds is not replaced (exit code %d), nor is a
dead one (exit code %d). With --on-duplicate follow, the sent message replaces one that no worker holds, and else is
delivered when the worker is done with that one; a further send replaces it.

With --durable, send waits for more than the store always guarantees: until the message is on the server's disk and on
the given number of Redis replicas. If that is not confirmed in time, the exit code is %d, but the message was sent.
Sending it again with the same --id waits for the confirmation again.

With --batch, each line of standard input is a message, including empty lines. Lines are sent as they arrive, many per
call if they arrive fast, and a summary is printed at the end. An error names the line that failed; the lines before it
are sent. With --durable, the batch also ends when messages are not confirmed in time: they are sent and counted, and
the error names their lines.`,
			store.MaxPayload, exitCode(store.ErrDuplicate), exitCode(store.ErrLeased), exitCode(store.ErrDead),
			exitCode(store.ErrNotDurable)),
		`  later send mail 'hello' --in 30m
  later send reports - --at 18:00 --header kind=daily < report.json
  later send orders '{"order":17}' --id order-17 --kind order.cancel --in 2d12h --max-attempts 5
  later send orders 'remind' --group customer-9 --in 3d
  later send mail 'welcome' --key customer-7
  later send index 'doc 7' --id doc-7 --on-duplicate debounce --wait 2s --max-wait 30s
  later send payments 'charge' --id charge-9 --durable 1,2s
  seq 1 100000 | later send numbers --batch --in 10s`,
		run(func(ctx context.Context, args []string) error {
			message, err := m.readMessage(args[1:], &o) // before a store is created
			if err != nil {
				return err
			}
			client, err := m.open(ctx)
			if err != nil {
				return err
			}
			defer client.Close()
			q := client.Queue(args[0])
			before, unknown := q.Stats(ctx)
			err = m.sendTo(ctx, destination{q.Name(), q.SendMessage, q.SendBatch}, message, o.batch)
			if err == nil && unknown == nil && !before.Exists {
				m.noteNewQueue(ctx, client, q.Name(), true)
			}
			return err
		}))
	o.add(cmd.Flags())
	return cmd
}

// add defines the flags.
func (o *sendOptions) add(flags *pflag.FlagSet) {
	o.set = flags
	o.when.add(o.set)
	o.set.BoolVar(&o.batch, "batch", false, "send each line of standard input as a message")
	o.set.StringVar(&o.id, "id", "", "`id` of the message (default: generated, sorts by time)")
	o.set.StringVar(&o.onDuplicate, "on-duplicate", "keep",
		"`MODE` if the id is live: keep, replace, debounce or follow")
	durationFlag(o.set, &o.wait, "wait", "of a debounce: due this long after the last send")
	durationFlag(o.set, &o.maxWait, "max-wait", "of a debounce: due no later than this after the first send")
	o.addMessage(flags, &o.options)
	durableFlag(o.set, &o.durable)
}

// addMessage defines the flags for headers, and the flags of options except for the options in without.
func (o *sendOptions) addMessage(flags *pflag.FlagSet, options any, without ...string) {
	o.set, o.when.set = flags, flags
	o.set.StringVar(&o.kind, "kind", "", "`kind` of the message, such as order.cancel; the same as --header kind=KIND")
	o.set.StringArrayVar(&o.headers, "header", nil, "a header, as `key=value`; can be repeated")
	addOptions(o.set, options, without...)
}

// message returns the message that the flags describe, without a payload.
func (o *sendOptions) message() (later.Outgoing, error) {
	when, _, err := o.when.when()
	if err != nil {
		return later.Outgoing{}, err
	}
	if o.id == "" && o.set.Changed("id") {
		return later.Outgoing{}, store.Invalid("--id is empty: must have 1 to %d bytes, or be omitted", store.MaxID)
	}
	mode, err := o.mode()
	if err != nil {
		return later.Outgoing{}, err
	}
	headers, err := parseHeaders(o.headers)
	if err != nil {
		return later.Outgoing{}, err
	}
	if o.set.Changed("kind") {
		if err := kind.Check(o.kind); err != nil {
			return later.Outgoing{}, fmt.Errorf("--kind: %w", err)
		}
		if _, twice := headers[later.KindHeader]; twice {
			return later.Outgoing{}, store.Invalid("--kind and --header %s are both given: use one of them",
				later.KindHeader)
		}
		headers[later.KindHeader] = o.kind
	}
	var stored store.Message
	o.options.Set(&stored)
	out := later.OutgoingOf(stored)
	out.ID, out.Headers, out.When, out.OnDuplicate, out.Durability = o.id, headers, when, mode, o.durable
	return out, nil
}

// parseHeaders returns the headers that --header sets.
func parseHeaders(set []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, header := range set {
		key, value, ok := strings.Cut(header, "=")
		if !ok {
			return nil, store.Invalid("--header is %q: must be key=value", header)
		}
		if _, twice := headers[key]; twice {
			return nil, store.Invalid("--header sets %q twice: set each key once", key)
		}
		headers[key] = value
	}
	return headers, nil
}

// mode returns the mode that --on-duplicate and its flags select.
func (o *sendOptions) mode() (mode later.DuplicateMode, err error) {
	waits := o.set.Changed("wait") || o.set.Changed("max-wait")
	switch {
	case waits && o.onDuplicate != "debounce":
		return mode, store.Invalid("--wait and --max-wait are for --on-duplicate debounce: give that too, or omit them")
	case !o.set.Changed("on-duplicate"):
		return mode, nil
	}
	switch o.onDuplicate {
	case "keep":
		return later.Keep(), nil
	case "replace":
		return later.Replace(), nil
	case "follow":
		return later.Follow(), nil
	case "debounce":
		if !o.set.Changed("wait") || !o.set.Changed("max-wait") {
			return mode, store.Invalid("--on-duplicate debounce needs --wait and --max-wait: give both, such as " +
				"2s and 30s")
		}
		return later.Debounce(o.wait, o.maxWait), nil
	}
	return mode, store.Invalid("--on-duplicate is %q: must be keep, replace, debounce or follow", o.onDuplicate)
}

// readMessage returns the message that the flags and arguments describe. With --batch its payload is empty.
func (m *Main) readMessage(payload []string, o *sendOptions) (message later.Outgoing, err error) {
	switch {
	case o.batch && len(payload) > 0 && payload[0] != "-":
		err = store.Invalid("--batch reads the payloads from standard input: omit PAYLOAD")
	case o.batch && o.id != "":
		err = store.Invalid("--id cannot be used with --batch: omit it")
	case !o.batch && len(payload) == 0:
		err = store.Invalid("no payload: give one ('' for an empty one), - to read it from standard input, or --batch")
	default:
		message, err = o.message()
	}
	if err == nil && !o.batch {
		message.Payload, err = m.payload(payload[0])
	}
	if err == nil {
		err = message.Check()
	}
	return message, err
}

// destination is where messages are sent to: a queue, or a topic with the name of its queue.
type destination struct {
	queue     string
	send      func(ctx context.Context, o later.Outgoing) (later.SendResult, error)
	sendBatch func(ctx context.Context, msgs []later.Outgoing) ([]later.SendResult, error)
}

// sendTo sends a message, or one like it for each line of standard input.
func (m *Main) sendTo(ctx context.Context, to destination, message later.Outgoing, batch bool) error {
	if batch {
		return m.sendBatch(ctx, to, message)
	}
	sent, err := to.send(ctx, message)
	switch {
	case errors.Is(err, later.ErrDuplicate):
		return fmt.Errorf("id %q is already in queue %q, nothing was changed (see later get %s %s): %w",
			sent.ID, to.queue, to.queue, sent.ID, later.ErrDuplicate)
	case errors.Is(err, later.ErrNotDurable):
		return fmt.Errorf("sent with id %s; %w", sent.ID, err)
	case err != nil:
		return err
	case message.OnDuplicate == (later.DuplicateMode{}):
		sent.Outcome = "" // it can be only one
	}
	return m.printResult(wire.Sent{ID: sent.ID, Queue: to.queue, Outcome: string(sent.Outcome)}, "%s", sent.ID)
}

// payload returns the argument, or the content of standard input if the argument is "-".
func (m *Main) payload(argument string) ([]byte, error) {
	if argument != "-" {
		return []byte(argument), nil
	}
	// One byte over the limit is enough to refuse it.
	payload, err := io.ReadAll(io.LimitReader(m.Stdin, store.MaxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	if len(payload) > store.MaxPayload {
		return nil, store.TooLarge("payload exceeds the limit of %d bytes; keep large data elsewhere and send "+
			"its address", store.MaxPayload)
	}
	return payload, nil
}

// durableTimeout is the default timeout of --durable.
const durableTimeout = 5 * time.Second

// durableFlag adds --durable.
func durableFlag(set *pflag.FlagSet, d *later.Durability) {
	set.Var(&durableValue{d: d}, "durable", fmt.Sprintf(
		"wait for the disk and this many replicas (default timeout: %s)",
		durations.Format(durableTimeout)))
}

// durableValue is the value of --durable.
type durableValue struct {
	d    *later.Durability
	text string
}

func (v *durableValue) Set(text string) error {
	number, rest, hasTimeout := strings.Cut(text, ",")
	replicas, err := strconv.Atoi(number)
	if err != nil || replicas < 0 || replicas > store.MaxReplicas {
		return fmt.Errorf("must be 0 (disk only) to %d replicas, and optionally a timeout, such as 1 or 1,500ms",
			store.MaxReplicas)
	}
	timeout := durableTimeout
	if hasTimeout {
		if timeout, err = durations.Parse(rest); err != nil {
			return err
		}
		if timeout < store.MinConfirm || timeout > store.MaxConfirm {
			return fmt.Errorf("the timeout must be %s to %s", durations.Format(store.MinConfirm),
				durations.Format(store.MaxConfirm))
		}
	}
	*v.d, v.text = later.Durable(replicas, timeout), text
	return nil
}

func (v *durableValue) String() string { return v.text }
func (v *durableValue) Type() string   { return "REPLICAS[,TIMEOUT]" }
