package diskstore

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestLastOfTheReserveIsForWhatMakesRoom(t *testing.T) {
	q, _, _, s := newQuota(t)
	defer s.Close()
	fillQueue(t, s, "q", 100)
	s.reserve.free(syscall.ENOSPC, 0)
	extend := func() error {
		_, err := s.Extend(t.Context(), "q", []store.Extension{{For: time.Hour}})
		return err
	}
	cancel := func() error {
		_, err := s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{"m000001"}})
		return err
	}
	try(t, extend()) // there is room
	q.fill(testReserve / 8)
	if err := extend(); !errors.Is(err, store.ErrFull) {
		t.Errorf("with an eighth of the reserve left, an extension gives %v, want ErrFull", err)
	}
	try(t, cancel())
	q.fill(belowFloors)
	if err := cancel(); !errors.Is(err, store.ErrFull) {
		t.Errorf("with a 32nd of the reserve left, a cancel gives %v, want ErrFull", err)
	}
	q.fill(10 * testReserve)
	try(t, extend())
	if _, err := s.Send(t.Context(), "q", []store.Outgoing{plain("late")}); !errors.Is(err, store.ErrFull) {
		t.Errorf("before a check has seen room, a send gives %v, want ErrFull", err)
	}
	s.reserve.noTable()
	if err := extend(); !errors.Is(err, store.ErrFull) {
		t.Errorf("while a table finds no room, an extension gives %v, want ErrFull", err)
	}
}

func TestMergesThatFindNoRoomEnd(t *testing.T) {
	q, _, _, s := newQuota(t)
	defer s.Close()
	s.reserve.free(syscall.ENOSPC, 0)
	s.reserve.merge()
	q.fill(0)
	for n := 0; s.reserve.mayMerge(); n++ {
		if n == 10 {
			t.Fatal("merges go on without room")
		}
		s.reserve.postpone(syscall.ENOSPC) // as when the write fails after all
	}
	q.fill(10 * testReserve)
	s.reserve.merge()
	for n := 0; s.reserve.mayMerge(); n++ {
		if n == 10 {
			t.Fatal("merges go on although each finds no room")
		}
		s.reserve.postpone(syscall.ENOSPC)
	}
}

func TestFileOfTheStoreWaitsForRoomAndABackupDoesNot(t *testing.T) {
	_, _, clock, s := newQuota(t)
	defer s.Close()
	tries := 0
	fails := func() error {
		if tries++; tries < 4 {
			return syscall.ENOSPC
		}
		return nil
	}
	if err := s.reserve.insist("backup/file", fails); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a file of a backup gives %v, want that the disk is full", err)
	}
	done := make(chan error, 1)
	tries = 0
	go func() { done <- s.reserve.insist("later/file", fails) }()
	for {
		select {
		case err := <-done:
			if err != nil || tries != 4 {
				t.Errorf("a file of the store gives %v after %d tries, want it made when there is room", err, tries)
			}
			return
		default:
			clock.Advance(checkFull)
			runtime.Gosched()
		}
	}
}
