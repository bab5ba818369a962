package diskstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/laterq/later/store"
)

// smallDisk is a file system that reports the free space that a test sets.
type smallDisk struct {
	vfs.FS
	left atomic.Uint64
}

func (d *smallDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.left.Load()}, nil
}

func TestFullDiskRefusesSendsAndLetsWorkGoOn(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	disk.left.Store(minRoom)
	s := openOn(t, disk, newManualClock())
	defer s.Close()
	send(t, s, "a", "b")
	disk.left.Store(minRoom - 1)
	replacing := store.Outgoing{Message: store.Message{ID: "a"}}
	replacing.OnDuplicate.Mode = store.DuplicateReplace
	for _, m := range []store.Outgoing{{Message: store.Message{ID: "c"}}, replacing} {
		_, err := s.Send(t.Context(), "q", []store.Outgoing{m})
		if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "16.0 MiB") {
			t.Errorf("send of %s gives %v, want ErrFull and how much is left", m.ID, err)
		}
	}
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Minute})
	if err != nil || len(c.Messages) != 2 {
		t.Fatalf("claimed %v, %v", c.Messages, err)
	}
	r, err := s.Settle(t.Context(), "q", []store.Settlement{
		{Receipt: c.Messages[0].Receipt, Action: store.Ack}, {Receipt: c.Messages[1].Receipt, Action: store.Nack},
	})
	if err != nil || r[0].Err != nil || r[1].Err != nil {
		t.Fatal(err, r)
	}
	disk.left.Store(minRoom)
	send(t, s, "c")
}

func TestAckWithFollowUpsOnAFullDiskChangesNothing(t *testing.T) {
	disk := &smallDisk{FS: vfs.NewMem()}
	disk.left.Store(minRoom)
	s := openOn(t, disk, newManualClock())
	defer s.Close()
	send(t, s, "m")
	c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 1, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ack := []store.Settlement{{Receipt: c.Messages[0].Receipt, Action: store.Ack,
		Then: []store.FollowUp{{Queue: "next", Message: plain("follow-up")}}}}
	disk.left.Store(minRoom - 1)
	r, err := s.Settle(t.Context(), "q", ack)
	if err != nil || !errors.Is(r[0].Err, store.ErrFull) {
		t.Errorf("the ack gives %v, %v, want ErrFull", r, err)
	}
	if got := live(t, s, "q"); got["m"] != store.StateLeased {
		t.Errorf("afterwards there is %v, want the message leased", got)
	}
	disk.left.Store(minRoom)
	if r, err = s.Settle(t.Context(), "q", ack); err != nil || r[0].Err != nil {
		t.Errorf("with room, the ack gives %v, %v", r, err)
	}
	if got := live(t, s, "next"); len(got) != 1 {
		t.Errorf("the follow-up is not there: %v", got)
	}
}

func isLogSync(op errorfs.Op) bool {
	syncs := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	return syncs && strings.HasSuffix(op.Path, ".log")
}

// failing returns a file system that fails to write and sync the log once broken is set.
func failing(fs vfs.FS, broken *atomic.Bool, cause error) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && (isLogSync(op) || op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".log")) {
			return cause
		}
		return nil
	}))
}

func TestFailedWriteStopsTheStoreAndKeepsWhatWasAcknowledged(t *testing.T) {
	for _, cause := range []error{errors.New("the disk is on fire"), syscall.EIO} {
		var broken atomic.Bool
		fs, clock := vfs.NewCrashableMem(), newManualClock()
		s := openOn(t, failing(fs, &broken, cause), clock)
		send(t, s, "before")
		broken.Store(true)
		waited := make(chan error, 1)
		go func() { waited <- s.Wait(t.Context(), "other") }()
		_, err := s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "m"}}})
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, cause) {
			t.Errorf("send gives %v, want ErrUnavailable for %v", err, cause)
		}
		broken.Store(false) // it never retries into silence
		if _, err := s.Get(t.Context(), "q", []string{"before"}); !errors.Is(err, cause) {
			t.Errorf("get gives %v, want the cause", err)
		}
		if err := <-waited; !errors.Is(err, cause) {
			t.Errorf("wait gives %v, want the cause", err)
		}
		after := fs.CrashClone(vfs.CrashCloneCfg{})
		s.Close()
		s = openOn(t, after, clock)
		infos, err := s.Get(t.Context(), "q", []string{"before", "m"})
		if err != nil || infos[0] == nil || infos[1] != nil {
			t.Errorf("after the crash there is %v, %v, want what was acknowledged", infos, err)
		}
		s.Close()
	}
}

