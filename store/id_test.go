package store_test

import (
	"fmt"
	"hash/crc32"
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

// slotOf returns the slot of an id: its last two characters, of 6 bits each.
func slotOf(id string) int {
	const alphabet = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
	return strings.IndexByte(alphabet, id[12])<<6 | strings.IndexByte(alphabet, id[13])
}

func TestSlotIsThatOfTheKey(t *testing.T) {
	for i := range 10_000 {
		key := fmt.Sprint("customer-", i)
		made, chosen := new(store.IDs).New(key), key+"/order-7"
		if want := int(crc32.ChecksumIEEE([]byte(key)) % store.Slots); store.Slot(made) != want ||
			store.Slot(chosen) != want || store.Slot(key) != want {
			t.Fatalf("the slots of ids %s, %s and %s are %d, %d and %d, want %d", made, chosen, key, store.Slot(made),
				store.Slot(chosen), store.Slot(key), want)
		}
	}
}

func TestIDsOfACallHaveTheSlotOfTheirKeyOrOneSlot(t *testing.T) {
	slots := map[int]bool{}
	for range 100 {
		var ids store.IDs
		var made []string
		for i := range 100 {
			key := ""
			if i%3 == 2 {
				key = fmt.Sprint("customer-", i)
			}
			id := ids.New(key)
			if want := int(crc32.ChecksumIEEE([]byte(key)) % 4096); key != "" && slotOf(id) != want {
				t.Errorf("the slot of id %s is %d; that of its key %q is %d", id, slotOf(id), key, want)
			}
			if key == "" && len(made) > 0 && slotOf(id) != slotOf(made[0]) {
				t.Errorf("ids %s and %s of one call have two slots", made[0], id)
			}
			made = append(made, id)
		}
		if !slices.IsSorted(made) || len(slices.Compact(made)) != len(made) || len(made[0]) != 14 {
			t.Errorf("ids are not in the order of their making, not unique or too long: %q", made)
		}
		slots[slotOf(made[0])] = true
		for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; { // ids of a millisecond have the same slot
			runtime.Gosched()
		}
	}
	if len(slots) < 80 { // 100 draws of 4,096 hardly ever have fewer than 90 different ones
		t.Errorf("100 calls have %d slots", len(slots))
	}
}

func TestIDsOfManyCallsAreUniqueAndSorted(t *testing.T) {
	seen, last := map[string]bool{}, ""
	for i := range 20_000 {
		var ids store.IDs
		for _, key := range []string{"", "a", "b", "a"} {
			id := ids.New(key)
			if seen[id] || id <= last {
				t.Fatalf("id %s, number %d, was made before or sorts before %s", id, i, last)
			}
			seen[id], last = true, id
		}
	}
}

// The slots of keys are in ids, so they must never change.
func TestSlotsOfKeysAreStableAndEven(t *testing.T) {
	for key, want := range map[string]int{"123456789": 0x926, "customer-7": 2376, "größe": 2441} {
		if got := slotOf(new(store.IDs).New(key)); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
	for _, form := range []string{"%d", "customer-%d", "%08x-order", "tenant:%d:eu"} {
		var slots [4096]int
		for i := range 40 * len(slots) {
			slots[slotOf(new(store.IDs).New(fmt.Sprintf(form, i)))]++
		}
		if least, most := slices.Min(slots[:]), slices.Max(slots[:]); least < 10 || most > 90 {
			t.Errorf("of 40 keys %q a slot, one slot has %d and one %d", form, least, most)
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
