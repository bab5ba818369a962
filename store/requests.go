package store

// CheckReplay returns an ErrInvalid unless s can be replayed: its State is StateDead, and it has at most MaxBatch ids.
func (s Selection) CheckReplay() error {
	if s.State != StateDead {
		return Invalid("state is %q: only dead messages are replayed", s.State)
	}
	return s.checkIDs()
}

// CheckPurge returns an ErrInvalid unless s can be purged.
//
// Its State is StateScheduled, StateReady, StateDead or StateNone, and StateDead if it has ids, at most MaxBatch.
// Leased messages are purged only with all others.
func (s Selection) CheckPurge() error {
	switch s.State {
	case StateNone, StateScheduled, StateReady, StateDead:
	default:
		return Invalid("state is %q: purge scheduled, ready, dead or all messages", s.State)
	}
	if len(s.IDs) > 0 && s.State != StateDead {
		return Invalid("state is %q of messages given by id: only dead messages are purged by id", s.State)
	}
	return s.checkIDs()
}

// Limit returns the time that limits a Replay or Purge, in milliseconds since 1970: that of its first call.
func (s Selection) Limit(now int64) int64 {
	if s.Before.IsZero() {
		return now
	}
	return s.Before.UnixMilli()
}

func (s Selection) checkIDs() error {
	if len(s.IDs) > MaxBatch {
		return Invalid("%d ids are given: the limit is %d", len(s.IDs), MaxBatch)
	}
	return nil
}

// Check returns an ErrInvalid unless r can be set.
func (r Retention) Check() error {
	if r.MaxAge < 0 || r.MaxAge > MaxDelay {
		return Invalid("maximum age of dead messages is %v: must be up to %v, or 0 for no limit", r.MaxAge, MaxDelay)
	}
	if r.MaxCount < 0 || r.MaxCount > MaxDeadCount {
		return Invalid("maximum number of dead messages is %d: must be up to %d, or 0 for no limit", r.MaxCount,
			MaxDeadCount)
	}
	return nil
}

// Check returns an ErrInvalid unless the state or the group can be listed.
func (r ListRequest) Check() error {
	if r.Group != "" {
		switch {
		case r.State != StateNone:
			return Invalid("state %q and group %q are both given: list one of them", r.State, r.Group)
		case !r.From.IsZero() || !r.To.IsZero():
			return Invalid("a time range is given for group %q: only the messages in a state are listed by time",
				r.Group)
		}
		return CheckGroup(r.Group)
	}
	switch r.State {
	case StateScheduled, StateReady, StateLeased, StateDead:
		return nil
	}
	return Invalid("state is %q: give scheduled, ready, leased or dead, or list a group", r.State)
}

// Check returns an ErrInvalid unless the receipt may be one that an engine returned. It does not check Claim.
func (r *Receipt) Check() error {
	if r.Lease == "" || len(r.Lease) > MaxLeaseName {
		return Invalid("lease of a receipt is %d bytes long: must have 1 to %d", len(r.Lease), MaxLeaseName)
	}
	for _, c := range []byte(r.Lease) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '-' && c != '_' {
			return Invalid("lease %q of a receipt contains more than letters, digits, - and _", r.Lease)
		}
	}
	if r.Epoch < 0 {
		return Invalid("epoch of a receipt is %d: must be 0 or more", r.Epoch)
	}
	if r.Index < 0 || r.Index >= MaxBatch {
		return Invalid("index of a receipt is %d: must be 0 to %d", r.Index, MaxBatch-1)
	}
	return CheckID(r.ID)
}

// Check returns an ErrInvalid unless a is a way to settle a message.
func (a Action) Check() error {
	if a < Ack || a > GiveBack {
		return Invalid("%d is not a way to settle a message: give Ack, Nack, Snooze, Release, Bury or GiveBack", a)
	}
	return nil
}
