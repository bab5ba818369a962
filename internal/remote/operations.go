package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// none is the result of a call that only has an error.
type none struct{}

// onQueue is the arguments of a call about a queue that has one more argument, and onQueueWith has two more.
type (
	onQueue[T any] struct {
		Queue string
		Arg   T
	}
	onQueueWith[T, U any] struct {
		Queue string
		Arg   T
		With  U
	}
)

func about[T any](queue string, arg T) *onQueue[T] { return &onQueue[T]{queue, arg} }

func aboutWith[T, U any](queue string, arg T, with U) *onQueueWith[T, U] {
	return &onQueueWith[T, U]{queue, arg, with}
}

type (
	queueArgs  struct{ Queue string }
	sendArgs   = onQueue[[]store.Outgoing]
	claimArgs  = onQueue[store.ClaimRequest]
	bulkArgs   = onQueueWith[store.Selection, store.Due]
	queuesArgs struct{ Cursor string }
	queuesPage struct {
		Names []string
		Next  string
	}
	reportArgs  struct{ Reports []store.Report }
	deliverArgs struct {
		To       store.Target
		Messages []store.Claimed
	}
	backupArgs struct {
		Dir string
		ID  string // of this call, for repetitions
	}
)

// ofQueue returns the operation of a method that has only a queue as its argument.
func ofQueue[R any](
	name string, k kind, method func(store.Store, context.Context, string) (R, error),
) *operation[queueArgs, R] {
	return &operation[queueArgs, R]{
		name: name, kind: k, check: (*queueArgs).check, queue: func(a *queueArgs) string { return a.Queue },
		run: func(ctx context.Context, s store.Store, a *queueArgs) (R, error) { return method(s, ctx, a.Queue) },
	}
}

// withQueue returns the operation of a method that has a queue and one more argument.
func withQueue[T, R any](name string, k kind, method func(store.Store, context.Context, string, T) (R, error),
	check func(queue string, arg T) error) *operation[onQueue[T], R] {
	return &operation[onQueue[T], R]{
		name: name, kind: k, queue: func(a *onQueue[T]) string { return a.Queue },
		run: func(ctx context.Context, s store.Store, a *onQueue[T]) (R, error) {
			return method(s, ctx, a.Queue, a.Arg)
		},
		check: func(a *onQueue[T]) error { return check(a.Queue, a.Arg) },
	}
}

// withTwo returns the operation of a method that has a queue and two more arguments, and changes something.
func withTwo[T, U, R any](name string, method func(store.Store, context.Context, string, T, U) (R, error),
	check func(queue string, arg T, with U) error) *operation[onQueueWith[T, U], R] {
	return &operation[onQueueWith[T, U], R]{
		name: name, kind: changes, queue: func(a *onQueueWith[T, U]) string { return a.Queue },
		run: func(ctx context.Context, s store.Store, a *onQueueWith[T, U]) (R, error) {
			return method(s, ctx, a.Queue, a.Arg, a.With)
		},
		check: func(a *onQueueWith[T, U]) error { return check(a.Queue, a.Arg, a.With) },
	}
}

// only and onlyTwo give a method that returns only an error a result.
func only[T any](
	method func(store.Store, context.Context, string, T) error,
) func(store.Store, context.Context, string, T) (none, error) {
	return func(s store.Store, ctx context.Context, queue string, arg T) (none, error) {
		return none{}, method(s, ctx, queue, arg)
	}
}

func onlyTwo[T, U any](
	method func(store.Store, context.Context, string, T, U) error,
) func(store.Store, context.Context, string, T, U) (none, error) {
	return func(s store.Store, ctx context.Context, queue string, arg T, with U) (none, error) {
		return none{}, method(s, ctx, queue, arg, with)
	}
}

// administers has an operation reported to Server.OnChange. count returns how many messages it concerned, nil for an
// operation that is not about messages.
func (op *operation[A, R]) administers(what string, count func(args *A, result R) int) *operation[A, R] {
	op.change = func(args *A, result R) Change {
		change := Change{What: what, Queue: op.queue(args)}
		if count != nil {
			change.Count = count(args, result)
		}
		return change
	}
	return op
}

