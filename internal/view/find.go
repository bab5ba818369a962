package view

import (
	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/wire"
)

// Found returns the JSON of a result of a search of all queues. show returns the JSON of a message.
func Found[M, P any](f *inspect.Found, show func(*later.Info) M) wire.Found[M, P] {
	out := wire.Found[M, P]{Stage: string(f.Stage)}
	switch {
	case f.Message != nil:
		message := show(f.Message)
		out.Message = &message
	case f.Name != nil:
		name := wire.FoundName(*f.Name)
		out.Name = &name
	default:
		p := f.Progress
		out.Progress = &wire.FindProgress{Conditions: p.Conditions, Queues: p.Queues, LeftOut: p.LeftOut,
			NamesLeftOut: p.NamesLeftOut,
			Messages:     wire.StateCounts(p.Messages), Looked: wire.StateCounts(p.Looked),
			Matched: wire.StateCounts(p.Matched), Done: p.Done, Next: p.Next}
	}
	return out
}