func TestLogThatFindsNoRoomWaitsForSome(t *testing.T) {
	for _, freed := range []bool{true, false} {
		var full atomic.Bool
		fs, clock := vfs.NewCrashableMem(), newManualClock()
		found := make(chan struct{}, 100)
		s := openOn(t, errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if full.Load() && op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".log") {
				select {
				case found <- struct{}{}:
				default:
				}
				return syscall.ENOSPC
			}
			return nil
		})), clock)
		send(t, s, "before")
		full.Store(true)
		sent := make(chan error, 1)
		go func() {
			_, err := s.Send(t.Context(), "q", []store.Outgoing{plain("m")})
			sent <- err
		}()
		<-found
		for !s.reserve.isWaiting() {
			runtime.Gosched()
		}
		if _, err := s.Get(t.Context(), "q", []string{"before"}); !errors.Is(err, store.ErrFull) {
			t.Errorf("a call meanwhile gives %v, want ErrFull", err)
		}
		if err := s.Ping(t.Context()); !errors.Is(err, store.ErrFull) {
			t.Errorf("ping gives %v, want ErrFull", err)
		}
		if !freed {
			s.Close() // it does not wait for room
			if err := <-sent; !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("the send gives %v, want that the disk is full", err)
			}
			continue
		}
		full.Store(false)
		for done := false; !done; {
			clock.Advance(checkFull)
			select {
			case err := <-sent:
				if done = true; err != nil {
					t.Errorf("the send gives %v once there is room", err)
				}
			default:
				runtime.Gosched()
			}
		}
		after := synced(fs)
		s.Close()
		s = openOn(t, after, clock)
		if got := live(t, s, "q"); len(got) != 2 {
			t.Errorf("there are %v, want both messages", got)
		}
		s.Close()
	}
}

func TestSyncEveryMakesDurableInTime(t *testing.T) {
	fs, clock := vfs.NewCrashableMem(), newManualClock()
	var watching atomic.Bool
	begun := make(chan struct{}, 1)
	watched := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if watching.Load() && isLogSync(op) {
			select {
			case begun <- struct{}{}:
			default:
			}
		}
		return nil
	}))
	s := openOn(t, watched, clock, SyncEvery(time.Millisecond))
	send(t, s, "m")
	watching.Store(true)
	for id := range 3 { // each sync begins when the one before is done
		send(t, s, strconv.Itoa(id))
		<-begun
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	s.Close()
	s = openOn(t, after, clock)
	defer s.Close()
	infos, err := s.Get(t.Context(), "q", []string{"m"})
	if err != nil || infos[0] == nil {
		t.Errorf("the message is lost (%v) although the log was synced", err)
	}
}

func TestClockThatGoesBackStandsStillOrIsFollowed(t *testing.T) {
	fs, clock := vfs.NewMem(), newManualClock()
	s := openOn(t, fs, clock)
	now := func() time.Time {
		t.Helper()
		stats, err := s.Stats(t.Context(), "q")
		if err != nil {
			t.Fatal(err)
		}
		if stats.Ready != 2 || stats.Scheduled != 0 {
			t.Errorf("ready %d, scheduled %d, want 2 and 0", stats.Ready, stats.Scheduled)
		}
		return stats.Now
	}
	send(t, s, "a", "b")
	first := now()
	clock.Advance(-time.Minute)
	if got := now(); !got.Equal(first) {
		t.Errorf("after a step back of a minute the clock shows %v, want it to stand still at %v", got, first)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openOn(t, fs, clock)
	defer s.Close()
	if got := now(); !got.Equal(first) {
		t.Errorf("opened anew the clock shows %v, want it to stand still at %v", got, first)
	}
	clock.Advance(-time.Millisecond)
	stats, err := s.Stats(t.Context(), "q")
	if err != nil || !stats.Now.Equal(clock.Now()) || stats.Scheduled != 2 || stats.Ready != 0 {
		t.Errorf("after a longer step back: %+v, %v, want it followed", stats, err)
	}
}

func TestOpenOnABrokenDiskIsAnError(t *testing.T) {
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.Contains(op.Path, "MANIFEST") && op.Kind == errorfs.OpFileWrite {
			return syscall.EIO
		}
		return nil
	}))
	_, err := Open("later", withFS(fs))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), syscall.EIO.Error()) {
		t.Errorf("open gives %v, want ErrUnavailable for an input/output error", err)
	}
}

