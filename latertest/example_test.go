package latertest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/latertest"
)

// example stands for the *testing.T of a test, which an example does not have.
type example struct{ cleanup func() }

func (e *example) Helper()                     {}
func (e *example) Cleanup(f func())            { e.cleanup = f }
func (e *example) Errorf(f string, a ...any)   { fmt.Printf(f+"\n", a...) }
func (e *example) Fatalf(f string, a ...any)   { panic(fmt.Sprintf(f, a...)) }
func (e *example) startedAt() (noon time.Time) { return time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC) }

// shop cancels orders that are not paid within half an hour.
type shop struct {
	unpaid *later.Queue
	paid   map[string]bool
}

func (s *shop) place(ctx context.Context, order string) error {
	_, err := s.unpaid.Send(ctx, []byte(order), later.WithID("unpaid-"+order), later.In(30*time.Minute))
	return err
}

func (s *shop) cancelIfUnpaid(_ context.Context, m *later.Message) error {
	if !s.paid[string(m.Payload)] {
		fmt.Println("order", string(m.Payload), "is cancelled")
	}
	return nil
}

func Example() {
	ctx := context.Background()
	t := &example{} // in a test: t *testing.T
	lt := latertest.NewAt(t, t.startedAt())
	defer func() { t.cleanup() }()

	s := &shop{unpaid: lt.Client().Queue("orders"), paid: map[string]bool{"1002": true}}
	lt.Handle("orders", s.cancelIfUnpaid)
	if err := s.place(ctx, "1001"); err != nil {
		panic(err)
	}
	latertest.RequireScheduled(t, s.unpaid, latertest.Payload("1001"), latertest.In(30*time.Minute))

	lt.Advance(30 * time.Minute)
	fmt.Println("at", lt.Now().Format(time.TimeOnly))
	latertest.RequireNone(t, s.unpaid)
	// Output:
	// order 1001 is cancelled
	// at 12:30:00
}
