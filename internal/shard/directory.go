package shard

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// directory says which sub-queues a queue has. It is the sign at the name of the queue.
type directory struct {
	Phase phase `json:"phase"`
	// Generation is in the names of the sub-queues, and Former in their names before the change: "" if the queue had one
	// shard and its own name.
	Generation string `json:"generation"`
	Former     string `json:"former,omitempty"`
	// From and To are the numbers of shards before the change and after it. They are equal once it is over.
	From int `json:"from"`
	To   int `json:"to"`
	// Salts are the salts of the larger number of shards.
	Salts []string `json:"salts"`
	// Begun is when the change began, by the clock of the process that began it, and Emptied when all messages were where
	// they belong, by the engine's; ms since 1970.
	Begun   int64 `json:"begun"`
	Emptied int64 `json:"emptied,omitempty"`
	// Flow is the limits of the queue, nil for none. SetsFlow is set until all shards have their shares of it. HasFlow is
	// not set until the first change of a queue has read its limits.
	Flow     *store.Flow `json:"flow,omitempty"`
	SetsFlow bool        `json:"sets_flow,omitempty"`
	HasFlow  bool        `json:"has_flow,omitempty"`
	// Claims names the shards that messages are claimed from during a change.
	Claims claims `json:"claims,omitempty"`
	// Until is the time in ms, by the clock of each shard, at which claims from a Fair queue end during a change: the
	// messages that are due before have moved. 0 is no end.
	Until int64 `json:"until,omitempty"`
	// Mover is the process that moves messages, until MovesUntil. Others may do so too.
	Mover      string `json:"mover,omitempty"`
	MovesUntil int64  `json:"moves_until,omitempty"`
}

// phase is how far a change is.
type phase string

const (
	preparing phase = "preparing" // sub-queues are renamed and created; no call is executed
	moving    phase = "moving"    // a call for an id asks the shard before the change first
	settled   phase = "settled"   // the change is over
	deleting  phase = "deleting"  // sub-queues are deleted; no call is executed
)

// lateCalls is for how long after a change calls that were made before it can arrive or be repeated: an engine repeats
// a call for 5 minutes, and an attempt arrives within 2.
const lateCalls = 7 * time.Minute

// gone is the sign at the name of a sub-queue that has another name now.
const gone = "moved"

func (d *directory) text() string {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	return string(text)
}

// readDirectory returns the directory in a sign.
func readDirectory(queue, sign string) (*directory, error) {
	d := &directory{}
	err := json.Unmarshal([]byte(sign), d)
	switch {
	case err != nil:
	case !slices.Contains([]phase{preparing, moving, settled, deleting}, d.Phase):
		err = fmt.Errorf("phase %q is unknown", d.Phase)
	case d.Claims != fromAll && d.Claims != fromOld && d.Claims != fromNone:
		err = fmt.Errorf("claims %q are unknown", d.Claims)
	case d.From < 1 || d.To < 1 || len(d.Salts) != max(d.From, d.To) || len(d.Salts) > store.MaxShards:
		err = fmt.Errorf("%d shards become %d and %d have a name", d.From, d.To, len(d.Salts))
	default:
		return d, nil
	}
	return nil, fmt.Errorf("directory of the shards of queue %q cannot be read: %w: %w", queue, err, store.ErrCorrupt)
}

// route is where the messages of a queue are, as this process knows it. It never changes.
type route struct {
	directory
	queue string
	text  string    // of the directory
	names []string  // of the sub-queues
	until time.Time // when the directory is to be read again
}

// A process reads a directory again that it has used for longer: while messages move, since a later phase takes fewer
// calls, and otherwise before the signs at the names of the sub-queues may be gone.
const (
	closedAge  = 100 * time.Millisecond // while a shard is closed
	movingAge  = 5 * time.Second
	settledAge = 10 * time.Minute
	limitedAge = time.Minute // the same of a queue with limits, whose shares a process may have set in part
)

func newRoute(queue, sign string) (*route, error) {
	d, err := readDirectory(queue, sign)
	if err != nil {
		return nil, err
	}
	r := &route{directory: *d, queue: queue, text: sign, until: time.Now().Add(settledAge)}
	switch {
	case d.Claims != fromAll:
		r.until = time.Now().Add(closedAge)
	case d.Until != 0:
		r.until = time.Now().Add(min(movingAge, max(closedAge, time.Until(time.UnixMilli(d.Until)))))
	case d.Phase != settled || d.SetsFlow:
		r.until = time.Now().Add(movingAge)
	case d.Flow != nil:
		r.until = time.Now().Add(limitedAge)
	}
	for _, salt := range d.Salts {
		r.names = append(r.names, store.SubQueue(queue, d.Generation, salt))
	}
	return r, nil
}

// home returns the shard that knows an id, and where the id belongs, which differ while it may have to move.
func (r *route) home(id string) (at, to int) {
	slot := store.Slot(id)
	to = Of(slot, r.To)
	if r.Phase != moving {
		return to, to
	}
	return Of(slot, r.From), to
}

// sources returns the shards that ids may leave, and all other shards. Jump hash moves ids only to shards that are new,
// or from shards that go, so no shard both gives and takes.
func (r *route) sources() (sources, others []int) {
	for i := range r.names {
		switch {
		case r.Phase != moving || r.From < r.To && i >= r.From || r.From > r.To && i < r.To:
			others = append(others, i)
		default:
			sources = append(sources, i)
		}
	}
	return sources, others
}

// first is the sub-queue with the properties and the activity of the queue.
func (r *route) first() string { return r.names[0] }
