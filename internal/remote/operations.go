package remote

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/store"
)

// none is the result of a call that only has an error.
type none struct{}

type queueArgs struct{ Queue string }

type idsArgs struct {
	Queue string
	IDs   []string
}

type (
	sendArgs struct {
		Queue    string
		Messages []store.Outgoing
	}
	claimArgs struct {
		Queue   string
		Request store.ClaimRequest
	}
	settleArgs struct {
		Queue       string
		Settlements []store.Settlement
	}
	extendArgs struct {
		Queue      string
		Extensions []store.Extension
	}
	cancelArgs struct {
		Queue   string
		Request store.CancelRequest
	}
	rescheduleArgs struct {
		Queue string
		IDs   []string
		Due   store.Due
	}
	listArgs struct {
		Queue   string
		Request store.ListRequest
	}
	restoreArgs struct {
		Queue string
		Infos []store.Info
	}
	removeArgs struct {
		Queue string
		Infos []store.Info
	}
	bulkArgs struct {
		Queue     string
		Selection store.Selection
		Due       store.Due
	}
	histogramArgs struct {
		Queue  string
		Bounds []time.Time
	}
	pauseArgs struct {
		Queue  string
		Paused bool
	}
	retentionArgs struct {
		Queue     string
		Retention store.Retention
		Former    *store.Retention
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
	forwardArgs struct {
		Queue   string
		Request store.ForwardRequest
	}
	deliverArgs struct {
		To       store.Target
		Messages []store.Claimed
	}
	targetArgs struct {
		Queue string
		To    store.Target
	}
	pairArgs   struct{ Queue, Other string }
	backupArgs struct {
		Dir string
		ID  string // of this call, for repetitions
	}
)

var opSend = &operation[sendArgs, []store.SendResult]{
	name: "send", kind: changes,
	run: func(ctx context.Context, s store.Store, a *sendArgs) ([]store.SendResult, error) {
		return s.Send(ctx, a.Queue, a.Messages)
	},
	takes: func(a *sendArgs) time.Duration {
		if len(a.Messages) == 0 {
			return 0
		}
		return a.Messages[0].Durable.Timeout
	},
}

var opClaim = &operation[claimArgs, store.Claim]{
	name: "claim", kind: changes,
	run: func(ctx context.Context, s store.Store, a *claimArgs) (store.Claim, error) {
		return s.Claim(ctx, a.Queue, a.Request)
	},
	reuse: func(a *claimArgs) store.Claim {
		buffer := a.Request.Buffer
		a.Request.Buffer = nil
		return store.Claim{Messages: buffer}
	},
	large: func(a *claimArgs) int {
		return min(a.Request.Max*store.MaxPayload, store.MaxBatchBytes+store.MaxPayload)
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

var opSettle = &operation[settleArgs, []store.SettleResult]{
	name: "settle", kind: changes,
	run: func(ctx context.Context, s store.Store, a *settleArgs) ([]store.SettleResult, error) {
		return s.Settle(ctx, a.Queue, a.Settlements)
	},
}

var opExtend = &operation[extendArgs, []store.ExtendResult]{
	name: "extend", kind: changes,
	run: func(ctx context.Context, s store.Store, a *extendArgs) ([]store.ExtendResult, error) {
		return s.Extend(ctx, a.Queue, a.Extensions)
	},
}

var opCancel = &operation[cancelArgs, []store.CancelResult]{
	name: "cancel", kind: changes,
	run: func(ctx context.Context, s store.Store, a *cancelArgs) ([]store.CancelResult, error) {
		return s.Cancel(ctx, a.Queue, a.Request)
	},
}

var opReschedule = &operation[rescheduleArgs, []error]{
	name: "reschedule", kind: changes,
	run: func(ctx context.Context, s store.Store, a *rescheduleArgs) ([]error, error) {
		return s.Reschedule(ctx, a.Queue, a.IDs, a.Due)
	},
}

// opGet is answered in pages: a server returns the first messages that were asked for, one at least.
var opGet = &serverOperation[idsArgs, []*store.Info]{
	operation: operation[idsArgs, []*store.Info]{
		name: "get", large: func(*idsArgs) int { return store.MaxBatchBytes + getStep*store.MaxPayload },
		run: func(ctx context.Context, s store.Store, a *idsArgs) ([]*store.Info, error) {
			return s.Get(ctx, a.Queue, a.IDs)
		},
	},
	runAt: func(ctx context.Context, s *Server, a *idsArgs) (infos []*store.Info, err error) {
		size := 0
		for left := a.IDs; len(left) > 0 && size < store.MaxBatchBytes; {
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

var opList = &operation[listArgs, store.Page]{
	name: "list", large: func(*listArgs) int { return store.MaxBatchBytes + store.MaxPayload },
	run: func(ctx context.Context, s store.Store, a *listArgs) (store.Page, error) {
		return s.List(ctx, a.Queue, a.Request)
	},
}

var opRestore = &operation[restoreArgs, []store.SendResult]{
	name: "restore", kind: changes,
	run: func(ctx context.Context, s store.Store, a *restoreArgs) ([]store.SendResult, error) {
		return s.Restore(ctx, a.Queue, a.Infos)
	},
	change: func(a *restoreArgs, _ []store.SendResult) Change { return Change{"import", a.Queue, len(a.Infos)} },
}

var opRemove = &operation[removeArgs, []bool]{
	name: "remove", kind: changes,
	run: func(ctx context.Context, s store.Store, a *removeArgs) ([]bool, error) {
		return s.Remove(ctx, a.Queue, a.Infos)
	},
	change: func(a *removeArgs, _ []bool) Change { return Change{"remove", a.Queue, len(a.Infos)} },
}

var opReplay = &operation[bulkArgs, store.Bulk]{
	name: "replay", kind: changes,
	run: func(ctx context.Context, s store.Store, a *bulkArgs) (store.Bulk, error) {
		return s.Replay(ctx, a.Queue, a.Selection, a.Due)
	},
	change: func(a *bulkArgs, done store.Bulk) Change { return Change{"replay", a.Queue, done.Done} },
}

var opPurge = &operation[bulkArgs, store.Bulk]{
	name: "purge", kind: changes,
	run: func(ctx context.Context, s store.Store, a *bulkArgs) (store.Bulk, error) {
		return s.Purge(ctx, a.Queue, a.Selection)
	},
	change: func(a *bulkArgs, done store.Bulk) Change { return Change{"purge", a.Queue, done.Done} },
}

var opStats = &operation[queueArgs, store.Stats]{
	name: "stats",
	run: func(ctx context.Context, s store.Store, a *queueArgs) (store.Stats, error) {
		return s.Stats(ctx, a.Queue)
	},
}

var opHistogram = &operation[histogramArgs, []int64]{
	name: "histogram",
	run: func(ctx context.Context, s store.Store, a *histogramArgs) ([]int64, error) {
		return s.Histogram(ctx, a.Queue, a.Bounds)
	},
}

var opSetPaused = &operation[pauseArgs, none]{
	name: "set_paused", kind: changes,
	run: func(ctx context.Context, s store.Store, a *pauseArgs) (none, error) {
		return none{}, s.SetPaused(ctx, a.Queue, a.Paused)
	},
	change: func(a *pauseArgs, _ none) Change {
		if a.Paused {
			return Change{"pause", a.Queue, 0}
		}
		return Change{"resume", a.Queue, 0}
	},
}

var opSetDeadRetention = &operation[retentionArgs, none]{
	name: "set_dead_retention", kind: changes,
	run: func(ctx context.Context, s store.Store, a *retentionArgs) (none, error) {
		return none{}, s.SetDeadRetention(ctx, a.Queue, a.Retention, a.Former)
	},
	change: func(a *retentionArgs, _ none) Change { return Change{"retain", a.Queue, 0} },
}

var opSetProperties = &operation[propertiesArgs, none]{
	name: "set_properties", kind: changes,
	run: func(ctx context.Context, s store.Store, a *propertiesArgs) (none, error) {
		return none{}, s.SetProperties(ctx, a.Queue, a.Set, a.If)
	},
}

var opProperties = &operation[queueArgs, map[string]string]{
	name: "properties",
	run: func(ctx context.Context, s store.Store, a *queueArgs) (map[string]string, error) {
		return s.Properties(ctx, a.Queue)
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
	name: "delete", kind: changes,
	run: func(ctx context.Context, s store.Store, a *queueArgs) (none, error) {
		return none{}, s.Delete(ctx, a.Queue)
	},
	change: func(a *queueArgs, _ none) Change { return Change{"delete", a.Queue, 0} },
}

var opReport = &operation[reportArgs, []store.ReportResult]{
	name: "report", kind: once,
	run: func(ctx context.Context, s store.Store, a *reportArgs) ([]store.ReportResult, error) {
		return s.Report(ctx, a.Reports)
	},
}

var opActivity = &operation[queueArgs, store.Activity]{
	name: "activity",
	run: func(ctx context.Context, s store.Store, a *queueArgs) (store.Activity, error) {
		return s.Activity(ctx, a.Queue)
	},
}

var opPing = &operation[none, none]{
	name: "ping",
	run: func(ctx context.Context, s store.Store, _ *none) (none, error) {
		if p, ok := s.(store.Pinger); ok {
			return none{}, p.Ping(ctx)
		}
		_, err := s.Stats(ctx, "ping")
		return none{}, err
	},
}

var opSync = &operation[none, none]{
	name: "sync", kind: long,
	run: func(ctx context.Context, s store.Store, _ *none) (none, error) {
		if syncer, ok := s.(store.Syncer); ok {
			return none{}, syncer.Sync(ctx)
		}
		return none{}, nil
	},
}

var opLinked = &operation[pairArgs, bool]{
	name: "linked",
	run: func(_ context.Context, s store.Store, a *pairArgs) (bool, error) {
		return store.Linked(s, a.Queue, a.Other), nil
	},
}

var opSameServer = &operation[pairArgs, bool]{
	name: "same_server",
	run: func(ctx context.Context, s store.Store, a *pairArgs) (bool, error) {
		p, ok := s.(store.Placer)
		return !ok || p.SameServer(ctx, a.Queue, a.Other), nil
	},
}

var opForwardsTo = &operation[targetArgs, bool]{
	name: "forwards_to",
	run: func(_ context.Context, s store.Store, a *targetArgs) (bool, error) {
		if f, ok := s.(store.Forwarder); ok {
			return f.ForwardsTo(a.Queue, a.To)
		}
		if err := a.To.Check(); err != nil || a.To.Kind == store.TargetQueue {
			return false, err
		}
		return false, cannotForward(a.To)
	},
}

var opForward = &operation[forwardArgs, store.Forwarded]{
	name: "forward", kind: changes,
	run: func(ctx context.Context, s store.Store, a *forwardArgs) (store.Forwarded, error) {
		if f, ok := s.(store.Forwarder); ok {
			return f.Forward(ctx, a.Queue, a.Request)
		}
		return store.Forwarded{}, cannotForward(a.Request.To)
	},
}

var opDeliver = &operation[deliverArgs, none]{
	name: "deliver", kind: changes,
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

// opBackup writes to the disk of the server's machine, so a server offers it only to clients on the same one.
var opBackup = &operation[backupArgs, none]{
	name: "backup", kind: long,
	run: func(ctx context.Context, s store.Store, a *backupArgs) (none, error) {
		b, ok := s.(store.Backuper)
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
		opReplay, opPurge, opStats, opHistogram, opSetPaused, opSetDeadRetention, opSetProperties, opProperties,
		opQueues,
		opDelete, opReport, opActivity, opPing, opSync, opLinked, opSameServer, opForwardsTo, opForward,
		opDeliver, opBackup,
		opWatch, opWatchAdd, opCheck,
	} {
		by[e.path()] = e
	}
	return by
}()
