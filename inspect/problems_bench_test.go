package inspect

import (
	"fmt"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

// BenchmarkProblems finds the problems of 1,000 queues in Redis: each has messages to come, and one in ten also has an
// overdue message without a worker, and one in ten a dead message. The store is read for the first time, as
// Problems does, or again, as a server does.
//
//	go test -run '^$' -bench Problems -benchtime 20x .
func BenchmarkProblems(b *testing.B) {
	c, err := later.Open(b.Context(), redistest.Start(b).URL(), later.WithoutActivity())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for i := range 1000 {
		q := c.Queue(fmt.Sprintf("q%03d", i))
		batch := []later.Outgoing{{When: later.In(time.Hour)}, {When: later.In(2 * time.Hour)}}
		if i%10 == 0 {
			batch = append(batch, later.Outgoing{When: later.At(time.Now().Add(-time.Hour))})
		}
		if i%10 == 1 {
			batch = append(batch, later.Outgoing{When: later.In(0)})
		}
		if _, err := q.SendBatch(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		if i%10 == 1 {
			got, err := q.Receive(b.Context(), 1)
			if err == nil {
				err = got[0].Bury(b.Context(), fmt.Errorf("error %d", i))
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("anew", func(b *testing.B) {
		for b.Loop() {
			list, err := Problems(b.Context(), c)
			if err != nil || len(list.Problems) < 100 {
				b.Fatal(len(list.Problems), err)
			}
		}
	})
	b.Run("again", func(b *testing.B) {
		reader := ProblemReader{Client: c}
		for b.Loop() {
			if _, err := reader.Find(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
