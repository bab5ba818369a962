package remote

import "github.com/laterq/later/store"

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

// named returns a check of the name of a queue that exists, and of one more argument.
func named[T any](check func(arg T) error) func(queue string, arg T) error {
	return func(queue string, arg T) error {
		if err := store.CheckQueue(queue); err != nil {
			return err
		}
		return check(arg)
	}
}

var checkIDs = each(store.CheckQueue, checkID)

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

var checkClaim = named(func(req store.ClaimRequest) error {
	if err := checkMax(req.Max); err != nil {
		return err
	}
	if req.Ahead < 0 || req.Ahead > req.Max {
		return store.Invalid("%d of %d messages are asked for ahead: must be 0 to %d", req.Ahead, req.Max, req.Max)
	}
	return store.CheckLease(req.Lease)
})

func checkCancel(queue string, req store.CancelRequest) error { return checkIDs(queue, req.IDs) }

func checkReschedule(queue string, ids []string, due store.Due) error {
	if err := due.Check(); err != nil {
		return err
	}
	return checkIDs(queue, ids)
}

func checkBulk(queue string, sel store.Selection, due store.Due) error {
	return checkReschedule(queue, sel.IDs, due)
}

var checkList = named(func(req store.ListRequest) error { return checkMax(req.Limit) })

func checkPause(queue string, paused bool) error {
	if paused {
		return store.CheckNewQueue(queue)
	}
	return store.CheckQueue(queue)
}

func checkRetention(queue string, _ store.Retention, _ *store.Retention) error {
	return store.CheckNewQueue(queue)
}

func checkFlow(queue string, f store.Flow, _ *store.Flow) error {
	if err := store.CheckNewQueue(queue); err != nil {
		return err
	}
	return store.CheckFlow(queue, f)
}

func checkKeyFlow(queue, key string, o store.KeyOverride) error {
	if err := store.CheckQueue(queue); err != nil {
		return err
	}
	return store.CheckKeyFlow(queue, key, o)
}

func checkResume(queue, key string) error {
	if err := store.CheckQueue(queue); err != nil {
		return err
	}
	return store.CheckResume(queue, key)
}

func checkProperties(queue string, set map[string]string, _ *store.Condition) error {
	for _, value := range set {
		if value != "" { // else it only removes, which creates no queue
			return store.CheckNewQueue(queue)
		}
	}
	return store.CheckQueue(queue)
}

func (a *reportArgs) check() error { return checkAll(a.Reports, (*store.Report).Check) }

var checkForward = named(func(req store.ForwardRequest) error {
	if err := checkMax(req.Max); err != nil {
		return err
	}
	return req.To.Check()
})

func (a *deliverArgs) check() error { return a.To.Check() }

var checkPair = named(store.CheckQueue)
