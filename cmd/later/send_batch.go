package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/store"
)

// sendBatch sends each line of standard input as the payload of a message like the given one.
func (m *Main) sendBatch(ctx context.Context, to destination, like later.Outgoing) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	b := &batchSend{to: to, like: like, started: time.Now()}
	progress := m.newProgress(false)
	chunks, readError := readLines(ctx, m.Stdin)
	more, err := true, error(nil)
	for more && err == nil {
		more, err = b.next(ctx, chunks)
		progress.show(func(time.Duration) string { return b.String() })
	}
	progress.clear()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil:
		err = <-readError
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case b.unconfirmed > 0:
		err = fmt.Errorf("lines %d to %d are sent, but not confirmed as durable; later lines are not sent: %w",
			b.sent-b.unconfirmed+1, b.sent, err)
	default:
		err = fmt.Errorf("line %d: %w", b.sent+1, err)
	}
	return errors.Join(m.printSummary(b), err)
}

func (m *Main) printSummary(b *batchSend) error {
	if m.json {
		return m.printJSON(struct {
			Queue       string        `json:"queue"`
			Sent        int           `json:"sent"`
			Unconfirmed int           `json:"unconfirmed,omitempty"`
			Took        wire.Duration `json:"took"`
		}{b.to.queue, b.sent, b.unconfirmed, wire.Measured(time.Since(b.started))})
	}
	m.note("%s", b)
	return nil
}

// batchSend is the progress of a batch.
type batchSend struct {
	to          destination
	like        later.Outgoing
	started     time.Time
	sent        int
	unconfirmed int // how many of the last sent messages are not confirmed as durable
}

func (b *batchSend) String() string {
	took := time.Since(b.started)
	text := fmt.Sprintf("sent %d messages to %s in %s, %.0f per second",
		b.sent, b.to.queue, durations.Format(took), float64(b.sent)/took.Seconds())
	if b.unconfirmed > 0 {
		text += fmt.Sprintf("; %d of them are not confirmed as durable", b.unconfirmed)
	}
	return text
}

// next sends the lines that have arrived, about as many as fit into one call. more is false when there are none left.
func (b *batchSend) next(ctx context.Context, chunks <-chan [][]byte) (more bool, err error) {
	var batch []later.Outgoing
	size := 0
	add := func(lines [][]byte) {
		for _, line := range lines {
			message := b.like
			message.Payload = line
			batch = append(batch, message)
			size += len(line)
		}
	}
	select {
	case lines, ok := <-chunks:
		if !ok {
			return false, nil
		}
		add(lines)
	case <-ctx.Done():
		return false, nil
	}
	for waiting := true; waiting && len(batch) < store.MaxBatch && size < store.MaxBatchBytes; {
		select {
		case lines := <-chunks: // nil at the end of the input
			add(lines)
			waiting = lines != nil
		default:
			waiting = false // do not delay the lines that have arrived
		}
	}
	// A send that was started is finished even after a stop signal, so that the count is right.
	results, err := b.to.sendBatch(context.WithoutCancel(ctx), batch)
	for _, r := range results {
		switch {
		case r.Err == nil:
			b.sent++
		case r.Outcome != "" && errors.Is(r.Err, later.ErrNotDurable): // messages that are not sent have no outcome
			b.sent++
			b.unconfirmed++
		}
	}
	return true, err
}

// readLines returns a channel with the lines that r has at a time, and a channel that receives the final error, if any.
// Its goroutine ends with the input, or at the first line after ctx ends. The caller does not wait for the goroutine,
// because a read of a terminal or pipe cannot be stopped.
func readLines(ctx context.Context, r io.Reader) (<-chan [][]byte, <-chan error) {
	chunks, failed := make(chan [][]byte, 8), make(chan error, 1)
	go func() {
		defer close(chunks)
		buffered := bufio.NewReaderSize(r, 64<<10)
		for {
			lines, err := readChunk(buffered)
			if len(lines) > 0 {
				select {
				case chunks <- lines:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				if err == io.EOF {
					err = nil
				}
				failed <- err
				return
			}
		}
	}()
	return chunks, failed
}

// readChunk reads a line, and further lines as far as that does not block.
func readChunk(r *bufio.Reader) (lines [][]byte, err error) {
	for len(lines) < store.MaxBatch {
		line, err := readLine(r)
		if err != nil {
			return lines, err
		}
		lines = append(lines, line)
		if rest, _ := r.Peek(r.Buffered()); bytes.IndexByte(rest, '\n') < 0 {
			break
		}
	}
	return lines, nil
}

// readLine reads a line and returns it without its line end. It returns io.EOF if there is none left.
func readLine(r *bufio.Reader) ([]byte, error) {
	line := []byte{}
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > store.MaxPayload+1:
			return nil, store.TooLarge("payload exceeds the limit of %d bytes", store.MaxPayload)
		case err == nil || err == io.EOF && len(line) > 0:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}
