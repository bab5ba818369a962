package remote

import (
	"time"

	"github.com/laterq/later/store"
)

// checkAll returns the first error.
func checkAll[T any](all []T, check func(one *T) error) error {
	if len(all) > store.MaxBatch {
		return store.Invalid("a call has %d items: the limit is %d", len(all), store.MaxBatch)
	}
	for i := range all {
		if err := check(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

// each returns a check of a queue's name and a list: name is store.CheckQueue, or store.CheckNewQueue for a call that
// may create the queue.
func each[T any](name func(string) error, check func(one *T) error) func(queue string, all []T) error {
	return func(queue string, all []T) error {
		if err := name(queue); err != nil {
			return err
		}
		return checkAll(all, check)
	}
}

var (
	checkIDs   = each(store.CheckQueue, checkID)
	checkSends = each(store.CheckNewQueue, (*store.Outgoing).Check)
)

func checkID(id *string) error { return store.CheckID(*id) }

func checkMax(n int) error {
	if n < 1 || n > store.MaxBatch {
		return store.Invalid("%d messages are asked for: must be 1 to %d", n, store.MaxBatch)
	}
	return nil
}

// checkSettlement leaves receipts and actions to the store, which refuses them one by one.
func checkSettlement(s *store.Settlement) error {
	for _, delay := range []*store.Due{{Delay: s.Delay}, {Delay: s.DedupWindow}} {
		if err := delay.Check(); err != nil {
			return err
		}
	}
	if s.Reason != store.CutReason(s.Reason) {
		return store.TooLarge("reason is %d bytes long or not UTF-8: the limit is %d; cut it with CutReason",
			len(s.Reason), store.MaxReason)
	}
	return checkAll(s.Then, (*store.FollowUp).Check)
}

func checkExtension(e *store.Extension) error {
	if e.For == 0 {
		return nil
	}
	return store.CheckLease(e.For)
}

func checkQueueName(name *string) error { return store.CheckQueue(*name) }

func (a *queueArgs) check() error { return store.CheckQueue(a.Queue) }

func (a *waitArgs) check() error { return store.CheckQueue(a.Queue) }

func (a *watchArgs) check() error {
	if store.WatchesAll(a.Queues) {
		return nil
	}
	for _, name := range a.Queues { // a program may watch any number
		if err := store.CheckQueue(name); err != nil {
			return err
		}
	}
	return nil
}

func checkClaim(queue string, req store.ClaimRequest) error {
	if err := store.CheckQueue(queue); err != nil {
		return err
	}
	if err := checkMax(req.Max); err != nil {
		return err
	}
	if req.Ahead < 0 || req.Ahead > req.Max {
		return store.Invalid("%d of %d messages are asked for ahead: must be 0 to %d", req.Ahead, req.Max, req.Max)
	}
	return store.CheckLease(req.Lease)
}

func checkCancel(queue string, req store.CancelRequest) error {
	return checkIDs(queue, req.IDs)
}

func (a *rescheduleArgs) check() error {
	if err := a.Due.Check(); err != nil {
		return err
	}
	return checkIDs(a.Queue, a.IDs)
}

func checkList(queue string, req store.ListRequest) error {
	if err := store.CheckQueue(queue); err != nil {
		return err
	}
	return checkMax(req.Limit)
}

func (a *bulkArgs) check() error {
	if err := a.Due.Check(); err != nil {
		return err
	}
	return checkIDs(a.Queue, a.Selection.IDs)
}

func checkHistogram(queue string, bounds []time.Time) error {
	if err := store.CheckQueue(queue); err != nil {
		return err
	}
	return store.CheckBounds(bounds)
}

func checkPause(queue string, paused bool) error {
	if paused {
		return store.CheckNewQueue(queue)
	}
	return store.CheckQueue(queue)
}

func (a *retentionArgs) check() error { return store.CheckNewQueue(a.Queue) }

func (a *flowArgs) check() error {
	if err := store.CheckNewQueue(a.Queue); err != nil {
		return err
	}
	return store.CheckFlow(a.Queue, a.Flow)
}

func (a *keyFlowArgs) check() error {
	if err := store.CheckQueue(a.Queue); err != nil {
		return err
	}
	return store.CheckKeyFlow(a.Queue, a.Key, a.Override)
}

func (a *keyArgs) check() error {
	if err := store.CheckQueue(a.Queue); err != nil {
		return err
	}
	return store.CheckResume(a.Queue, a.Key)
}

func (a *keysArgs) check() error {
	if err := store.CheckQueue(a.Queue); err != nil {
		return err
	}
	return a.Request.Check()
}

func (a *propertiesArgs) check() error {
	for _, value := range a.Set {
		if value != "" { // else it only removes, which creates no queue
			return store.CheckNewQueue(a.Queue)
		}
	}
	return store.CheckQueue(a.Queue)
}

func (a *reportArgs) check() error { return checkAll(a.Reports, (*store.Report).Check) }

func checkForward(queue string, req store.ForwardRequest) error {
	if err := store.CheckQueue(queue); err != nil {
		return err
	}
	if err := checkMax(req.Max); err != nil {
		return err
	}
	return req.To.Check()
}

func (a *deliverArgs) check() error { return a.To.Check() }

func (a *pairArgs) check() error {
	return checkAll([]string{a.Queue, a.Other}, checkQueueName)
}
