package redisstore

import (
	"context"
	"errors"
	"testing"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
	"github.com/laterq/later/store/storetest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestConformance(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { storetest.Run(t, harness(e.client)) })
		t.Run(e.name+", packing", func(t *testing.T) { storetest.Run(t, harnessOf(packing, e.client)) })
	}
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
	x := &checkRun{s: e.Store, report: func(f store.Finding) {
		if f.Severity != store.SeverityOK {
			wrong = append(wrong, errors.New(f.Text))
		}
	}}
	if err := x.queue(ctx, queue); err != nil {
		return err
	}
	return errors.Join(append(wrong, e.Store.Delete(ctx, queue))...)
}

func TestStateMachine(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { storetest.RunStateMachine(t, harness(e.client)) })
		t.Run(e.name+", packing", func(t *testing.T) {
			storetest.RunStateMachine(t, checkedOnDelete(harnessOf(packing,
				e.client)))
		})
	}
}
