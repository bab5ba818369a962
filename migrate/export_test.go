package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestExportReportsEachQueue(t *testing.T) {
	source := twoQueues(t)
	if err := source.Queue("b").Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	var last QueueExport
	r, err := Export(t.Context(), source, &b, ExportConfig{Progress: func(q QueueExport) { last = q }})
	want := []QueueExport{{Queue: "a", Total: 17, Exported: 17, Leased: 2},
		{Queue: "b", Total: 14, Exported: 14, Leased: 2, Paused: true}}
	if err != nil || !slices.Equal(r.Queues, want) || r.Messages != 31 || last != want[1] {
		t.Errorf("%v, %+v, last %+v", err, r, last)
	}
	lines := strings.Split(b.String(), "\n")
	if !strings.HasPrefix(lines[0], `{"later_export":2,"time":"2`) ||
		lines[32] != `{"later_export_end":2,"messages":31}` || lines[33] != "" {
		t.Errorf("the export begins with %s and ends with %q", lines[0], lines[32:])
	}
}

func TestExportOfAnEmptyStoreIsOne(t *testing.T) {
	file := exported(t, newMem(t))
	if r := imported(t, newMem(t), bytes.NewReader(file)); r.Imported != 0 || bytes.Count(file, []byte("\n")) != 2 {
		t.Errorf("%+v of %q", r, file)
	}
}

func TestExportReportsAQueueThatDoesNotExistBeforeItWrites(t *testing.T) {
	var b bytes.Buffer
	for name, want := range map[string]error{"none": store.ErrNotFound, "{": store.ErrInvalid,
		"changes:": store.ErrInvalid, "worker:": store.ErrInvalid} {
		_, err := Export(t.Context(), twoQueues(t), &b, ExportConfig{Queues: []string{"a", name}})
		if !errors.Is(err, want) || b.Len() > 0 {
			t.Errorf("%q: %v, wrote %q", name, err, &b)
		}
	}
}

func TestExportWithAFilterHasOnlyWhatMatches(t *testing.T) {
	source := newMem(t)
	q := source.Queue("q")
	for i := range 600 {
		opts := []later.SendOption{later.WithID(fmt.Sprintf("m%03d", i)), later.In(time.Hour)}
		if i%3 == 0 {
			opts = append(opts, later.Group("g"))
		}
		if _, err := q.Send(t.Context(), []byte(fmt.Sprint(i%2)), opts...); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.RunNow(t.Context(), "m000"); err != nil {
		t.Fatal(err)
	}
	for want, filter := range map[int64]inspect.Filter{
		599: {State: later.StateScheduled}, 1: {State: later.StateReady}, 200: {Group: "g"},
		300: {State: later.StateScheduled, Payload: "1"}, 3: {Group: "g", ID: "m05"}, // m051, m054 and m057
		0: {State: later.StateDead, ErrorPattern: "x"},
	} {
		var b bytes.Buffer
		r, err := Export(t.Context(), source, &b, ExportConfig{Queues: []string{"q"}, Filter: &filter})
		if err != nil || !r.Complete || r.Messages != want {
			t.Errorf("%+v: %+v, %v; want %d", filter, r, err, want)
		}
		if r := imported(t, newMem(t), &b); r.Imported != want {
			t.Errorf("%+v: imported %d, want %d", filter, r.Imported, want)
		}
	}
	_, err := Export(t.Context(), source, io.Discard, ExportConfig{Filter: &inspect.Filter{Payload: "x"}})
	if !errors.Is(err, store.ErrInvalid) {
		t.Error(err)
	}
	name := filepath.Join(t.TempDir(), "file")
	_, err = ExportFile(t.Context(), source, name, true, ExportConfig{Filter: &inspect.Filter{State: later.StateDead}})
	if _, missing := os.Stat(name); !errors.Is(err, store.ErrInvalid) || missing == nil {
		t.Error(err)
	}
}

func TestExportContinuesAfterADamagedQueue(t *testing.T) {
	source, target := twoQueues(t), newMem(t)
	h := &hooked{Store: source.Store(), stats: func(queue string) (store.Stats, error) {
		if queue == "a" {
			return store.Stats{}, fmt.Errorf("%w: bad", store.ErrCorrupt)
		}
		return source.Store().Stats(t.Context(), queue)
	}}
	var b bytes.Buffer
	r, err := Export(t.Context(), newClient(t, h), &b, ExportConfig{Queues: []string{"a", "b"}})
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), `queue "a"`) || !r.Complete {
		t.Errorf("%v, %+v", err, r)
	}
	imported(t, target, &b)
	sameContents(t, target, source, "b")
}

