package server

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerMerged(s *Server) {
	route(s, access.Look, on("GET /v1/messages", "messages", "listAllMessages", "List messages of several queues",
		fails(http.StatusNotFound), s.fewReads,
		says("In order of due time, dead ones in order of death, those of the same time by queue. Leased ones, those of "+
			"a group, and with conditions on what is in a message: queue by queue. Such a list can be long without a "+
			"match, and one of two states can then lack a message that falls due while it is read. Counts of queues may be "+
			"known from up to 2 s ago, so that a message that was sent since then can be missing. At most 1,000 queues "+
			"are read, the first ones by name; internal ones are left out unless they are named. Otherwise as the list of "+
			"a queue.")),
		s.listMerged)
}

type mergedInput struct {
	FilterQuery
	States  []string `query:"states,explode" maxItems:"2" doc:"Two states in one list, ready and scheduled; in place of state"`
	Queues  []string `query:"queue,explode" maxItems:"200" doc:"Only these queues. Default: all but internal ones"`
	Limit   int      `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many items the page has at most"`
	Cursor  string   `query:"cursor" maxLength:"16384" doc:"The next of the page before, with the same parameters. Default: the first page"`
	Look    int      `query:"look" minimum:"1" maximum:"100000" default:"10000" doc:"How many messages to look at, however few match"`
	Preview int      `query:"preview" minimum:"1" maximum:"1048576" doc:"Cut payloads as the list of a queue does. Default: the whole payloads"`
}

func (s *Server) listMerged(ctx context.Context, in *mergedInput) (*output[MessagePage], error) {
	m, err := s.newMerge(ctx, in)
	if err != nil {
		return nil, err
	}
	page, err := m.page(ctx, in)
	return outputOf(page), err
}

// page returns the page that a request asks for.
func (m *merge) page(ctx context.Context, in *mergedInput) (MessagePage, error) {
	out := MessagePage{Page: Page[Message]{Items: []Message{}}}
	size := 0
	for len(out.Items) < in.Limit && size < maxPageBytes {
		info, err := m.take(ctx)
		if err != nil {
			return out, err
		}
		if info == nil {
			break
		}
		shown := preview(ctx, info, in.Preview)
		size += shown.SizeAsJSON()
		out.Items = append(out.Items, shown)
	}
	out.Looked, out.Next = m.looked, m.end()
	out.Truncated = out.Next != "" && size >= maxPageBytes
	return out, nil
}

// states returns the states of the list, none for a group.
func (in *mergedInput) states() ([]later.State, error) {
	f := &in.FilterQuery.Filter
	switch {
	case len(in.States) == 0 && f.State != "":
		return []later.State{later.State(f.State)}, nil
	case len(in.States) == 0:
		return nil, nil
	case f.State != "":
		return nil, field("query.states", store.Invalid("is given with state: give one of them"))
	}
	states := make([]later.State, len(in.States))
	for i, name := range in.States {
		states[i] = later.State(name)
	}
	slices.Sort(states)
	if !slices.Equal(states, []later.State{later.StateReady, later.StateScheduled}) {
		return nil, field("query.states", store.Invalid("is %.100q: give ready and scheduled, or one state as state",
			strings.Join(in.States, ",")))
	}
	return states, nil
}

// newMerge returns the list that a request asks for, at its cursor.
func (s *Server) newMerge(ctx context.Context, in *mergedInput) (*merge, error) {
	states, err := in.states()
	if err != nil {
		return nil, err
	}
	if len(states) == 2 {
		in.FilterQuery.Filter.State = string(states[0]) // for the checks
	}
	filter, err := in.filter(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkQueues(ctx, in.Queues); err != nil {
		return nil, err
	}
	if len(states) < 2 {
		states = []later.State{filter.State}
	}
	m := &merge{client: s.client, filter: filter, look: in.Look,
		byQueue: filter.Group != "" || filter.State == later.StateLeased || filter.LooksInside()}
	queues, err := s.mergedQueues(ctx, in.Queues)
	if err != nil {
		return nil, err
	}
	m.several = len(queues) > 1
	for _, queue := range queues {
		for _, state := range states {
			m.sources = append(m.sources, &mergeSource{queue: queue, state: state, from: filter.From, bound: filter.From})
		}
	}
	if err := m.resume(in.Cursor); err != nil {
		return nil, field("query.cursor", err)
	}
	if len(m.sources) > 2 {
		if err := m.narrow(ctx, s.problems.knowsSinceChange); err != nil {
			return nil, err
		}
	}
	m.limit, m.bytes = in.Limit, maxPageBytes
	if len(m.sources) > 1 {
		m.limit, m.bytes = min(max(2, 4*in.Limit/len(m.sources)), mergedPage, in.Limit), mergedBytes
	}
	return m, nil
}

// mergedQueues returns the queues that a request names, sorted. If it names none, it returns the queues that its sender
// may see, the first ones by name.
func (s *Server) mergedQueues(ctx context.Context, named []string) ([]string, error) {
	switch queues := sortedSet(named); len(queues) {
	case 0:
	case 1:
		return queues, s.queueExists(ctx, queues[0])
	default:
		return queues, nil
	}
	queues, err := s.visibleQueues(ctx)
	return queues[:min(len(queues), maxOverviewQueues)], err
}
