package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
	"github.com/laterq/later/doctor"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/recurrence"
	"github.com/laterq/later/store"
)

func newClient(t *testing.T, s store.Store) *later.Client {
	t.Helper()
	c, err := later.New(s, later.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// checked is a store with one issue, until it is repaired.
type checked struct {
	store.Store
	repaired bool
}

func (s *checked) Check(ctx context.Context, opts store.CheckOptions, report func(store.CheckResult)) error {
	report(store.CheckResult{Severity: store.SeverityOK, Check: "format"})
	if !s.repaired {
		s.repaired = opts.Repair
		report(store.CheckResult{Severity: store.SeverityError, Check: "counters", Repaired: opts.Repair})
	}
	return context.Cause(ctx)
}

func TestDoctorCheckRepairsOnlyWhenAsked(t *testing.T) {
	client := newClient(t, &checked{Store: memstore.New()})
	for i, c := range []struct {
		repair bool
		want   []string
	}{
		{false, []string{"counters, repaired false"}},
		{true, []string{"counters, repaired true"}},
		{false, nil},
	} {
		var issues []string
		err := doctor.Check(t.Context(), client, doctor.Config{Repair: c.repair}, func(r doctor.Result) {
			if r.IsIssue() {
				issues = append(issues, fmt.Sprintf("%s, repaired %v", r.Check, r.Repaired))
			}
		})
		if err != nil || !slices.Equal(issues, c.want) {
			t.Errorf("check %d: %q, %v; want %q", i, issues, err, c.want)
		}
	}
}

func TestDoctorCheckReturnsWhyItCouldNotBeCompleted(t *testing.T) {
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	err := doctor.Check(ctx, newClient(t, &checked{Store: memstore.New()}), doctor.Config{}, func(doctor.Result) {})
	if !errors.Is(err, enough) {
		t.Errorf("Check returned %v; want the cause", err)
	}
	err = doctor.Check(t.Context(), newClient(t, memstore.New()), doctor.Config{}, func(r doctor.Result) {
		t.Errorf("reported %+v", r)
	})
	if !errors.Is(err, later.ErrUnsupported) {
		t.Errorf("Check of a store with nothing to check returned %v; want ErrUnsupported", err)
	}
	disk, err := diskstore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	client := newClient(t, disk)
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	if err := doctor.Check(t.Context(), client, doctor.Config{}, nil); !errors.Is(err, later.ErrClosed) {
		t.Errorf("Check of a closed store returned %v; want ErrClosed", err)
	}
}

func TestDoctorReportsSchedulesThatCannotBeRead(t *testing.T) {
	s := &checked{Store: memstore.New(), repaired: true}
	client := newClient(t, s)
	schedule := later.Schedule{Name: "good", Queue: "q", When: recurrence.Spec{Cron: "@daily"}}
	if _, err := client.Schedules().Put(t.Context(), schedule); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "{}", `{"v":1}` + "\n" + `{"name":"other"}`, `{"v":99}`} {
		m := store.Outgoing{Message: store.Message{ID: "bad" + bad, Payload: []byte(bad), Group: "schedules"}}
		if _, err := s.Send(t.Context(), "schedules:", []store.Outgoing{m}); err != nil {
			t.Fatal(err)
		}
	}
	found := 0
	err := doctor.Check(t.Context(), client, doctor.Config{}, func(r doctor.Result) {
		if r.IsIssue() && r.Check == "schedules" && r.Queue == "schedules:" && r.Advice != "" {
			found++
		}
	})
	if err != nil || found != 4 {
		t.Errorf("found %d issues, %v; want 4", found, err)
	}
}
