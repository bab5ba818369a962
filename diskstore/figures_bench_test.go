package diskstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// pendingMessages is how many messages are pending in the benchmarks below: LATER_PENDING, or few, so that running each
// benchmark once stays quick. The figures in docs/embedded.md are of 5,000,000.
func pendingMessages(b *testing.B) int {
	n := 20_000
	if text := os.Getenv("LATER_PENDING"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// fillPending sends messages that are due at random within a month, from an hour ahead on.
func fillPending(b *testing.B, s *Store, queue string, n int) {
	for sent := 0; sent < n; sent += store.MaxBatch {
		msgs := outgoing(store.MaxBatch, store.Due{})
		for i := range msgs {
			msgs[i].Due.Delay = time.Hour + time.Duration(rand.Int64N(int64(30*24*time.Hour)))
		}
		if _, err := s.Send(b.Context(), queue, msgs); err != nil {
			b.Fatal(err)
		}
	}
}

// reportLatency reports the median and the 99th percentile in microseconds.
func reportLatency(b *testing.B, what string, all []time.Duration) {
	if len(all) == 0 {
		b.Fatalf("%s: nothing was measured", what)
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "us-p50-"+what)
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "us-p99-"+what)
}

// BenchmarkSingleClaim measures a claim of one message that is due, with others pending in the same queue, and after
// two fifths as many messages were acked.
func BenchmarkSingleClaim(b *testing.B) {
	pending := pendingMessages(b)
	s := benchStore(b)
	fillPending(b, s, "q", pending)
	claims := func(what string) {
		fill(b, s, 2000)
		var all []time.Duration
		for range 2000 {
			begin := time.Now()
			c, err := s.Claim(b.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
			all = append(all, time.Since(begin))
			if err != nil || len(c.Messages) != 1 {
				b.Fatal(err, len(c.Messages))
			}
			if _, err := s.Settle(b.Context(), "q",
				[]store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack}}); err != nil {
				b.Fatal(err)
			}
		}
		reportLatency(b, what, all)
	}
	claims("pending")
	fill(b, s, pending*2/5)
	for done := 0; done < pending*2/5; {
		done += drain(b, s, store.MaxBatch, store.MaxBatch)
	}
	claims("after-acks")
}

