package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// none is the result of a call that only has an error.
type none struct{}

// onQueue is the arguments of a call about a queue that has one more argument.
type onQueue[T any] struct {
	Queue string
	Arg   T
}

func about[T any](queue string, arg T) *onQueue[T] { return &onQueue[T]{queue, arg} }

type (
	queueArgs      struct{ Queue string }
	sendArgs       = onQueue[[]store.Outgoing]
	claimArgs      = onQueue[store.ClaimRequest]
	rescheduleArgs struct {
		Queue string
		IDs   []string
		Due   store.Due
	}
	bulkArgs struct {
		Queue     string
		Selection store.Selection
		Due       store.Due
	}
	retentionArgs struct {
		Queue     string
		Retention store.Retention
		Former    *store.Retention
	}
	flowArgs struct {
		Queue  string
		Flow   store.Flow
		Former *store.Flow
	}
	keyFlowArgs struct {
		Queue, Key string
		Override   store.KeyOverride
	}
	keyArgs  struct{ Queue, Key string }
	keysArgs struct {
		Queue   string
		Request store.KeysRequest
	}
	propertiesArgs struct {
		Queue string
		Set   map[string]string
		If    *store.Condition
	}
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
	pairArgs   struct{ Queue, Other string }
	backupArgs struct {
		Dir string
		ID  string // of this call, for repetitions
	}
)

// ofQueue returns the operation of a method that has only a queue as its argument.
func ofQueue[R any](name string, method func(store.Store, context.Context, string) (R, error)) *operation[
	queueArgs, R] {
	return &operation[queueArgs, R]{
		name: name, check: (*queueArgs).check,
		run: func(ctx context.Context, s store.Store, a *queueArgs) (R, error) { return method(s, ctx, a.Queue) },
	}
}

// withQueue returns the operation of a method that has a queue and one more argument.
func withQueue[T, R any](name string, k kind, method func(store.Store, context.Context, string, T) (R, error),
	check func(queue string, arg T) error) *operation[onQueue[T], R] {
	return &operation[onQueue[T], R]{
		name: name, kind: k,
		run: func(ctx context.Context, s store.Store, a *onQueue[T]) (R, error) {
			return method(s, ctx, a.Queue, a.Arg)
		},
		check: func(a *onQueue[T]) error { return check(a.Queue, a.Arg) },
	}
}

// administers has an operation reported to Server.OnChange.
func (op *operation[A, R]) administers(change func(args *A, result R) Change) *operation[A, R] {
	op.change = change
	return op
}

var opSend = &operation[sendArgs, []store.SendResult]{
	name: "send", kind: changes,
	check: func(a *sendArgs) error { return checkSends(a.Queue, a.Arg) },
	run: func(ctx context.Context, s store.Store, a *sendArgs) ([]store.SendResult, error) {
		return s.Send(ctx, a.Queue, a.Arg)
	},
	takes: func(a *sendArgs) time.Duration {
		if len(a.Arg) == 0 {
			return 0
		}
		return a.Arg[0].Durable.Timeout
	},
}

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
	opHistogram = withQueue("histogram", reads, store.Store.Histogram, checkHistogram)

	opStats      = ofQueue("stats", store.Store.Stats)
	opProperties = ofQueue("properties", store.Store.Properties)
	opActivity   = ofQueue("activity", store.Store.Activity)

	opRestore = withQueue("restore", changes, store.Store.Restore,
		each(store.CheckNewQueue, (*store.Info).CheckNew)).administers(
		func(a *onQueue[[]store.Info], _ []store.SendResult) Change {
			return Change{"import", a.Queue, len(a.Arg)}
		})
	// opRemove checks only the ids: the store removes a message only if its own is the same.
	opRemove = withQueue("remove", changes, store.Store.Remove,
		each(store.CheckQueue, func(i *store.Info) error { return store.CheckID(i.ID) })).administers(
		func(a *onQueue[[]store.Info], _ []bool) Change { return Change{"remove", a.Queue, len(a.Arg)} })
)

var opReschedule = &operation[rescheduleArgs, []error]{
	name: "reschedule", kind: changes, check: (*rescheduleArgs).check,
	run: func(ctx context.Context, s store.Store, a *rescheduleArgs) ([]error, error) {
		return s.Reschedule(ctx, a.Queue, a.IDs, a.Due)
	},
}

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

var opReplay = &operation[bulkArgs, store.Bulk]{
	name: "replay", kind: changes, check: (*bulkArgs).check,
	run: func(ctx context.Context, s store.Store, a *bulkArgs) (store.Bulk, error) {
		return s.Replay(ctx, a.Queue, a.Selection, a.Due)
	},
	change: func(a *bulkArgs, done store.Bulk) Change { return Change{"replay", a.Queue, done.Done} },
}

var opPurge = &operation[bulkArgs, store.Bulk]{
	name: "purge", kind: changes, check: (*bulkArgs).check,
	run: func(ctx context.Context, s store.Store, a *bulkArgs) (store.Bulk, error) {
		return s.Purge(ctx, a.Queue, a.Selection)
	},
	change: func(a *bulkArgs, done store.Bulk) Change { return Change{"purge", a.Queue, done.Done} },
}

var opSetPaused = &operation[onQueue[bool], none]{
	name: "set_paused", kind: changes, check: func(a *onQueue[bool]) error { return checkPause(a.Queue, a.Arg) },
	run: func(ctx context.Context, s store.Store, a *onQueue[bool]) (none, error) {
		return none{}, s.SetPaused(ctx, a.Queue, a.Arg)
	},
	change: func(a *onQueue[bool], _ none) Change {
		if a.Arg {
			return Change{"pause", a.Queue, 0}
		}
		return Change{"resume", a.Queue, 0}
	},
}

