package diskstore

import "time"

const (
	// maxPause bounds the pause of a compaction after a write.
	maxPause = 20 * time.Millisecond
	// manySublevels is how many sublevels of new tables say that compactions do not keep up. They make reads slower.
	manySublevels = 3
	// checkSublevels is how often they are counted.
	checkSublevels = 100 * time.Millisecond
)

// pace pauses a compaction for as long as it has worked since resumed, so that it leaves half of a core and half of the
// disk's time to claims and to the fsyncs of the log. One that the writer waits for, or that is behind, does not pause.
func (r *reserve) pace(resumed time.Time) {
	now := time.Now()
	r.mu.Lock()
	hurry := r.stalled || r.ended() || resumed.IsZero()
	count := !hurry && now.Sub(r.counted) >= checkSublevels
	if count {
		r.counted = now
	}
	behind := r.behind
	r.mu.Unlock()
	if count {
		behind = r.s.db.Metrics().Levels[0].Sublevels >= manySublevels
		r.mu.Lock()
		r.behind = behind
		r.mu.Unlock()
	}
	if hurry || behind {
		return
	}
	timer := time.NewTimer(min(now.Sub(resumed), maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.over.Done():
	}
}
