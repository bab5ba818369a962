//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/laterq/later"
)

// Under the fault fleet, workers are told to pause, resume, drain and restart while some of them are killed, the server
// dies and replies are lost. A supervisor, which is the run, restarts workers that ended.

// fleetSize is the number of workers.
const fleetSize = 4

// Outcomes of Worker.Run.
const (
	ranRestart     = "restart"
	ranDrain       = "drain"
	ranStopped     = "stopped" // by its context
	ranUnavailable = "unavailable"
)

// controlled makes a worker record the commands that it obeys. The name of each generation is its own.
func (c consumer) controlled(cfg *later.WorkerConfig) {
	cfg.Name = c.Actor
	cfg.OnCommand = func(do later.WorkerCommand) error {
		c.journal.one(obeyed, now(), "-", string(do))
		return nil
	}
}

// ran records why a worker ended, and returns the error of its process.
func (c consumer) ran(ctx context.Context, err error) error {
	outcome := ranDrain
	switch {
	case errors.Is(err, later.ErrRestart):
		outcome, err = ranRestart, nil
	case errors.Is(err, later.ErrUnavailable):
		c.log.Warn("chaos: drain timed out while the store was unavailable", "error", err)
		outcome, err = ranUnavailable, nil // leased messages are redelivered
	case err == nil && ctx.Err() != nil:
		outcome = ranStopped
	}
	if err == nil {
		c.journal.one(workerEnded, now(), "-", outcome)
	}
	return err
}

// resumeFleet ends pauses that are left.
func resumeFleet(ctx context.Context, r *run) error {
	if err := r.startEnded(); err != nil {
		return err
	}
	return r.tellDuring(ctx, later.CommandResume, r.fleet(), func() error { return nil })
}

// fleet returns the workers that run.
func (r *run) fleet() (all []*child) {
	for _, c := range r.children {
		if c.role.Kind == "worker" && c.alive() {
			all = append(all, c)
		}
	}
	return all
}

// disruptFleet sends commands to workers while something else goes wrong.
func disruptFleet(ctx context.Context, r *run) error {
	if err := r.startEnded(); err != nil { // workers that obeyed late
		return err
	}
	fleet := r.fleet()
	some := fleet[:1+r.random.IntN(len(fleet))]
	switch r.injected % 5 {
	case 1: // a restart of all while one is killed
		return r.tellDuring(ctx, later.CommandRestart, fleet, func() error {
			sleep(ctx, r.upTo(20*time.Millisecond))
			r.kill(fleet[r.random.IntN(len(fleet))])
			return nil
		})
	case 2: // a pause of some workers while the server is killed, and its end
		err := r.tellDuring(ctx, later.CommandPause, some, func() error { return killServer(ctx, r) })
		return errors.Join(err, r.tellDuring(ctx, later.CommandResume, some, func() error { return nil }))
	case 3: // a restart of all while the server is killed
		return r.tellDuring(ctx, later.CommandRestart, fleet, func() error { return killServer(ctx, r) })
	case 4: // a drain of some workers while replies are lost
		return r.tellDuring(ctx, later.CommandDrain, some, func() error { return loseReplies(ctx, r) })
	}
	// A restart of some workers. One is frozen before and killed before it can obey.
	if err := r.awaitListed(ctx, some); err != nil {
		return err
	}
	victim := some[0]
	victim.signal(syscall.SIGSTOP)
	return r.tellDuring(ctx, later.CommandRestart, some, func() error {
		sleep(ctx, 100*time.Millisecond+r.upTo(time.Second))
		r.kill(victim)
		return nil
	})
}

// tellDuring sends a command while something happens, waits until all workers that must end have ended, and starts
// their next generation.
func (r *run) tellDuring(ctx context.Context, do later.WorkerCommand, to []*child, meanwhile func() error) error {
	if err := r.awaitListed(ctx, to); err != nil {
		return err
	}
	var telling sync.WaitGroup
	var unheard map[string]string
	telling.Go(func() { unheard = r.tell(ctx, do, to) })
	err := meanwhile()
	telling.Wait()
	if err != nil {
		return err
	}
	for _, c := range to {
		ends := do == later.CommandDrain || do == later.CommandRestart
		if _, silent := unheard[c.actor()]; !ends || silent {
			continue
		}
		if err := c.awaitExit(ctx, obeyWithin); err != nil {
			r.result.violate("stayed", "-", "%s was told to %s: %v", c.actor(), do, err)
		}
	}
	return r.startEnded()
}

// startEnded starts the next generation of each process that has ended.
func (r *run) startEnded() error {
	for _, c := range r.children {
		if !c.alive() {
			if err := c.start(); err != nil {
				return err
			}
		}
	}
	return nil
}

