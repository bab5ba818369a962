package redisstore

import (
	"context"
	"errors"
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// long reports whether all histories are tried on all servers. Otherwise only a Cluster packs, since the scripts are
// the same everywhere.
func long() bool { return os.Getenv("LATER_LONG") != "" }

func TestConformance(t *testing.T) {
	run := func(name string, open func(t *testing.T) storetest.Harness) {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most rules make one call after the other
			storetest.Run(t, open)
		})
	}
	for _, e := range engines {
		if e.name == "alone" {
			run(e.name, onLines(harness(e.client)))
		} else if long() || e.name != "cluster" {
			run(e.name, harness(e.client))
		}
		if long() || e.name == "cluster" {
			run(e.name+", packing", harnessOf(packing, e.client))
		}
	}
}

// onLines makes short calls and sends use lines.
func onLines(open func(t *testing.T) storetest.Harness) func(t *testing.T) storetest.Harness {
	return func(t *testing.T) storetest.Harness {
		h := open(t)
		s := h.Store.(*Store)
		s.shortOnLines = true
		h.Store = promptStore{s}
		return h
	}
}

type promptStore struct{ *Store }

func (s promptStore) Send(ctx context.Context, queue string, msgs []store.Outgoing) ([]store.SendResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.SendPromptly(ctx, queue, msgs)
}

// checkedOnDelete runs a check of every queue before it is deleted, as the state machine does at the end of a
// history, and reports any issue.
func checkedOnDelete(open func(t *testing.T) storetest.Harness) func(t *testing.T) storetest.Harness {
	return func(t *testing.T) storetest.Harness {
		h := open(t)
		h.Store = checkingStore{h.Store.(*Store)}
		return h
	}
}

type checkingStore struct{ *Store }

func (e checkingStore) Delete(ctx context.Context, queue string) error {
	var wrong []error
	x := &checkRun{s: e.Store, report: func(f store.CheckResult) {
		if f.Severity != store.SeverityOK {
			wrong = append(wrong, errors.New(f.Text))
		}
	}}
	if err := x.queue(ctx, queue); err != nil {
		return err
	}
	return errors.Join(append(wrong, e.Store.Delete(ctx, queue))...)
}

// checks sets the number of random histories of a test, unless it is to be long.
func checks(t *testing.T, n int) {
	f := flag.Lookup("rapid.checks")
	former := f.Value.String()
	if !long() && f.Value.Set(strconv.Itoa(n)) == nil {
		t.Cleanup(func() { f.Value.Set(former) })
	}
}

func TestStateMachine(t *testing.T) {
	checks(t, 15)
	run := func(name string, open func(t *testing.T) storetest.Harness) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunStateMachine(t, open)
		})
	}
	for _, e := range engines {
		if long() || e.name != "cluster" {
			run(e.name, harness(e.client))
		}
		if long() || e.name == "cluster" {
			run(e.name+", packing", checkedOnDelete(harnessOf(packing, e.client)))
		}
	}
}
