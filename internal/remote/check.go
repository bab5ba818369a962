package remote

import "github.com/laterq/later/store"

// A server checks its input as every caller of a store does, since any program can be the sender.

// checked is implemented by arguments that a server checks. It returns an ErrInvalid or ErrTooLarge.
type checked interface{ check() error }

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

// inNewQueue is inQueue for a call that may create the queue.
func inNewQueue[T any](queue string, all []T, check func(one *T) error) error {
	if err := store.CheckNewQueue(queue); err != nil {
		return err
	}
	return checkAll(all, check)
}

// inQueue returns the first error of a queue's name and a list.
func inQueue[T any](queue string, all []T, check func(one *T) error) error {
	if err := store.CheckQueue(queue); err != nil {
		return err
	}
	return checkAll(all, check)
}

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

func (a *idsArgs) check() error { return inQueue(a.Queue, a.IDs, checkID) }

func (a *sendArgs) check() error { return inNewQueue(a.Queue, a.Messages, (*store.Outgoing).Check) }

func (a *claimArgs) check() error {
	if err := store.CheckQueue(a.Queue); err != nil {
		return err
	}
	if err := checkMax(a.Request.Max); err != nil {
		return err
	}
	return store.CheckLease(a.Request.Lease)
}

func (a *settleArgs) check() error { return inQueue(a.Queue, a.Settlements, checkSettlement) }

func (a *extendArgs) check() error { return inQueue(a.Queue, a.Extensions, checkExtension) }

func (a *cancelArgs) check() error { return inQueue(a.Queue, a.Request.IDs, checkID) }

func (a *rescheduleArgs) check() error {
	if err := a.Due.Check(); err != nil {
		return err
	}
	return inQueue(a.Queue, a.IDs, checkID)
}

func (a *listArgs) check() error {
	if err := store.CheckQueue(a.Queue); err != nil {
		return err
	}
	return checkMax(a.Request.Limit)
}

func (a *restoreArgs) check() error { return inNewQueue(a.Queue, a.Infos, (*store.Info).CheckNew) }

// check checks only the ids: the store removes a message only if its own is the same.
func (a *removeArgs) check() error {
	return inQueue(a.Queue, a.Infos, func(i *store.Info) error { return store.CheckID(i.ID) })
}

func (a *bulkArgs) check() error {
	if err := a.Due.Check(); err != nil {
		return err
	}
	return inQueue(a.Queue, a.Selection.IDs, checkID)
}

func (a *histogramArgs) check() error {
	if err := store.CheckQueue(a.Queue); err != nil {
		return err
	}
	return store.CheckBounds(a.Bounds)
}

func (a *pauseArgs) check() error {
	if a.Paused {
		return store.CheckNewQueue(a.Queue)
	}
	return store.CheckQueue(a.Queue)
}

func (a *retentionArgs) check() error { return store.CheckNewQueue(a.Queue) }

func (a *propertiesArgs) check() error {
	for _, value := range a.Set {
		if value != "" { // else it only removes, which creates no queue
			return store.CheckNewQueue(a.Queue)
		}
	}
	return store.CheckQueue(a.Queue)
}

func (a *reportArgs) check() error { return checkAll(a.Reports, (*store.Report).Check) }

func (a *forwardArgs) check() error {
	if err := store.CheckQueue(a.Queue); err != nil {
		return err
	}
	if err := checkMax(a.Request.Max); err != nil {
		return err
	}
	return a.Request.To.Check()
}

func (a *deliverArgs) check() error { return a.To.Check() }

func (a *targetArgs) check() error { return store.CheckQueue(a.Queue) }

func (a *pairArgs) check() error {
	return checkAll([]string{a.Queue, a.Other}, checkQueueName)
}