const (
	// obeyWithin limits how long a worker may take to end that was told to. It is generous.
	obeyWithin = time.Minute
	// answerWithin is how long the run waits for workers to obey, or half as long in short runs. Killed workers do not.
	answerWithin = 2 * time.Second
)

// awaitListed waits until workers are listed, as all are that have run for a moment.
func (r *run) awaitListed(ctx context.Context, wanted []*child) error {
	return within(ctx, obeyWithin, "listing of the workers", func(ctx context.Context) error {
		live, err := r.client.Workers(ctx)
		if err != nil {
			return err
		}
		for _, c := range wanted {
			if c.alive() && !slices.ContainsFunc(live, func(w later.WorkerInfo) bool { return w.Name == c.actor() }) {
				return fmt.Errorf("%s is not listed", c.actor())
			}
		}
		return nil
	})
}

// tell sends a command to workers, records it, and returns the first word of why some of them did not obey.
func (r *run) tell(ctx context.Context, do later.WorkerCommand, to []*child) map[string]string {
	var names []string
	for _, c := range to {
		names = append(names, c.actor())
	}
	r.told++
	r.logAt(now(), "tell", fmt.Sprint(r.told), string(do), strings.Join(names, ","))
	wait := answerWithin
	if r.cfg.Duration < 10*time.Second {
		wait /= 2
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	_, err := r.client.ControlWorkers(limited, do, names...)
	unheard := map[string]string{}
	each(err, func(err error) {
		if refused, ok := errors.AsType[*later.WorkerError](err); ok {
			unheard[refused.Worker.Name], _, _ = strings.Cut(refused.Err.Error(), " ")
			return
		}
		for _, name := range names { // none was told, or it is not known
			unheard[name] = "failed"
		}
	})
	var list []string
	for name, why := range unheard {
		list = append(list, name+"="+why)
	}
	slices.Sort(list)
	r.logAt(now(), "tell-ended", fmt.Sprint(r.told), strings.Join(append(list, "-"), ","))
	return unheard
}

// notAnswered is the first word of the text of a later.WorkerError for a worker that does not answer.
const notAnswered = "does"

// each calls f for each of the errors that were joined.
func each(err error, f func(error)) {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range all.Unwrap() {
			f(err)
		}
	} else if err != nil {
		f(err)
	}
}

// awaitExit waits until a child exits by itself.
func (c *child) awaitExit(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.exited:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("it did not end within %v", limit)
	}
}

// presenceLease is how long the entry of a dead worker may be listed, and twice that how long it may be stored.
const presenceLease = 30 * time.Second

// checkNoWorkerIsLeft moves the server's clock on, after all processes have ended, and checks that the entries of the
// workers that were killed disappear: from the list after a lease, and from the store after two.
func checkNoWorkerIsLeft(ctx context.Context, r *run) error {
	if err := r.servers.clock.step(presenceLease + time.Second); err != nil {
		return err
	}
	live, err := r.client.Workers(ctx)
	if err != nil {
		return err
	}
	for _, w := range live {
		r.result.violate("listed", "-", "%s died more than %v ago and is listed", w.Name, presenceLease)
	}
	if err := r.servers.clock.step(2*presenceLease + 2*time.Second); err != nil {
		return err
	}
	client, err := openClient(ctx, r.servers.url)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err = client.Workers(ctx); err != nil { // which removes their traces
		return err
	}
	keys, err := r.servers.admin[0].Keys(ctx, "later:{worker:*").Result()
	if err != nil {
		return err
	}
	names, err := r.servers.admin[0].SMembers(ctx, "later:queues").Result()
	if err != nil {
		return err
	}
	queues := map[string]bool{} // that are left
	for _, name := range names {
		if strings.HasPrefix(name, "worker:") && name != "worker:" {
			queues[name] = true
		}
	}
	for _, key := range keys {
		// A worker that was killed stays in the list of processes that wait for its commands: no process takes it out,
		// and its waiting call can arrive after its queue was deleted. The key holds no message and expires within a
		// day.
		if ttl, err := r.servers.admin[0].PTTL(ctx, key).Result(); err == nil && strings.HasSuffix(key, "}:wake") &&
			ttl > 0 {
			continue
		}
		if name, _, _ := strings.Cut(strings.TrimPrefix(key, "later:{"), "}"); name != "worker:" {
			queues[name] = true
		}
	}
	if left := slices.Sorted(maps.Keys(queues)); len(left) > 0 {
		r.result.violate("left", "-", "all workers died more than %v ago, and of %d queues something is left, "+
			"such as %s", 2*presenceLease, len(left), left[0])
	}
	if n, err := r.servers.admin[0].HLen(ctx, "later:{worker:}:properties").Result(); err != nil || n > 0 {
		r.result.violate("left", "-", "all workers died more than %v ago, and %d entries are left (%v)",
			2*presenceLease, n, err)
	}
	return nil
}
