package diskstore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/laterq/later/store"
)

// TestFullTmpfs is TestClaimsAndAcksGoOnWhenTheDiskIsFull on a real file system.
func TestFullTmpfs(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("later-test", mount, "tmpfs", 0, "size=512m"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	})
	dir, clock := filepath.Join(mount, "store"), newManualClock()
	open := func() *Store {
		s, err := Open(dir, WithClock(clock), withMemTable(1<<20)) // so that logs come and go
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open()
	if !s.reserve.state().made {
		t.Fatal("there is no reserve")
	}
	fillQueue(t, s, "q", 8_000)
	filler := filepath.Join(mount, "filler")
	acked := 0
	for s.reserve.state().made && acked < 5_000 { // acks make room, which others take
		f, err := os.OpenFile(filler, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		for err == nil {
			_, err = f.Write(noise)
		}
		if f.Close(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		some, err := ackSome(t, s, "q", 200)
		if acked += len(some); err != nil {
			t.Fatalf("%d claims and acks went on, then %v", acked, err)
		}
	}
	if s.reserve.state().made {
		t.Fatal("the reserve was not needed")
	}
	some, err := ackSome(t, s, "q", 500)
	if acked += len(some); err != nil || len(some) != 500 {
		t.Errorf("with the reserve in use, %d claims and acks went on, then %v", len(some), err)
	}
	if _, err = s.Send(t.Context(), "q", []store.Outgoing{{Message: store.Message{ID: "late"}}}); !errors.Is(err,
		store.ErrFull) {
		t.Errorf("send gives %v, want ErrFull", err)
	}
	if err := s.Close(); err != nil { // works on a full disk
		t.Fatal(err)
	}
	s = open()
	some, err = ackSome(t, s, "q", 500)
	if acked += len(some); err != nil || len(some) != 500 {
		t.Errorf("opened anew, %d claims and acks went on, then %v", len(some), err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for !s.reserve.state().made {
		clock.Advance(checkFull)
		if _, err := s.Stats(t.Context(), "q"); err != nil {
			t.Fatal(err)
		}
	}
	fillQueue(t, s, "new", 100)
	if got := len(listed(t, s, "q", store.StateReady)); got != 8_000-acked {
		t.Errorf("%d messages are left, want %d", got, 8_000-acked)
	}
	wantSound(t, s)
}
