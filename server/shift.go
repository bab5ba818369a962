package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

const shiftWorkers = 16 // messages that are shifted at the same time

func registerUndo(s *Server) {
	route(s, access.Operate, on("POST /v1/operations/{operation}/undo", "operations", "undoOperation",
		"Shift back the messages that an operation shifted", fails(http.StatusNotFound, http.StatusConflict),
		answers(http.StatusAccepted),
		says("The reply is a further operation. Messages that have another due time meanwhile, were claimed or are "+
			"gone are skipped. A server can undo the latest shifts, of a million messages together.")), s.undo)
}

// shifted is a message with its due times before and after a shift.
type shifted struct {
	id       string
	from, to int64 // in ms since 1970
}

// shift moves the due times of messages and returns the messages that it moved.
func shift(ctx context.Context, q *later.Queue, moves []shifted) (done []shifted, err error) {
	err = eachShift(moves, func(m shifted) error {
		return q.Reschedule(ctx, m.id, later.At(time.UnixMilli(m.to)))
	}, func(m shifted) { done = append(done, m) })
	return done, err
}

// unshift moves back the due times of messages that still have the due time of the shift, and returns how many it
// moved.
func unshift(ctx context.Context, q *later.Queue, moves []shifted) (n int, err error) {
	err = eachShift(moves, func(m shifted) error {
		info, err := q.Get(ctx, m.id)
		switch {
		case err != nil:
			return err
		case info.Due.UnixMilli() != m.to:
			return later.ErrNotFound // it was moved since: skip it
		}
		return q.Reschedule(ctx, m.id, later.At(time.UnixMilli(m.from)))
	}, func(shifted) { n++ })
	return n, err
}

// eachShift calls do for several messages at the same time, and done for each that was not skipped, one at a time.
func eachShift(moves []shifted, do func(shifted) error, done func(shifted)) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	next := make(chan shifted)
	var failed error
	for range shiftWorkers {
		all.Go(func() {
			for m := range next {
				err := do(m)
				mu.Lock()
				if err == nil {
					done(m)
				} else if !skipped(err) && failed == nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range moves {
		next <- m
	}
	close(next)
	all.Wait()
	return failed
}

// skipped reports whether a message could not be changed because of its state.
func skipped(err error) bool {
	return errors.Is(err, later.ErrNotFound) || errors.Is(err, later.ErrLeased) || errors.Is(err, later.ErrDead)
}

func (s *Server) undo(ctx context.Context, in *OperationPath) (*operationOutput, error) {
	out, err := s.getOperation(ctx, in)
	if err == nil {
		err = may(ctx, access.Operate, out.Body.Queue)
	}
	if err != nil {
		return nil, err
	}
	before, moves := out.Body, s.operations.shifts(in.ID)
	switch {
	case before.State == opRunning:
		return nil, field("path.operation", store.Invalid("%q is running: stop it first", in.ID))
	case len(moves) == 0:
		return nil, field("path.operation", store.Invalid("%q shifted nothing that this server remembers", in.ID))
	}
	q := s.client.Queue(before.Queue)
	op, err := s.operations.start(ctx, Operation{Queue: before.Queue, Action: "undo", Matched: len(moves)},
		func(ctx context.Context, update func(func(*Operation))) error {
			for part := range slices.Chunk(moves, store.MaxBatch) {
				n, err := unshift(ctx, q, part)
				update(func(o *Operation) {
					o.Changed += n
					o.Skipped += len(part) - n
				})
				if err = errors.Join(err, context.Cause(ctx)); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		return nil, err
	}
	s.Changed(ctx, "shift undone", slog.String("operation", op.ID), slog.String("queue", op.Queue),
		slog.String("undoes", in.ID))
	return &operationOutput{"/v1/operations/" + op.ID, op}, nil
}

// shifts returns the messages that an operation shifted.
func (o *operations) shifts(id string) []shifted {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, op := range o.all {
		if op.ID == id {
			return op.shifted
		}
	}
	return nil
}

// forgetShifts forgets the messages that old operations shifted, so that at most a million messages are remembered. The
// caller holds mu.
func (o *operations) forgetShifts() {
	total := 0
	for _, op := range slices.Backward(o.all) {
		if total += len(op.shifted); total > maxMatched {
			op.shifted, op.Undoable = nil, false
		}
	}
}
