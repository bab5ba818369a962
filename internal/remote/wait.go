package remote

import (
	"context"
	"strconv"
	"time"

	"github.com/laterq/later/store"
)

// A Wait that ends at the server has used up a notification. If its caller has left before that, the client says so
// with opLeave, and the notification is passed on. If its reply was lost, or its connection, the client repeats it:
// then the server ends the first one, and returns at once, so that the caller claims.

type waitArgs struct {
	Queue string
	ID    string // of this call, for opLeave
	Again bool   // it was called before, and may have ended
}

var opWait = &operation[waitArgs, none]{
	name: "wait", kind: waits, check: (*waitArgs).check,
	run: func(ctx context.Context, s store.Store, a *waitArgs) (none, error) {
		return none{}, s.Wait(ctx, a.Queue)
	},
	repeated: func(a *waitArgs) { a.Again = true },
	runAt: func(ctx context.Context, s *Server, a *waitArgs) (none, error) {
		if a.Again {
			s.endWait(a.ID)
			return none{}, nil
		}
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		w := &waiting{leave, make(chan struct{})}
		s.mu.Lock()
		s.waits[a.ID] = w
		s.mu.Unlock()
		err := s.store.Wait(ctx, a.Queue)
		s.mu.Lock()
		delete(s.waits, a.ID)
		s.mu.Unlock()
		close(w.ended)
		return none{}, err
	},
}

// waiting is a Wait at the server.
type waiting struct {
	leave context.CancelFunc
	ended chan struct{}
}

var opLeave = &operation[waitArgs, none]{
	name: "leave", check: (*waitArgs).check,
	run: func(ctx context.Context, s store.Store, a *waitArgs) (none, error) {
		return none{}, store.PassOn(ctx, s, a.Queue)
	},
	runAt: func(ctx context.Context, s *Server, a *waitArgs) (none, error) {
		s.endWait(a.ID)
		return none{}, store.PassOn(ctx, s.store, a.Queue)
	},
}

// endWait ends a Wait, if there is one with that id.
func (s *Server) endWait(id string) {
	s.mu.Lock()
	w := s.waits[id]
	s.mu.Unlock()
	if w != nil {
		w.leave()
		<-w.ended
	}
}

// leaveWithin limits how long a client tries to say that it has left.
const leaveWithin = time.Second

func (c *Client) newWait(queue string) *waitArgs {
	return &waitArgs{Queue: queue, ID: c.sessions.name + "." + strconv.FormatUint(c.waits.Add(1), 36)}
}

// Notify implements store.Notifier, as the end of a Wait does.
func (c *Client) Notify(ctx context.Context, queue string) error {
	_, err := invoke(ctx, c, opLeave, c.newWait(queue))
	return err
}

// Wait implements store.Store.
func (c *Client) Wait(ctx context.Context, queue string) error {
	args := c.newWait(queue)
	_, err := invoke(ctx, c, opWait, args)
	if ctx.Err() == nil {
		return err
	}
	c.leave(args)
	return context.Cause(ctx)
}

// leave lets the server know that the caller of a Wait has left. The caller does not wait for that.
func (c *Client) leave(args *waitArgs) {
	if c.begin(context.Background()) != nil {
		return
	}
	go func() {
		defer c.loops.Done()
		ctx, cancel := context.WithTimeout(c.closing, leaveWithin)
		defer cancel()
		target, err := c.router.Target(ctx, nil)
		if err == nil && target.Local == nil {
			var answer reply[none]
			exchange(ctx, target, opLeave.name, opLeave.kind, encode(args), 0, &answer)
		}
	}()
}
