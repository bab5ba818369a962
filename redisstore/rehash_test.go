package redisstore

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func TestLargeHashIsRehashedWithinASixthMoreMessages(t *testing.T) {
	const slots = 1 << 12
	constants := maps.Clone(luaConstants)
	constants["LARGE_HASH"] = fmt.Sprint(slots)
	for name, test := range map[string]struct {
		scripts scripts
		doubled bool // at the end
	}{
		"large":   {loadScripts("", constants), true},
		"default": {loadScripts("", luaConstants), false},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redistest.Start(t).Client(t)
			s := newWith(t, test.scripts, rdb)
			fill := func(from, to int) {
				for ; from < to; from += store.MaxBatch {
					var msgs []store.Outgoing
					for i := from; i < min(from+store.MaxBatch, to); i++ {
						msgs = append(msgs, store.Outgoing{Message: store.Message{ID: fmt.Sprint(i)},
							Due: store.Due{Delay: time.Minute}})
					}
					if _, err := s.Send(t.Context(), "q", msgs); err != nil {
						t.Fatal(err)
					}
				}
			}
			doubling := func() bool {
				stats, err := rdb.Do(t.Context(), "DEBUG", "HTSTATS-KEY", "later:{q}:messages").Text()
				if err != nil {
					t.Fatal(err)
				}
				return strings.Contains(stats, "rehashing target")
			}
			fill(0, slots)
			if doubling() {
				t.Fatalf("the table is being rehashed before %d messages", slots)
			}
			fill(slots, slots+1)
			if !doubling() {
				t.Fatalf("the table is not being rehashed at %d messages", slots+1)
			}
			fill(slots+1, slots+slots/6+2)
			if doubling() == test.doubled {
				t.Errorf("after a sixth more messages, rehashed = %t, want %t", !test.doubled, test.doubled)
			}
		})
	}
}
