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
// Its State is StateScheduled, StateReady, StateDead or StateNone, and StateDead if it has ids, of which there are at
// most MaxBatch. Leased messages are purged only with all others.
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

func (s Selection) checkIDs() error {
	if len(s.IDs) > MaxBatch {
		return Invalid("%d ids are given: the limit is %d", len(s.IDs), MaxBatch)
	}
	return nil
}

// Check returns an ErrInvalid unless the state can be listed.
func (r ListRequest) Check() error {
	switch r.State {
	case StateScheduled, StateReady, StateLeased, StateDead:
		return nil
	}
	return Invalid("state is %q: list scheduled, ready, leased or dead", r.State)
}

// Check returns an ErrInvalid unless a is a way to settle a message.
func (a Action) Check() error {
	if a < Ack || a > Bury {
		return Invalid("%d is not a way to settle a message: give Ack, Nack, Snooze, Release or Bury", a)
	}
	return nil
}
