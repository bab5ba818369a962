package store_test

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestNewIDsAreSortedAndUniqueInAProcess(t *testing.T) {
	const goroutines, each = 8, 5000
	made := make([][]string, goroutines)
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			for range each {
				made[i] = append(made[i], store.NewID())
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, ids := range made {
		if !slices.IsSorted(ids) {
			t.Error("the ids of one goroutine are not in the order they were made")
		}
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("id %s was made twice", id)
			}
			seen[id] = true
		}
	}
}

func TestNewIDIsValidAndHoldsItsTime(t *testing.T) {
	before := time.Now().Truncate(time.Millisecond)
	id := store.NewID()
	if err := store.CheckID(id); err != nil {
		t.Error(err)
	}
	at, ok := store.IDTime(id)
	// The time of ids never goes back, so an id may be ahead of the clock, but never behind.
	if !ok || at.Before(before) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("the time of id %s made at %v is %v, %v", id, before, at, ok)
	}
}

func TestNewIDsOfLaterMillisecondsSortLater(t *testing.T) {
	for range 20 {
		first, now := store.NewID(), time.Now().UnixMilli()
		for time.Now().UnixMilli() == now {
			runtime.Gosched() // for at most a millisecond
		}
		second := store.NewID()
		firstAt, _ := store.IDTime(first)
		secondAt, _ := store.IDTime(second)
		if second <= first || !secondAt.After(firstAt) {
			t.Fatalf("id %s of %v does not sort after id %s of %v", second, secondAt, first, firstAt)
		}
	}
}

func TestIDTimeRejectsOtherIDs(t *testing.T) {
	for _, id := range []string{
		"", "order-1", strings.Repeat("-", 13), strings.Repeat("-", 15),
		"0000000000000!", "0000000000000é", "é000000000000",
	} {
		if at, ok := store.IDTime(id); ok {
			t.Errorf("the time of id %q is %v, want none", id, at)
		}
	}
	if at, ok := store.IDTime(strings.Repeat("-", 14)); !ok || at.UnixMilli() != 0 {
		t.Errorf("the time of the lowest id is %v, %v", at, ok)
	}
}