func countDone(_ *bulkArgs, done store.Bulk) int { return done.Done }

var opSend = func() *operation[sendArgs, []store.SendResult] {
	op := withQueue("send", changes, store.Store.Send, each(store.CheckNewQueue, (*store.Outgoing).Check))
	op.takes = func(a *sendArgs) time.Duration {
		if len(a.Arg) == 0 {
			return 0
		}
		return a.Arg[0].Durable.Timeout
	}
	return op
}()

var opClaim = &operation[claimArgs, store.Claim]{
	name: "claim", kind: changes, check: func(a *claimArgs) error { return checkClaim(a.Queue, a.Arg) },
	run: func(ctx context.Context, s store.Store, a *claimArgs) (store.Claim, error) {
		return s.Claim(ctx, a.Queue, a.Arg)
	},
	reuse: func(a *claimArgs) store.Claim {
		buffer := a.Arg.Buffer
		a.Arg.Buffer = nil
		return store.Claim{Messages: buffer}
	},
	large: func(a *claimArgs) int {
		return min(a.Arg.Max*store.MaxPayload, store.MaxBatchBytes+store.MaxPayload)
	},
	undo: releaseClaimed,
}

// releaseClaimed releases the messages of a claim if its caller did not get them, so that no attempt counts and they
// need not wait for the end of the lease. A repetition finds that nothing was claimed.
func releaseClaimed(a *claimArgs, c store.Claim) func(ctx context.Context, s store.Store) (store.Claim, error) {
	if len(c.Messages) == 0 {
		return nil
	}
	queue, released := a.Queue, make([]store.Settlement, len(c.Messages))
	for i := range released {
		released[i] = store.Settlement{Receipt: c.Messages[i].Receipt, Action: store.Release}
	}
	c.Messages, c.Deadline = nil, time.Time{}
	return func(ctx context.Context, s store.Store) (store.Claim, error) {
		_, err := s.Settle(ctx, queue, released)
		return c, err
	}
}

var (
	opSettle    = withQueue("settle", changes, store.Store.Settle, each(store.CheckQueue, checkSettlement))
	opExtend    = withQueue("extend", changes, store.Store.Extend, each(store.CheckQueue, checkExtension))
	opCancel    = withQueue("cancel", changes, store.Store.Cancel, checkCancel)
	opHistogram = withQueue("histogram", reads, store.Store.Histogram, named(store.CheckBounds))
	opKeys      = withQueue("keys", reads, store.Store.Keys, named(store.KeysRequest.Check))

	opReschedule    = withTwo("reschedule", store.Store.Reschedule, checkReschedule)
	opSetProperties = withTwo("set_properties", onlyTwo(store.Store.SetProperties), checkProperties)

	opStats      = ofQueue("stats", reads, store.Store.Stats)
	opProperties = ofQueue("properties", reads, store.Store.Properties)
	opActivity   = ofQueue("activity", reads, store.Store.Activity)
)