func TestExportEndsWithAStoreThatFails(t *testing.T) {
	source := twoQueues(t)
	whole := exported(t, source)
	calls := 0
	h := &hooked{Store: source.Store(), list: func(queue string, req store.ListRequest) (store.Page, error) {
		if calls++; calls == 7 {
			return store.Page{}, store.ErrUnavailable
		}
		return source.Store().List(t.Context(), queue, req)
	}}
	var b bytes.Buffer
	r, err := Export(t.Context(), newClient(t, h), &b, ExportConfig{})
	if !errors.Is(err, store.ErrUnavailable) || r.Complete || r.Messages == 0 {
		t.Errorf("%v, %+v", err, r)
	}
	resumed(t, source, whole, b.Bytes())
}

func TestMessagesThatNoStoreWouldAcceptAreLeftOut(t *testing.T) {
	source := newMem(t)
	var bad []store.Info
	for i := range 7 {
		bad = append(bad, store.Info{Message: store.Message{ID: fmt.Sprint("bad", i), MaxAttempts: -1},
			State: store.StateReady, Due: time.UnixMilli(1)})
	}
	restore(t, source, "q", bad) // unchecked, below the client
	fill(t, source, "q", 2)
	var b bytes.Buffer
	r, err := Export(t.Context(), source, &b, ExportConfig{})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "max attempts is -1") ||
		!strings.Contains(err.Error(), "2 more") {
		t.Errorf("got %v", err)
	}
	if q := r.Queues[0]; !r.Complete || q.Refused < 5 || q.Exported+q.Refused != q.Total {
		t.Errorf("got %+v", r)
	}
	imported(t, newMem(t), &b)
}

// A message that goes on to the next state during the export is written once.
func TestExportHasAMessageThatChangesItsStateOnce(t *testing.T) {
	source := newMem(t)
	fill(t, source, "q", 4)
	h := &hooked{Store: source.Store()}
	listed := 0
	h.list = func(queue string, req store.ListRequest) (store.Page, error) {
		page, err := source.Store().List(t.Context(), queue, req)
		switch listed++; listed {
		case 2: // the scheduled messages are written, and fall due
			for i := range page.Messages {
				if _, err := source.Store().Reschedule(t.Context(), queue, []string{page.Messages[i].ID},
					store.Due{}); err != nil {
					t.Error(err)
				}
			}
		case 3: // the ready ones are written; one is claimed and one dies
			c := claim(t, source, queue, 2)
			if _, err := source.Store().Settle(t.Context(), queue,
				[]store.Settlement{{Receipt: c[0].Receipt, Action: store.Bury}}); err != nil {
				t.Error(err)
			}
		}
		return page, err
	}
	file := exported(t, newClient(t, h))
	if r := imported(t, newMem(t), bytes.NewReader(file)); r.Imported != 14 || r.Duplicates != 0 || listed != 5 {
		t.Errorf("%+v after %d pages", r, listed)
	}
}

func TestExportReadsAndHoldsAPageAtATime(t *testing.T) {
	h := &hooked{Store: memstore.New()}
	source := newClient(t, h)
	fill(t, source, "q", 700)
	h.list = func(queue string, req store.ListRequest) (store.Page, error) {
		if req.Limit > store.MaxBatch || req.State == store.StateLeased && req.Limit > leasedPage {
			t.Errorf("a page of %d", req.Limit)
		}
		return h.Store.List(t.Context(), queue, req)
	}
	exported(t, source)
}
