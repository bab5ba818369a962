package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/fleet"
	"github.com/laterq/later/store"
)

const (
	// receiversIdle is how long a queue counts as received from after the last request without a worker's name. The
	// longest wait of most clients is 30 s, and handling may take as long before the next request.
	receiversIdle = 2 * time.Minute
	// maxReceivers is the number of queues that are listed so.
	maxReceivers = 1000
)

// receivers lists a server among the workers of its store while clients receive through it without the name of a
// worker. So explanations of messages that wait count it as a worker of their queue. Clients with a name are listed by
// Client.ReceiveFor, each by itself.
type receivers struct {
	mu      sync.Mutex
	queues  map[string]*receivedFrom // nil while the server is not listed
	changed func()                   // has the list of queues written
}

// receivedFrom is a queue that clients receive from.
type receivedFrom struct {
	waiting int       // requests
	last    time.Time // when one ended
}

// begin counts a request that receives from queues, and lists the server if it is the first one. The caller calls end
// when the request is answered.
func (rs *receivers) begin(s *Server, queues []later.ReceiveQueue) (end func()) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.queues == nil {
		if s.ending.Err() != nil {
			return func() {}
		}
		rs.queues = map[string]*receivedFrom{}
		s.open.Go(func() { rs.list(s) })
	}
	var counted []*receivedFrom
	for _, q := range queues {
		of := rs.queues[q.Name]
		if of == nil {
			if len(rs.queues) >= maxReceivers {
				continue
			}
			of = &receivedFrom{}
			rs.queues[q.Name] = of
			if rs.changed != nil {
				rs.changed()
			}
		}
		of.waiting++
		counted = append(counted, of)
	}
	return func() { rs.end(counted) }
}

func (rs *receivers) end(counted []*receivedFrom) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, of := range counted {
		of.waiting--
		of.last = time.Now()
	}
}

// list lists the server as a worker until no queue is received from.
func (rs *receivers) list(s *Server) {
	member := fleet.New(s.ending, &fleet.Directory{Store: s.client.Store(), Log: s.log}, fleet.Config{
		Self:  fleet.Info{Name: fleet.DefaultName() + " over HTTP", Version: s.cfg.Version, Queues: rs.names()},
		Every: fleet.BeatEvery, Log: s.log,
		Describe: func(i *fleet.Info) {
			i.Queues, i.State = rs.names(), fleet.Running
			i.QueueCount = len(i.Queues)
		},
		Allow: func(do fleet.Command) error {
			if do == fleet.Restart {
				return nil // the clients have nothing to restart
			}
			return store.Invalid("clients that receive over HTTP without the name of a worker take no commands: have them " +
				"give the field worker")
		},
		Obey: func(fleet.Command) {},
	})
	rs.mu.Lock()
	rs.changed = member.Changed
	rs.mu.Unlock()
	member.Start()
	defer member.Leave()
	look := time.NewTicker(receiversIdle / 4)
	defer look.Stop()
	for rs.remain(s.ending) {
		select {
		case <-look.C:
		case <-s.ending.Done():
		}
	}
}

// remain forgets the queues that are not received from any more, and reports whether some are.
func (rs *receivers) remain(ending context.Context) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	maps.DeleteFunc(rs.queues, func(_ string, of *receivedFrom) bool {
		return of.waiting == 0 && time.Since(of.last) >= receiversIdle
	})
	if ending.Err() == nil && len(rs.queues) > 0 {
		return true
	}
	rs.queues, rs.changed = nil, nil
	return false
}

// names returns the queues, sorted.
func (rs *receivers) names() []string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return slices.Sorted(maps.Keys(rs.queues))
}