var opSetDeadRetention = &operation[retentionArgs, none]{
	name: "set_dead_retention", kind: changes, check: (*retentionArgs).check,
	run: func(ctx context.Context, s store.Store, a *retentionArgs) (none, error) {
		return none{}, s.SetDeadRetention(ctx, a.Queue, a.Retention, a.Former)
	},
	change: func(a *retentionArgs, _ none) Change { return Change{"retain", a.Queue, 0} },
}

var opSetFlow = &operation[flowArgs, none]{
	name: "set_flow", kind: changes, check: (*flowArgs).check,
	run: func(ctx context.Context, s store.Store, a *flowArgs) (none, error) {
		return none{}, s.SetFlow(ctx, a.Queue, a.Flow, a.Former)
	},
	change: func(a *flowArgs, _ none) Change { return Change{"flow", a.Queue, 0} },
}

var opSetKeyFlow = &operation[keyFlowArgs, none]{
	name: "set_key_flow", kind: changes, check: (*keyFlowArgs).check,
	run: func(ctx context.Context, s store.Store, a *keyFlowArgs) (none, error) {
		return none{}, s.SetKeyFlow(ctx, a.Queue, a.Key, a.Override)
	},
	change: func(a *keyFlowArgs, _ none) Change { return Change{"flow", a.Queue, 0} },
}

var opResumeKey = &operation[keyArgs, none]{
	name: "resume_key", kind: changes, check: (*keyArgs).check,
	run: func(ctx context.Context, s store.Store, a *keyArgs) (none, error) {
		return none{}, s.ResumeKey(ctx, a.Queue, a.Key)
	},
	change: func(a *keyArgs, _ none) Change { return Change{"key", a.Queue, 0} },
}

var opKeys = &operation[keysArgs, []store.KeyState]{
	name: "keys", kind: reads, check: (*keysArgs).check,
	run: func(ctx context.Context, s store.Store, a *keysArgs) ([]store.KeyState, error) {
		return s.Keys(ctx, a.Queue, a.Request)
	},
}

var opSetProperties = &operation[propertiesArgs, none]{
	name: "set_properties", kind: changes, check: (*propertiesArgs).check,
	run: func(ctx context.Context, s store.Store, a *propertiesArgs) (none, error) {
		return none{}, s.SetProperties(ctx, a.Queue, a.Set, a.If)
	},
}

var opQueues = &operation[queuesArgs, queuesPage]{
	name: "queues",
	run: func(ctx context.Context, s store.Store, a *queuesArgs) (queuesPage, error) {
		names, next, err := s.Queues(ctx, a.Cursor)
		return queuesPage{names, next}, err
	},
}

var opDelete = &operation[queueArgs, none]{
	name: "delete", kind: changes, check: (*queueArgs).check,
	run: func(ctx context.Context, s store.Store, a *queueArgs) (none, error) {
		return none{}, s.Delete(ctx, a.Queue)
	},
	change: func(a *queueArgs, _ none) Change { return Change{"delete", a.Queue, 0} },
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

var opLinked = &operation[pairArgs, bool]{
	name: "linked", check: (*pairArgs).check,
	run: func(_ context.Context, s store.Store, a *pairArgs) (bool, error) {
		return store.Linked(s, a.Queue, a.Other), nil
	},
}

var opSameServer = &operation[pairArgs, bool]{
	name: "same_server", check: (*pairArgs).check,
	run: func(ctx context.Context, s store.Store, a *pairArgs) (bool, error) {
		p, ok := s.(store.Placer)
		return !ok || p.SameServer(ctx, a.Queue, a.Other), nil
	},
}

var opForwardsTo = &operation[onQueue[store.Target], bool]{
	name: "forwards_to", check: func(a *onQueue[store.Target]) error { return store.CheckQueue(a.Queue) },
	run: func(_ context.Context, s store.Store, a *onQueue[store.Target]) (bool, error) {
		if f, ok := s.(store.Forwarder); ok {
			return f.ForwardsTo(a.Queue, a.Arg)
		}
		if err := a.Arg.Check(); err != nil || a.Arg.Kind == store.TargetQueue {
			return false, err
		}
		return false, cannotForward(a.Arg)
	},
}

var opForward = &operation[onQueue[store.ForwardRequest], store.Forwarded]{
	name: "forward", kind: changes,
	check: func(a *onQueue[store.ForwardRequest]) error { return checkForward(a.Queue, a.Arg) },
	run: func(ctx context.Context, s store.Store, a *onQueue[store.ForwardRequest]) (store.Forwarded, error) {
		if f, ok := s.(store.Forwarder); ok {
			return f.Forward(ctx, a.Queue, a.Arg)
		}
		return store.Forwarded{}, cannotForward(a.Arg.To)
	},
}

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

var opSetShards = &operation[onQueue[int], none]{
	name: "set_shards", kind: changes,
	check: func(a *onQueue[int]) error { return store.CheckShards(a.Queue, a.Arg) },
	run: func(ctx context.Context, s store.Store, a *onQueue[int]) (none, error) {
		return none{}, store.SetShards(ctx, s, a.Queue, a.Arg)
	},
	change: func(a *onQueue[int], _ none) Change { return Change{"set_shards", a.Queue, 0} },
}

var opShards = &operation[queueArgs, store.Shards]{
	name: "shards", check: (*queueArgs).check,
	run: func(ctx context.Context, s store.Store, a *queueArgs) (store.Shards, error) {
		return store.ShardsOf(ctx, s, a.Queue)
	},
}

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