// The operations that change queues, beyond the everyday work of programs.
var (
	opRestore = withQueue("restore", changes, store.Store.Restore,
		each(store.CheckNewQueue, (*store.Info).CheckNew)).administers("import",
		func(a *onQueue[[]store.Info], _ []store.SendResult) int { return len(a.Arg) })
	// opRemove checks only the ids: the store removes a message only if its own is the same.
	opRemove = withQueue("remove", changes, store.Store.Remove,
		each(store.CheckQueue, func(i *store.Info) error { return store.CheckID(i.ID) })).administers("remove",
		func(a *onQueue[[]store.Info], _ []bool) int { return len(a.Arg) })
	opReplay = withTwo("replay", store.Store.Replay, checkBulk).administers("replay", countDone)
	opPurge  = withTwo("purge",
		func(s store.Store, ctx context.Context, queue string, sel store.Selection, _ store.Due) (store.Bulk, error) {
			return s.Purge(ctx, queue, sel)
		}, checkBulk).administers("purge", countDone)
	opSetDeadRetention = withTwo("set_dead_retention", onlyTwo(store.Store.SetDeadRetention),
		checkRetention).administers("retain", nil)
	opSetFlow    = withTwo("set_flow", onlyTwo(store.Store.SetFlow), checkFlow).administers("flow", nil)
	opSetKeyFlow = withTwo("set_key_flow", onlyTwo(store.Store.SetKeyFlow), checkKeyFlow).administers("flow", nil)
	opResumeKey  = withQueue("resume_key", changes, only(store.Store.ResumeKey), checkResume).administers("key", nil)
	opSetShards  = withQueue("set_shards", changes,
		func(s store.Store, ctx context.Context, queue string, n int) (none, error) {
			return none{}, store.SetShards(ctx, s, queue, n)
		}, store.CheckShards).administers("set_shards", nil)
	opDelete = ofQueue("delete", changes, func(s store.Store, ctx context.Context, queue string) (none, error) {
		return none{}, s.Delete(ctx, queue)
	}).administers("delete", nil)
	opSetPaused = func() *operation[onQueue[bool], none] {
		op := withQueue("set_paused", changes, only(store.Store.SetPaused), checkPause)
		op.change = func(a *onQueue[bool], _ none) Change {
			if a.Arg {
				return Change{"pause", a.Queue, 0}
			}
			return Change{"resume", a.Queue, 0}
		}
		return op
	}()
)

// opGet is answered in pages: a server returns the first messages that were asked for, one at least.
var opGet = &operation[onQueue[[]string], []*store.Info]{
	name: "get", large: func(*onQueue[[]string]) int { return store.MaxBatchBytes + getStep*store.MaxPayload },
	check: func(a *onQueue[[]string]) error { return checkIDs(a.Queue, a.Arg) },
	run: func(ctx context.Context, s store.Store, a *onQueue[[]string]) ([]*store.Info, error) {
		return s.Get(ctx, a.Queue, a.Arg)
	},
	runAt: func(ctx context.Context, s *Server, a *onQueue[[]string]) (infos []*store.Info, err error) {
		size := 0
		for left := a.Arg; len(left) > 0 && size < store.MaxBatchBytes; {
			n := min(len(left), getStep)
			step, err := s.store.Get(ctx, a.Queue, left[:n])
			if err != nil {
				return nil, err
			}
			for _, info := range step {
				if info != nil {
					size += info.Size()
				}
			}
			infos, left = append(infos, step...), left[n:]
		}
		return infos, nil
	},
}

// getStep is how many messages a server gets at a time, since it does not know their sizes before.
const getStep = 8

var opList = &operation[onQueue[store.ListRequest], store.Page]{
	name: "list", check: func(a *onQueue[store.ListRequest]) error { return checkList(a.Queue, a.Arg) },
	large: func(*onQueue[store.ListRequest]) int { return store.MaxBatchBytes + store.MaxPayload },
	run: func(ctx context.Context, s store.Store, a *onQueue[store.ListRequest]) (store.Page, error) {
		return s.List(ctx, a.Queue, a.Arg)
	},
}

var opQueues = &operation[queuesArgs, queuesPage]{
	name: "queues",
	run: func(ctx context.Context, s store.Store, a *queuesArgs) (queuesPage, error) {
		names, next, err := s.Queues(ctx, a.Cursor)
		return queuesPage{names, next}, err
	},
}

var opReport = &operation[reportArgs, []store.ReportResult]{
	name: "report", kind: once, check: (*reportArgs).check,
	run: func(ctx context.Context, s store.Store, a *reportArgs) ([]store.ReportResult, error) {
		return s.Report(ctx, a.Reports)
	},
}

