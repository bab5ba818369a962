//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/laterq/later"
)

// Files of an embedded store that only its running holder needs.
var holderFiles = []string{"LOCK", "HOLDER", "SOCKET"}

// stopHolder suspends the process that has the directory open, for up to half a minute.
func stopHolder(ctx context.Context, r *run) error {
	holder, err := r.holder(ctx)
	if err != nil {
		return err
	}
	r.stop(ctx, holder, r.upTo(min(30*time.Second, max(3*time.Second, r.cfg.Duration/2))))
	return nil
}

// disruptDirectory takes the directory from its holder: its lock is removed, a copy takes its place, as when a backup
// is restored while the store runs, or it is moved away for a moment. The holder is then replaced.
func disruptDirectory(ctx context.Context, r *run) error {
	holder, err := r.holder(ctx)
	if err != nil {
		return err
	}
	dir := directoryOf(r.dir)
	r.log("server-kill") // from now on, nothing may be acknowledged for the old directory
	switch r.injected % 3 {
	case 0:
		r.log("remove-lock", holder.actor())
		err = os.Remove(filepath.Join(dir, "LOCK"))
	case 1:
		err = r.replaceDirectory(ctx, holder, dir)
	default:
		r.log("move-away", holder.actor())
		holder.signal(syscall.SIGSTOP)
		moved := dir + ".moved"
		err = os.Rename(dir, moved)
		if err == nil {
			err = exchangeBack(moved, dir)
		}
		holder.signal(syscall.SIGCONT)
	}
	if err != nil {
		return err
	}
	r.log("serves", 0, allQueues)
	sleep(ctx, time.Second+r.upTo(time.Second))
	if holder.alive() {
		r.kill(holder)
	}
	return r.startDead()
}

// startDead starts the next generation of each process that has exited, which a store without its directory may do.
func (r *run) startDead() error {
	for _, c := range r.children {
		if !c.alive() {
			r.logAt(c.died, "kill", c.actor())
			if err := c.start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceDirectory puts a copy in the place of the directory. Its holder is stopped during the copy, so that the copy
// has all that it has acknowledged.
func (r *run) replaceDirectory(ctx context.Context, holder *child, dir string) error {
	r.log("replace", holder.actor())
	holder.signal(syscall.SIGSTOP)
	defer holder.signal(syscall.SIGCONT)
	copied := fmt.Sprint(dir, ".copy-", r.injected)
	if text, err := exec.CommandContext(ctx, "cp", "-a", dir, copied).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", dir, err, text)
	}
	for _, name := range holderFiles {
		if err := os.Remove(filepath.Join(copied, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return exchange(copied, dir)
}

// exchangeBack moves the directory back to its place. If another process has made a new one there in between, that one
// is removed.
func exchangeBack(moved, dir string) error {
	if err := os.Rename(moved, dir); err == nil || !errors.Is(err, syscall.ENOTEMPTY) &&
		!errors.Is(err, syscall.EEXIST) {
		return err
	}
	if err := exchange(moved, dir); err != nil {
		return err
	}
	return os.RemoveAll(moved)
}

// leaveUnread stops a process that does not have the directory open, so that it reads no reply, and makes the holder
// exit. Another process must take over before the stopped one goes on.
func leaveUnread(ctx context.Context, r *run) error {
	holder, err := r.holder(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(r.children), func(c *child) bool { return c == holder || !c.alive() })
	deaf := others[r.random.IntN(len(others))]
	r.log("stop", deaf.actor())
	deaf.signal(syscall.SIGSTOP)
	sleep(ctx, r.upTo(300*time.Millisecond)) // replies wait for it
	r.log("server-kill")
	if err := holder.drain(ctx, drainLimit+resendLimit+10*time.Second); err != nil {
		r.result.violate("drain", "-", "a holder with a client that reads nothing does not exit: %v", err)
		r.kill(holder)
	}
	r.log("serves", 0, allQueues)
	err = within(ctx, 10*time.Second, "take-over", func(ctx context.Context) error {
		next, err := r.holder(ctx)
		if err == nil && next == deaf {
			err = errors.New("the holder is the stopped process")
		}
		return err
	})
	if err != nil {
		r.result.violate("stuck", "-", "%v", err)
	}
	deaf.signal(syscall.SIGCONT)
	r.log("continue", deaf.actor())
	return holder.start()
}

// diskSize is the size of the file system in bytes, if it is a small one.
const diskSize = 256 << 20

// errNoDisk is returned where no file system can be mounted.
var errNoDisk = errors.New("a small file system can be mounted on Linux by root only")

// fillDisk fills the file system of the directory with messages of a queue of its own, and purges them after a while.
func fillDisk(ctx context.Context, r *run) error {
	r.log("full")
	client, err := openClient(ctx, r.servers.url)
	if err != nil {
		return err
	}
	defer client.Close()
	q := client.Queue(fmt.Sprint("filler-", r.cfg.Seed))
	payload := make([]byte, 900<<10)
	for n := 0; ; n++ {
		for i := 0; i < len(payload); i += 8 { // so that no compression makes it small
			copy(payload[i:], fmt.Appendf(nil, "%08x", r.random.Uint32()))
		}
		call, cancel := context.WithTimeout(ctx, 15*time.Second)
		_, err := q.Send(call, payload, later.In(farAway))
		cancel()
		if errors.Is(err, later.ErrFull) {
			break
		}
		if err != nil {
			return fmt.Errorf("fill the disk: %w", err)
		}
		if n > 2*diskSize/len(payload) {
			return errors.New("the disk did not become full")
		}
	}
	sleep(ctx, r.upTo(time.Second))
	r.log("purge")
	err = within(ctx, 30*time.Second, "purge on a full disk", func(ctx context.Context) error {
		_, err := q.Purge(ctx)
		return err
	})
	if err == nil {
		err = within(ctx, 30*time.Second, "room after the purge", func(ctx context.Context) error {
			_, err := q.Send(ctx, []byte("small"), later.In(farAway))
			return err
		})
	}
	if err != nil {
		r.result.violate("full", "-", "%v", err)
	}
	r.log("serves", 0, allQueues)
	return nil
}
