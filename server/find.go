package server

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/internal/jsontext"
	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// maxFoundText is how many bytes of results are written at once, unless a single message has more.
const maxFoundText = 32 << 10

func registerFind(s *Server) {
	route(s, access.Look, on("GET /v1/find", "overview", "findAnything", "Find messages and names in all queues",
		says("A stream of JSON objects, one a line, as they are found: first messages with exactly the id, in any "+
			"state, and finished ones that this server has kept; then names of queues, topics, schedules and workers with "+
			"all words, and groups and reminder series of exactly the name; then messages that match. Each stage ends "+
			"with a line with progress, and the last stage has more of them. The last line of the stream has the "+
			"progress of the stage content with done or next, or a problem; otherwise the stream was cut off. A word is "+
			"looked for in ids, groups, keys and payloads, whatever its case. A caller who may not see payloads finds "+
			"no word in them, and is refused conditions on them. Later's internal queues are left out unless they are "+
			"named."),
		sends("Results", s.streamOf(linesType, typeOf[FoundLine]()))), s.find)
}

// FoundLine is a line of a search of all queues.
type FoundLine struct {
	wire.Found[Message, problem.Problem]
	Finished *Finished `json:"finished,omitempty" doc:"The last finished message with exactly the id in a queue, if this server has kept it and no such message exists"`
}

type findInput struct {
	Query   string `query:"q" required:"true" maxLength:"4096" doc:"An id, a name, or words and conditions as in the parameter q of a list" example:"order 42"`
	Queue   string `query:"queue" maxLength:"128" doc:"Only this queue. Default: all but internal ones"`
	Limit   int    `query:"limit" minimum:"1" maximum:"10000" default:"100" doc:"How many messages end the search by content"`
	Look    int    `query:"look" minimum:"1" maximum:"1000000" default:"50000" doc:"How many messages to look at, however few match"`
	Cursor  string `query:"cursor" maxLength:"8192" doc:"The next of the request before, which this one continues with the same q. Default: a new search"`
	Preview int    `query:"preview" minimum:"1" maximum:"1048576" doc:"Cut payloads as a list does. Default: the whole payloads"`
}

// errHiddenFind is errHiddenSearch for a text.
var errHiddenFind = &problem.Error{Status: http.StatusForbidden,
	Err: fmt.Errorf("a caller who may not see payloads and headers may not search in them either; put the text in quotes "+
		"to find it in ids, groups and keys: %w", store.ErrForbidden)}

// options returns the options of the search, as the sender of the request may see it. With refused, which says why the
// text is not allowed, only the ids of it are.
func (in *findInput) options(ctx context.Context) (o inspect.FindOptions, refused, err error) {
	text := in.Query
	filter, err := inspect.ParseFilter(in.Query)
	if err == nil && strings.TrimSpace(in.Query) == "" {
		err = store.Invalid("is empty: give an id, a name, words or conditions")
	}
	if refused = field("query.q", err); err == nil && maySearch(ctx, &filter) != nil {
		refused = errHiddenFind
	}
	if refused != nil {
		id := strings.TrimSpace(text)
		if store.CheckID(id) != nil {
			return o, nil, refused
		}
		text = `"` + quotedID.Replace(id) + `"`
	}
	if in.Queue != "" {
		if err := checkQueues(ctx, []string{in.Queue}); err != nil {
			return o, nil, err
		}
	}
	see := visible(ctx)
	return inspect.FindOptions{Text: text, Queue: in.Queue, NamesOnly: hides(ctx), Limit: in.Limit, Look: in.Look,
		Cursor: in.Cursor, Visible: func(queue string) bool {
			if queue == reserved.Schedules && in.Queue == "" {
				return access.CheckSchedules(ctx, access.Look) == nil
			}
			return see(queue)
		}}, refused, nil
}

