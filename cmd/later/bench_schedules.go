package main

import (
	"context"
	"fmt"

	"github.com/laterq/later/internal/benchmark"
	"github.com/laterq/later/internal/wire"
)

type benchSchedulesJSON struct {
	Workload  string        `json:"workload"`
	Schedules int           `json:"schedules"`
	Put       float64       `json:"put_per_second"`
	Runs      float64       `json:"runs_per_second"`
	Upcoming  wire.Duration `json:"upcoming_max"`
	Page      wire.Duration `json:"page_max"`
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
		Upcoming: wire.Measured(s.Upcoming),
		Page:     wire.Measured(s.Page), benchCostJSON: cost.json(s.Schedules),
	}
	return b.result(j, name, "put %.0f/s  send %.0f runs/s  next 100 runs in at most %s  a page of 100 in at most %s",
		j.Put, j.Runs, formatMillis(s.Upcoming), formatMillis(s.Page))
}
