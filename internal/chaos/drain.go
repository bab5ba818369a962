//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// drainPatience limits how long all due messages may take to be handled after the last fault. It is generous, because
// a busy machine must not fail a run. The result reports the time taken.
const drainPatience = 90 * time.Second

// endLoad stops the producers, waits until all due messages are handled, and stops the consumers.
func (r *run) endLoad(ctx context.Context) error {
	if r.fault.finish != nil {
		if err := r.fault.finish(ctx, r); err != nil {
			return err
		}
	}
	r.log("load-ended")
	if r.client == nil {
		var err error
		if r.client, err = openClient(ctx, r.servers.url); err != nil {
			return err
		}
	}
	for _, kind := range []string{"producer", followerKind} {
		if err := r.drainChildren(ctx, kind, resendLimit+10*time.Second); err != nil {
			return err
		}
	}
	r.log("sent")
	began := time.Now()
	err := r.awaitHandled(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.result.violate("stuck", "-", "%v", err)
	}
	r.result.DrainSeconds = time.Since(began).Seconds()
	if err := r.endOperating(ctx); err != nil {
		return err
	}
	err = r.drainChildren(ctx, "", drainLimit+15*time.Second)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		r.result.violate("drain", "-", "%v", err)
	}
	return nil
}

// drainChildren stops all running children of a kind, or all children if kind is "", in parallel.
func (r *run) drainChildren(ctx context.Context, kind string, limit time.Duration) error {
	var draining sync.WaitGroup
	errs := make([]error, len(r.children))
	for i, c := range r.children {
		if (kind == "" || c.role.Kind == kind) && c.cmd != nil && c.alive() {
			draining.Go(func() { errs[i] = c.drain(ctx, limit) })
		}
	}
	draining.Wait()
	return errors.Join(errs...)
}

func (r *run) awaitHandled(ctx context.Context) error {
	return within(ctx, drainPatience, "handling of all due messages", func(ctx context.Context) error {
		var left []string
		for _, name := range r.queues {
			s, err := r.client.Queue(name).Stats(ctx)
			if err != nil {
				return err
			}
			soon := !s.NextDue.IsZero() && s.NextDue.Before(s.Now.Add(30*time.Minute))
			if s.Ready+s.Leased > 0 || soon {
				left = append(left, fmt.Sprintf("%s has %d ready, %d leased, next due %v at %v",
					name, s.Ready, s.Leased, s.NextDue, s.Now))
			}
		}
		if len(left) > 0 {
			return errors.New(strings.Join(left, "; "))
		}
		return nil
	})
}
