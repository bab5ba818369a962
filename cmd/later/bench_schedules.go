package main

import (
	"context"
	"fmt"
	"time"

	"github.com/laterq/later/internal/benchmark"
)

type benchSchedulesJSON struct {
	Workload   string  `json:"workload"`
	Schedules  int     `json:"schedules"`
	Put        float64 `json:"put_per_second"`
	Runs       float64 `json:"runs_per_second"`
	UpcomingMS float64 `json:"upcoming_max_ms"`
	PageMS     float64 `json:"page_max_ms"`
	benchCostJSON
}

// schedules measures storing and reading schedules and sending their runs.
func (b *bench) schedules(ctx context.Context, q benchQueue) error {
	name := fmt.Sprintf("schedules, %d", b.o.schedules)
	b.progress(name)
	var cost benchCost
	s, err := benchmark.Schedules(ctx, b.client, benchmark.NameOf(q), b.o.schedules, b.o.size,
		func(send func() error) error {
			end, err := b.startCost(ctx)
			if err != nil {
				return err
			}
			if err := send(); err != nil {
				return err
			}
			cost, err = end()
			return err
		})
	if err != nil {
		return err
	}
	j := benchSchedulesJSON{
		Workload: "schedules", Schedules: s.Schedules, Put: round3(s.Put), Runs: round3(s.Runs),
		UpcomingMS: round3(float64(s.Upcoming) / float64(time.Millisecond)),
		PageMS:     round3(float64(s.Page) / float64(time.Millisecond)), benchCostJSON: cost.json(s.Schedules),
	}
	return b.result(j, name, "put %.0f/s  send %.0f runs/s  next 100 runs in at most %.1f ms  a page of 100 in at most "+
		"%.1f ms", j.Put, j.Runs, j.UpcomingMS, j.PageMS)
}
