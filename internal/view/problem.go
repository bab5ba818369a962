package view

import (
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/wire"
)

// Problem returns the JSON of a problem of the store.
func Problem(p inspect.Problem) wire.StoreProblem {
	place, action := p.Place(), p.Action()
	shown := wire.StoreProblem{
		Kind: string(p.Kind), Severity: string(p.Severity), Text: p.Text(), Queue: p.Queue, Topic: p.Topic,
		Schedule: p.Schedule, Key: p.Key, Message: p.Message, Worker: p.Worker, Workers: p.Workers, Paused: p.Paused,
		Shards: p.Shards, By: p.By, Count: p.Count, Used: p.Used, Limit: p.Limit,
		Rate: wire.NewRate(p.Rate), Since: wire.FormatTime(p.Since), Error: p.Error, Now: wire.FormatTime(p.Now),
		Place: wire.ProblemPlace{View: place.View, Queue: place.Queue, State: string(place.State), Group: place.Group,
			Message: place.Message, Topic: place.Topic, Schedule: place.Schedule},
		Action: wire.ProblemAction{Do: action.Do, Command: action.Command, Shell: action.Shell()},
	}
	if p.Shards > 0 && p.Kind != inspect.ShardsStuck {
		shown.Shard = &p.Shard
	}
	return shown
}
