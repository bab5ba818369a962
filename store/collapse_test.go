package store_test

import (
	"testing"
	"time"

	"github.com/laterq/later/store"
)

func TestModeForDuplicatesHasLimits(t *testing.T) {
	second := store.Due{Delay: time.Second}
	debounce := func(most time.Duration) store.OnDuplicate {
		return store.OnDuplicate{Mode: store.DuplicateDebounce, MaxWait: most}
	}
	for name, c := range map[string]struct {
		mode  store.OnDuplicate
		due   store.Due
		words []string // of the ErrInvalid; nil if it is allowed
	}{
		"keep":               {store.OnDuplicate{}, second, nil},
		"replace":            {store.OnDuplicate{Mode: store.DuplicateReplace}, second, nil},
		"kept due time":      {store.OnDuplicate{Mode: store.DuplicateReplace, KeepDue: true}, second, nil},
		"debounce":           {debounce(time.Second), second, nil},
		"longest debounce":   {debounce(store.MaxDelay), store.Due{Delay: store.MaxDelay}, nil},
		"follow":             {store.OnDuplicate{Mode: store.DuplicateFollow, KeepDue: true}, second, nil},
		"unknown mode":       {store.OnDuplicate{Mode: 9}, second, []string{"mode for duplicates is 9"}},
		"keep, kept due":     {store.OnDuplicate{KeepDue: true}, second, []string{"kept without a replace"}},
		"no wait":            {debounce(time.Second), store.Due{}, []string{"debounce waits 0s"}},
		"debounce at a time": {debounce(time.Second), store.Due{At: time.UnixMilli(1)}, []string{"debounce waits"}},
		"less than the wait": {debounce(time.Millisecond), second, []string{"maximum wait", "1ms", "1s"}},
		"more than allowed":  {debounce(store.MaxDelay + 1), second, []string{"maximum wait"}},
	} {
		m := store.Outgoing{Message: store.Message{ID: "a"}, Due: c.due, OnDuplicate: c.mode}
		if c.words == nil {
			checkError(t, name, m.Check(), nil)
			continue
		}
		checkError(t, name, m.Check(), store.ErrInvalid, c.words...)
	}
}

func TestFollowUpReplacesNothing(t *testing.T) {
	f := store.FollowUp{Queue: "q", Message: store.Outgoing{Message: store.Message{ID: "a"}}}
	checkError(t, "follow-up", f.Check(), nil)
	f.Message.OnDuplicate.Mode = store.DuplicateReplace
	checkError(t, "replacing follow-up", f.Check(), store.ErrInvalid, "follow-up", "mode for duplicates")
}