// BenchmarkLatenessDuringCompaction measures how late messages come, 500 a second for 10 seconds, while all tables are
// merged again and again.
func BenchmarkLatenessDuringCompaction(b *testing.B) {
	s := benchStore(b)
	fillPending(b, s, "other", pendingMessages(b))
	const messages = 5000
	begin := time.Now().Add(time.Second)
	msgs := outgoing(messages, store.Due{})
	for i := range msgs {
		msgs[i].Due.At = begin.Add(time.Duration(i) * 2 * time.Millisecond)
	}
	for batch := range slices.Chunk(msgs, store.MaxBatch) {
		if _, err := s.Send(b.Context(), "q", batch); err != nil {
			b.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(b.Context())
	var merging sync.WaitGroup
	merges := 0
	merging.Go(func() {
		for ctx.Err() == nil {
			if err := s.db.Compact(ctx, []byte{0}, []byte{0xff}, false); err != nil && ctx.Err() == nil {
				b.Error(err)
				return
			}
			merges++
			// A key of the range is written, or there would be nothing to merge.
			if _, err := s.Send(ctx, "other", outgoing(1, store.Due{Delay: time.Hour})); err != nil && ctx.Err() == nil {
				b.Error(err)
				return
			}
		}
	})
	var late []time.Duration
	for len(late) < messages {
		c, err := s.Claim(b.Context(), "q", store.ClaimRequest{Max: 100, Lease: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range c.Messages {
			late = append(late, time.Since(m.Due))
		}
		if len(c.Messages) == 0 {
			if err := s.Wait(b.Context(), "q"); err != nil {
				b.Fatal(err)
			}
		}
	}
	stop()
	merging.Wait()
	b.ReportMetric(float64(merges), "merges")
	reportLatency(b, "late", late)
}

// BenchmarkSendBesideReads measures sends to one queue, each for itself, while something else is done again and again
// with a queue full of messages.
func BenchmarkSendBesideReads(b *testing.B) {
	pending := pendingMessages(b)
	s := benchStore(b)
	fillPending(b, s, "full", pending)
	now := time.Now()
	cursor := ""
	for _, c := range []struct {
		name string
		do   func(ctx context.Context, round int) error
	}{
		{"nothing", func(ctx context.Context, _ int) error { <-ctx.Done(); return nil }},
		{"histogram", func(ctx context.Context, _ int) error {
			_, err := s.Histogram(ctx, "full", store.HistogramBounds(now, now.Add(31*24*time.Hour), 500))
			return err
		}},
		{"list", func(ctx context.Context, _ int) error {
			p, err := s.List(ctx, "full", store.ListRequest{State: store.StateScheduled, Limit: store.MaxBatch, Cursor: cursor})
			cursor = p.Next
			return err
		}},
		{"purge", func(ctx context.Context, round int) error {
			if round%40 == 0 {
				queue := fmt.Sprint("purged", round)
				for range 40 {
					if _, err := s.Send(ctx, queue, outgoing(store.MaxBatch, store.Due{Delay: time.Hour})); err != nil {
						return err
					}
				}
			}
			_, err := s.Purge(ctx, fmt.Sprint("purged", round/40*40), store.Selection{State: store.StateScheduled})
			return err
		}},
		{"delete", func(ctx context.Context, round int) error {
			queue := fmt.Sprint("deleted", round)
			for range 10 {
				if _, err := s.Send(ctx, queue, outgoing(store.MaxBatch, store.Due{Delay: time.Hour})); err != nil {
					return err
				}
			}
			return s.Delete(ctx, queue)
		}},
	} {
		ctx, stop := context.WithCancel(b.Context())
		var beside sync.WaitGroup
		rounds := 0
		beside.Go(func() {
			for ctx.Err() == nil {
				if err := c.do(ctx, rounds); err != nil && ctx.Err() == nil {
					b.Error(err)
					return
				}
				rounds++
			}
		})
		var all []time.Duration
		for begin := time.Now(); time.Since(begin) < 3*time.Second; {
			sent := time.Now()
			if _, err := s.Send(b.Context(), "q", outgoing(1, store.Due{Delay: time.Hour})); err != nil {
				b.Fatal(err)
			}
			all = append(all, time.Since(sent))
		}
		stop()
		beside.Wait()
		reportLatency(b, c.name, all)
		b.ReportMetric(float64(rounds)/3, "rounds/s-"+c.name)
	}
}

// BenchmarkListOfRemoved measures pages of 500 dead messages after as many as are pending were purged, and of 500
// scheduled ones after all but one in a hundred were cancelled in random order.
func BenchmarkListOfRemoved(b *testing.B) {
	pending := pendingMessages(b) / 5
	s := benchStore(b)
	list := func(what, queue string, state store.State) {
		var all []time.Duration
		for range 200 {
			begin := time.Now()
			if _, err := s.List(b.Context(), queue, store.ListRequest{State: state, Limit: store.MaxBatch}); err != nil {
				b.Fatal(err)
			}
			all = append(all, time.Since(begin))
		}
		reportLatency(b, what, all)
	}
	fill(b, s, pending)
	bury := func(n int) {
		for done := 0; done < n; {
			c, err := s.Claim(b.Context(), "q", store.ClaimRequest{Max: store.MaxBatch, Lease: time.Minute})
			if err != nil || len(c.Messages) == 0 {
				b.Fatal(err)
			}
			var all []store.Settlement
			for _, m := range c.Messages {
				all = append(all, store.Settlement{Receipt: m.Receipt, Action: store.Bury})
			}
			if _, err := s.Settle(b.Context(), "q", all); err != nil {
				b.Fatal(err)
			}
			done += len(c.Messages)
		}
	}
	bury(pending)
	for more := true; more; {
		bulk, err := s.Purge(b.Context(), "q", store.Selection{State: store.StateDead})
		if err != nil {
			b.Fatal(err)
		}
		more = bulk.More
	}
	fill(b, s, store.MaxBatch)
	bury(store.MaxBatch)
	list("dead-after-purge", "q", store.StateDead)
	var ids []string
	for sent := 0; sent < pending; sent += store.MaxBatch {
		msgs := outgoing(store.MaxBatch, store.Due{Delay: time.Hour})
		for _, m := range msgs {
			ids = append(ids, m.ID)
		}
		if _, err := s.Send(b.Context(), "c", msgs); err != nil {
			b.Fatal(err)
		}
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for some := range slices.Chunk(ids[len(ids)/100:], store.MaxBatch) {
		if _, err := s.Cancel(b.Context(), "c", store.CancelRequest{IDs: some}); err != nil {
			b.Fatal(err)
		}
	}
	list("after-cancels", "c", store.StateScheduled)
}

// BenchmarkFlood measures a small send and an Extend while 500 goroutines send messages of 1 MiB to another queue.
func BenchmarkFlood(b *testing.B) {
	s := benchStore(b)
	fill(b, s, store.MaxBatch)
	c, err := s.Claim(b.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	goroutines := 500
	if os.Getenv("LATER_PENDING") == "" {
		goroutines = 20
	}
	var sends sync.WaitGroup
	for range goroutines {
		sends.Go(func() {
			m := store.Outgoing{Message: store.Message{ID: store.NewID(), Payload: noise}, Due: store.Due{Delay: time.Hour}}
			if _, err := s.Send(b.Context(), "large", []store.Outgoing{m}); err != nil {
				b.Error(err)
			}
		})
	}
	begun := time.Now()
	ended := make(chan struct{})
	go func() { defer close(ended); sends.Wait() }()
	var small, extends []time.Duration
	var beside sync.WaitGroup
	measure := func(all *[]time.Duration, do func() error) {
		beside.Go(func() {
			for over := false; !over; {
				begin := time.Now()
				if err := do(); err != nil {
					b.Error(err)
					return
				}
				*all = append(*all, time.Since(begin))
				select {
				case <-ended:
					over = true
				default:
				}
			}
		})
	}
	measure(&small, func() error {
		_, err := s.Send(b.Context(), "q", outgoing(1, store.Due{}))
		return err
	})
	measure(&extends, func() error {
		_, err := s.Extend(b.Context(), "q", []store.Extension{{Lease: c.Messages[0].Receipt.Lease, For: time.Hour}})
		return err
	})
	beside.Wait()
	b.ReportMetric(float64(goroutines)/time.Since(begun).Seconds(), "MiB/s")
	b.ReportMetric(float64(slices.Max(small).Microseconds()), "us-max-small")
	b.ReportMetric(float64(slices.Max(extends).Microseconds()), "us-max-extend")
}

// BenchmarkOpenAfterKill measures an open of a directory as a killed process leaves it: a checkpoint of its files, with
// logs that are not in tables yet.
func BenchmarkOpenAfterKill(b *testing.B) {
	dir := b.TempDir()
	s, err := Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	fillPending(b, s, "q", pendingMessages(b))
	copied := filepath.Join(b.TempDir(), "copy")
	if err := s.db.Checkpoint(copied); err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{formatFile, holderFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), text, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	begin := time.Now()
	after, err := Open(copied)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(begin).Milliseconds()), "ms-open")
	after.Close()
}
