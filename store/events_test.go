package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later/store"
)

func TestReportCheckNamesTheLimit(t *testing.T) {
	tooMany := map[store.EventKind]int64{}
	for i := range store.MaxEventKinds + 1 {
		kind := strings.Repeat("k", i%store.MaxEventKind+1) + strings.Repeat("_", i/store.MaxEventKind)
		tooMany[store.EventKind(kind)] = 1
	}
	for _, c := range []struct {
		report store.Report
		want   error
		text   string
	}{
		{
			store.Report{Queue: "q", Counts: map[store.EventKind]int64{"lease_lost": 1}, Events: []byte("x"),
				Number: 1},
			nil, "",
		},
		{store.Report{}, store.ErrInvalid, "queue"},
		{store.Report{Queue: "q", Counts: tooMany}, store.ErrInvalid, "limit is 32"},
		{store.Report{Queue: "q", Counts: map[store.EventKind]int64{"": 1}}, store.ErrInvalid, "must have 1 to 32"},
		{
			store.Report{Queue: "q", Counts: map[store.EventKind]int64{store.EventKind(strings.Repeat("k", 33)): 1}},
			store.ErrInvalid, "must have 1 to 32",
		},
		{store.Report{Queue: "q", Counts: map[store.EventKind]int64{"two words": 1}}, store.ErrInvalid, "underscores"},
		{store.Report{Queue: "q", Counts: map[store.EventKind]int64{"sent": -1}}, store.ErrInvalid, "must be 0 or more"},
		{store.Report{Queue: "q", Events: make([]byte, store.MaxEventBytes+1)}, store.ErrTooLarge, "limit is 262144"},
		{store.Report{Queue: "q", Number: -1}, store.ErrInvalid, "must be 0 or more"},
	} {
		err := c.report.Check()
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("Check of %.60v is %v, want %v with %q", c.report, err, c.want, c.text)
		}
	}
}
