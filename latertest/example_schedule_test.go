package latertest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/latertest"
	"github.com/laterq/later/recurrence"
)

// invoices writes an invoice at nine o'clock on the first of each month.
func invoices(ctx context.Context, client *later.Client) error {
	_, err := client.Schedules().Put(ctx, later.Schedule{
		Name: "invoices", Queue: "invoices", When: recurrence.Spec{Cron: "0 9 1 * *", TimeZone: "Europe/Berlin"},
	})
	return err
}

func Example_schedule() {
	t := &example{} // in a test: t *testing.T
	lt := latertest.NewAt(t, t.startedAt())
	defer func() { t.cleanup() }()

	if err := invoices(context.Background(), lt.Client()); err != nil {
		panic(err)
	}
	lt.Handle("invoices", func(_ context.Context, m *later.Message) error {
		run, _ := later.RunOf(m)
		fmt.Println("invoices of", run.Nominal.AddDate(0, -1, 0).Format("January 2006"))
		return nil
	})
	lt.Advance(124 * 24 * time.Hour)
	info, err := lt.Client().Schedules().Get(context.Background(), "invoices")
	if err != nil {
		panic(err)
	}
	fmt.Println("next:", info.NextRun.Nominal)
	// Output:
	// invoices of January 2030
	// invoices of February 2030
	// invoices of March 2030
	// invoices of April 2030
	// next: 2030-06-01 09:00:00 +0200 CEST
}
