package wire

import "github.com/laterq/later/store"

// Shards are the shards of a queue, and how far a change of their number is.
type Shards struct {
	Queue   string  `json:"queue"`
	Shards  int     `json:"shards" doc:"The number of shards, or the number to which it changes"`
	From    int     `json:"from,omitempty" doc:"During a change, the number of shards before it"`
	Since   string  `json:"since,omitempty" doc:"During a change, when it began"`
	Moving  bool    `json:"moving" doc:"Whether messages still have to move to other shards. A change lasts for some minutes longer, in which late calls from before it can arrive"`
	Stopped bool    `json:"stopped,omitempty" doc:"In a queue in which keys take turns: whether no message starts, because messages that are due have to move first"`
	Each    []Shard `json:"each" doc:"While the number becomes smaller, also the shards that go"`
}

// Shard is a shard of a queue with its counts, or the error because of which they are not known.
type Shard struct {
	Shard     int    `json:"shard" doc:"From 0"`
	Server    string `json:"server,omitempty" doc:"Its server, if the store has several"`
	Scheduled int64  `json:"scheduled"`
	Ready     int64  `json:"ready"`
	Leased    int64  `json:"leased"`
	Dead      int64  `json:"dead"`
	NextDue   string `json:"next_due,omitempty"`
	Leaving   *int64 `json:"leaving,omitempty" doc:"About how many of its messages still have to move. Default: not known"`
	Error     *Error `json:"error,omitempty" doc:"Why the counts are not known"`
}

// NewShards returns the JSON of the shards of a queue.
func NewShards(queue string, s store.Shards) Shards {
	w := Shards{Queue: queue, Shards: s.Number, Since: FormatTime(s.Since), Moving: s.Moving,
		Stopped: s.Stopped, Each: make([]Shard, len(s.Each))}
	if !s.Since.IsZero() {
		w.From = s.From
	}
	for i, one := range s.Each {
		w.Each[i] = newShard(i, &one)
	}
	return w
}

func newShard(i int, s *store.Shard) Shard {
	w := Shard{Shard: i, Server: s.Server}
	if s.Err != nil {
		failure := NewFailure(s.Err)
		w.Error = &failure.Error
		return w
	}
	w.Scheduled, w.Ready, w.Leased, w.Dead = s.Stats.Scheduled, s.Stats.Ready, s.Stats.Leased, s.Stats.Dead
	w.NextDue = FormatTime(s.Stats.NextDue)
	if s.Leaving >= 0 {
		w.Leaving = &s.Leaving
	}
	return w
}