var quotedID = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// onlyIDs returns the results of the first stage, and then why the others are missing.
func onlyIDs(all iter.Seq2[*inspect.Found, error], refused error) iter.Seq2[*inspect.Found, error] {
	return func(yield func(*inspect.Found, error) bool) {
		for found, err := range all {
			if err == nil && found.Progress != nil {
				err = refused
			}
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

func (s *Server) find(ctx context.Context, in *findInput) (*huma.StreamResponse, error) {
	o, refused, err := in.options(ctx)
	if err != nil {
		return nil, err
	}
	ctx, done, err := s.wait(ctx, s.waits)
	if err != nil {
		return nil, err
	}
	give, err := s.finds.await(ctx, 1)
	if err != nil {
		done()
		return nil, err
	}
	f := &finding{Server: s, id: strings.TrimSpace(in.Query), see: o.Visible, show: func(info *later.Info) Message {
		return preview(ctx, info, in.Preview)
	}}
	var stop func()
	all := inspect.Find(ctx, s.client, o)
	if in.Queue != "" {
		f.see = func(queue string) bool { return queue == in.Queue && o.Visible(queue) }
	}
	if refused != nil {
		all = onlyIDs(all, refused)
	}
	f.next, stop = iter.Pull2(all)
	end := func() {
		stop()
		give()
		done()
	}
	if err := f.step(ctx); err != nil && len(f.lines) == 0 { // as a problem, because nothing was written yet
		end()
		return nil, err
	} else if err != nil {
		f.fail(ctx, err)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer end()
		f.sseWriter = newSSEWriter(hctx)
		f.w.Header().Set("Content-Type", linesType)
		f.run(ctx)
	}}, nil
}

// finding is a search that writes its results as they come.
type finding struct {
	*Server
	sseWriter
	id    string          // the text that is looked for, which may be one
	live  map[string]bool // the queues that have a message with it
	see   func(queue string) bool
	next  func() (*inspect.Found, error, bool)
	show  func(*later.Info) Message
	lines []byte // not yet written
	ended bool
}

// run writes results until the search has ended, or the client is gone or too slow.
func (f *finding) run(ctx context.Context) {
	for {
		if !f.sseWriter.send(f.lines) || f.ended {
			return
		}
		if f.lines = f.lines[:0]; cap(f.lines) > 2*maxFoundText {
			f.lines = nil
		}
		if err := f.step(ctx); err != nil {
			f.fail(ctx, err)
		}
	}
}

// fail ends the results with a problem.
func (f *finding) fail(ctx context.Context, err error) {
	f.add(FoundLine{Found: wire.Found[Message, problem.Problem]{Problem: f.problemOf(ctx, err)}})
	f.ended = true
}

// step adds the next results, up to the next progress. It works in a place for lists, and not while they are written.
func (f *finding) step(ctx context.Context) error {
	done, err := f.work(ctx)
	if err != nil {
		return err
	}
	defer done()
	for len(f.lines) < maxFoundText {
		found, err, more := f.next()
		if err != nil || !more {
			f.ended = true
			return err
		}
		if found.Stage == inspect.ByID {
			f.addFinished(ctx, found)
		}
		f.add(FoundLine{Found: view.Found[Message, problem.Problem](found, f.show)})
		if found.Progress != nil {
			return nil
		}
	}
	return nil
}

// addFinished adds the finished messages with the id at the end of the first stage, but for messages that exist.
func (f *finding) addFinished(ctx context.Context, found *inspect.Found) {
	if found.Message != nil && found.Message.ID == f.id {
		if f.live == nil {
			f.live = map[string]bool{}
		}
		f.live[found.Message.Queue] = true
	}
	if found.Progress == nil {
		return
	}
	for _, one := range f.finished.withID(f.id, func(queue string) bool { return !f.live[queue] && f.see(queue) },
		hides(ctx)) {
		f.add(FoundLine{Found: wire.Found[Message, problem.Problem]{Stage: string(inspect.ByID)}, Finished: &one})
	}
}

func (f *finding) add(line FoundLine) {
	f.lines = append(jsontext.Append(f.lines, line), '\n')
}