// kept is printed by the child of a test when all is well.
const kept = "nothing is lost"

// inChild runs the test in a child process, and is true there; Pebble's goroutines do not end in it.
func inChild(t *testing.T) bool {
	const name = "LATER_DISKSTORE_CHILD"
	if os.Getenv(name) != "" {
		return true
	}
	child := childProcess(t, t.Name(), name, "1")
	child.Args = append(child.Args, "-test.timeout=60s")
	if out, _ := child.CombinedOutput(); !strings.Contains(string(out), kept) {
		t.Errorf("the child says:\n%s", out)
	}
	return false
}

// withoutManifest returns a file system that fails to write the manifest once broken is set. Pebble then stops.
func withoutManifest(fs vfs.FS, broken *atomic.Bool) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && strings.Contains(op.Path, "MANIFEST") && op.Kind == errorfs.OpFileWrite {
			return syscall.EIO
		}
		return nil
	}))
}

func TestFailedManifestStopsTheStoreAndLosesNothing(t *testing.T) {
	if !inChild(t) {
		return
	}
	var broken atomic.Bool
	disk, clock := vfs.NewCrashableMem(), newManualClock()
	s := openOn(t, withoutManifest(disk, &broken), clock)
	send(t, s, "m")
	broken.Store(true)
	if _, err := s.db.AsyncFlush(); err != nil {
		t.Fatal(err)
	}
	<-s.failed
	if _, err := s.Stats(t.Context(), "q"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("stats gives %v, want ErrUnavailable", err)
	}
	after := disk.CrashClone(vfs.CrashCloneCfg{})
	s.Close()
	if holder, err := s.readFile(holderFile); err != nil || holder == "" {
		t.Errorf("the directory stays locked and its holder is %q, %v", holder, err)
	}
	s = openOn(t, after, clock)
	if infos, err := s.Get(t.Context(), "q", []string{"m"}); err != nil || infos[0] == nil {
		t.Errorf("the message is lost: %v", err)
	}
	if !t.Failed() {
		fmt.Println(kept)
		os.Exit(3) // before the leak check
	}
}

// looking is a context that calls look once, the third time that it is asked whether it has ended. A call asks when it
// begins, when it goes to the writer, and after each 10,000 messages that it counts.
type looking struct {
	context.Context
	asked atomic.Int64
	look  func()
}

func (c *looking) Err() error {
	if c.asked.Add(1) == 3 {
		c.look()
	}
	return c.Context.Err()
}

func TestPebbleThatGivesUpEndsAReadAndTheClose(t *testing.T) {
	if !inChild(t) {
		return
	}
	var broken atomic.Bool
	s := openOn(t, withoutManifest(vfs.NewMem(), &broken), newManualClock())
	send(t, s, "a", "b")
	ctx := &looking{Context: t.Context(), look: func() {
		broken.Store(true)
		if _, err := s.db.AsyncFlush(); err != nil {
			t.Error(err)
		}
		<-s.stuck
	}}
	if _, err := s.Get(ctx, "q", []string{"a", "b"}); !errors.Is(err, store.ErrUnavailable) { // it looks after each id
		t.Errorf("get gives %v, want ErrUnavailable", err)
	}
	s.Close()
	if !t.Failed() {
		fmt.Println(kept)
		os.Exit(3) // before the leak check
	}
}
