//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// forwarder is the role of a process that moves messages to other queues, to lists and to streams.
type forwarder struct {
	role
	store   store.Store
	journal *journal
	log     *slog.Logger
}

func (f forwarder) run(ctx context.Context) error {
	client, err := later.New(f.store, later.WithLogger(f.log), later.WithObserver(func(e later.Event) {
		if e.Kind == later.EventForwarded {
			f.journal.one(forwarded, now(), e.ID, e.Queue)
		}
	}))
	if err != nil {
		return err
	}
	w := later.NewWorker(client, later.WorkerConfig{Lease: f.Lease, ShutdownTimeout: drainLimit})
	for queue, text := range f.To {
		to, err := later.ParseDestination(text)
		if err != nil {
			return err
		}
		w.Forward(queue, to.ExactlyOnce())
	}
	return errors.Join(w.Run(ctx), client.Close())
}

// addForwarder puts a forwarder between the producers and the consumers: of their three queues, one is moved to the
// queue of the consumers, one to a list and one to a stream.
func (r *run) addForwarder() {
	sources, target := slices.Clone(r.queues), fmt.Sprint("forwarded-", r.cfg.Seed)
	r.list, r.stream = fmt.Sprint("list-", r.cfg.Seed), fmt.Sprint("stream-", r.cfg.Seed)
	for _, c := range r.children {
		if c.role.Kind != "producer" && c.role.Kind != "laggard" {
			c.role.Queues = []string{target}
		}
	}
	f := r.consumer("forwarder", "forwarder", r.servers.url)
	f.To = map[string]string{
		sources[0]: "queue:" + target, sources[1]: "list:" + r.list, sources[2]: "stream:" + r.stream,
	}
	r.add(f)
	r.queues = append(r.queues, target)
}

// disruptForwarder kills the forwarder, loses replies or delays requests.
func disruptForwarder(ctx context.Context, r *run) error {
	switch r.injected % 4 {
	case 2:
		return loseReplies(ctx, r)
	case 3:
		return delayRequests(ctx, r)
	}
	c := r.pick("forwarder")
	r.kill(c)
	return c.start()
}

// readList counts the elements of the list, and the entries of the stream, by the keys of their payloads.
func (r *run) readList(ctx context.Context) error {
	if r.list == "" {
		return nil
	}
	rdb, err := r.servers.client(ctx)
	if err != nil {
		return err
	}
	defer rdb.Close()
	r.listed = map[string]int{}
	payloads, err := rdb.LRange(ctx, r.list, 0, -1).Result()
	if err != nil {
		return err
	}
	r.countPayloads("list", payloads)
	if r.stream == "" {
		return nil
	}
	entries, err := rdb.XRange(ctx, r.stream, "-", "+").Result()
	if err != nil {
		return err
	}
	payloads = payloads[:0]
	for _, entry := range entries {
		payload, _ := entry.Values["payload"].(string)
		payloads = append(payloads, payload)
	}
	r.countPayloads("stream", payloads)
	return nil
}

// countPayloads counts the payloads of a list or a stream.
func (r *run) countPayloads(in string, payloads []string) {
	for _, payload := range payloads {
		key, _, whole := readPayload([]byte(payload))
		if !whole {
			r.result.violate("damaged", "-", "an element of the %s is damaged: %.100q", in, payload)
		}
		r.listed[key]++
	}
	if len(payloads) == 0 {
		r.result.violate("lost", "-", "nothing reached the %s", in)
	}
}

// inList returns how often a message is in the list or the stream.
func (ck *checker) inList(m *message) (n int) {
	if len(m.sends) > 0 {
		n = ck.listed[m.sends[0].key]
	}
	return n
}

// checkList checks that a message is in the list or the stream at most once, and nowhere else. A message that was sent
// again after a cancel is another one, and one that was sent again after an unknown outcome may have been accepted
// twice, because it had left its queue in between.
func (ck *checker) checkList(m *message, violate violator) {
	if ck.awayLeft != nil {
		ck.checkCopies(m, violate)
		return
	}
	n := ck.inList(m)
	if n == 0 || m.resent() || slices.ContainsFunc(m.sends, (*send).mayRecreate) {
		return
	}
	if n > 1 {
		violate("doubled", "is in the list or the stream %d times", n)
	}
	if len(m.deliveries) > 0 {
		violate("doubled", "is in the list or the stream and was claimed")
	}
	if info := ck.left[m.id]; info != nil {
		violate("doubled", "is in the list or the stream and is %s", info.State)
	}
	for _, c := range m.cancels {
		if !c.unknown() && !c.known(outcomeNotFound) {
			violate("cancelled", "was cancelled and is in the list or the stream")
		}
	}
}

// mayRecreate reports whether the send may be accepted after an earlier one of the same message had been forwarded.
func (s *send) mayRecreate() bool { return s.unknown() && !s.has(flagDedup) }