var opPing = &operation[none, none]{
	name: "ping",
	run: func(ctx context.Context, s store.Store, _ *none) (none, error) {
		if p, ok := store.As[store.Pinger](s); ok {
			return none{}, p.Ping(ctx)
		}
		_, err := s.Stats(ctx, "ping")
		return none{}, err
	},
}

var opSync = &operation[none, none]{
	name: "sync", kind: long,
	run: func(ctx context.Context, s store.Store, _ *none) (none, error) {
		if syncer, ok := store.As[store.Syncer](s); ok {
			return none{}, syncer.Sync(ctx)
		}
		return none{}, nil
	},
}

var opLinked = withQueue("linked", reads,
	func(s store.Store, _ context.Context, queue, other string) (bool, error) {
		return store.Linked(s, queue, other), nil
	}, checkPair)

var opSameServer = withQueue("same_server", reads,
	func(s store.Store, ctx context.Context, queue, other string) (bool, error) {
		p, ok := s.(store.Placer)
		return !ok || p.SameServer(ctx, queue, other), nil
	}, checkPair)

var opForwardsTo = withQueue("forwards_to", reads,
	func(s store.Store, _ context.Context, queue string, to store.Target) (bool, error) {
		if f, ok := s.(store.Forwarder); ok {
			return f.ForwardsTo(queue, to)
		}
		if err := to.Check(); err != nil || to.Kind == store.TargetQueue {
			return false, err
		}
		return false, cannotForward(to)
	}, func(queue string, _ store.Target) error { return store.CheckQueue(queue) })

var opForward = withQueue("forward", changes,
	func(s store.Store, ctx context.Context, queue string, req store.ForwardRequest) (store.Forwarded, error) {
		if f, ok := s.(store.Forwarder); ok {
			return f.Forward(ctx, queue, req)
		}
		return store.Forwarded{}, cannotForward(req.To)
	}, checkForward)

var opDeliver = &operation[deliverArgs, none]{
	name: "deliver", kind: changes, check: (*deliverArgs).check,
	run: func(ctx context.Context, s store.Store, a *deliverArgs) (none, error) {
		if f, ok := s.(store.Forwarder); ok {
			return none{}, f.Deliver(ctx, a.To, a.Messages)
		}
		return none{}, cannotForward(a.To)
	},
}

func cannotForward(to store.Target) error {
	return fmt.Errorf("destination %q needs Redis, and this store has only queues: %w", to, store.ErrUnsupported)
}

var opShards = ofQueue("shards", reads,
	func(s store.Store, ctx context.Context, queue string) (store.Shards, error) {
		return store.ShardsOf(ctx, s, queue)
	})

// opBackup writes to the disk of the server's machine, so a server offers it only to clients on the same one.
var opBackup = &operation[backupArgs, none]{
	name: "backup", kind: long,
	run: func(ctx context.Context, s store.Store, a *backupArgs) (none, error) {
		b, ok := store.As[store.Backuper](s)
		if !ok {
			return none{}, fmt.Errorf("%w: only the embedded store can back itself up to a directory: write the "+
				"messages to a file with later export, or use the backups of the server", store.ErrUnsupported)
		}
		return none{}, b.Backup(store.WithRequest(ctx, store.Request{Session: a.ID, Number: 1}), a.Dir)
	},
}

// endpoints are all operations by path.
var endpoints = func() map[string]endpoint {
	by := map[string]endpoint{}
	for _, e := range []endpoint{
		opSend, opClaim, opSettle, opExtend, opWait, opLeave, opCancel, opReschedule, opGet, opList,
		opRestore, opRemove,
		opReplay, opPurge, opStats, opHistogram, opSetPaused, opSetDeadRetention, opSetFlow, opSetKeyFlow,
		opResumeKey, opKeys, opSetProperties,
		opProperties, opQueues,
		opDelete, opReport, opActivity, opPing, opSync, opLinked, opSameServer, opForwardsTo, opForward,
		opDeliver, opBackup, opSetShards, opShards,
		opWatch, opWatchAdd, opCheck,
	} {
		by[e.path()] = e
	}
	return by
}()
