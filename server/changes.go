package server

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later/internal/changelog"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/view"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

func registerChanges(s *Server) {
	route(s, access.Look, on("GET /v1/changes", "server", "listChanges",
		"List changes that were made through the servers of the store, latest first",
		says("Those that are logged: cancels, replays, pauses, deletions and other changes to what others sent. The "+
			"store keeps the last 1,000, as well as it can: a change does not wait for its entry. Changes of no single "+
			"queue are shown to those who may look at all.")), s.listChanges)
	route(s, access.Get, on("POST /v1/changes/{change}/undo", "server", "undoChange", "Undo a change",
		fails(http.StatusNotFound, http.StatusConflict), answers(http.StatusOK),
		says("It needs the right that the change needed. What has changed since is left as it is: the code is conflict "+
			"if nothing is left to undo, and else it is counted as skipped. A reschedule or an edit is taken back if the "+
			"message is as it was left. Cancelled messages are restored as they were, unless their ids are in use "+
			"again. The server that made a change keeps copies for that, for ten minutes, of 10,000 messages and 16 MB "+
			"together, the latest ones. More than 500 messages are changed in an operation, which goes on after the "+
			"reply.")), s.undoChange)
}

// Change is a change that a caller made through a server.
type Change struct {
	wire.Change
	Undo *Undoable `json:"undo,omitempty" doc:"Set while the sender of the request can undo it at this server"`
}

// Undoable is how far a change can be undone.
type Undoable struct {
	Until    string `json:"until,omitempty" doc:"When the server forgets what the undo needs. Default: it does not"`
	Messages int    `json:"messages,omitempty" doc:"How many messages it restores or moves back, if they have not changed since"`
}

// Changed logs a change made by the sender of the request of ctx, as access.Log does, and lists it in /v1/changes. It
// is for handlers next to the Server, such as the handler of a store. The attributes queue and topic name the changed
// queue or topic. Without them, the change is listed only for senders that may look at all queues.
func (s *Server) Changed(ctx context.Context, what string, attrs ...slog.Attr) {
	s.changed(ctx, nil, what, attrs...)
}

// done is Changed unless the change failed. It returns the error.
func (s *Server) done(ctx context.Context, err error, what string, attrs ...slog.Attr) error {
	if err == nil {
		s.changed(ctx, nil, what, attrs...)
	}
	return err
}

// changed is Changed for a change that may be undone. The reply to the request tells its id.
func (s *Server) changed(ctx context.Context, u *undoable, what string, attrs ...slog.Attr) *changelog.Change {
	access.Log(ctx, s.log, what, attrs...)
	c := &changelog.Change{Who: access.NameOf(ctx), What: what, Attributes: attributesOf(attrs)}
	for _, a := range attrs {
		if a.Key == "queue" {
			c.Queue = a.Value.String()
		}
	}
	if u != nil {
		c.Right, c.Back = u.right.Name(), u.back
	}
	s.changes.Add(c)
	isUndoable := u != nil && u.back != nil
	if u != nil && u.kept != nil {
		isUndoable = s.undos.keep(c.ID, u.kept)
	}
	if h, _ := ctx.Value(headerKey{}).(http.Header); h != nil {
		h.Add(changeHeader, c.ID)
		if isUndoable {
			h.Set(undoableHeader, "true")
		}
	}
	s.readSoon()
	return c
}

// amended lists a change with further attributes in place of the change before.
func (s *Server) amended(c *changelog.Change, attrs ...slog.Attr) {
	after := *c
	after.Attributes = maps.Clone(c.Attributes)
	maps.Copy(after.Attributes, attributesOf(attrs))
	s.changes.Put(&after)
	s.readSoon()
}

// readSoon has problems and overviews read soon, since something was changed.
func (s *Server) readSoon() {
	s.problems.readSoon()
	s.overviews.readSoon()
}

func attributesOf(attrs []slog.Attr) map[string]any {
	all := map[string]any{}
	for _, a := range attrs {
		switch {
		case a.Key == "queue":
		case a.Value.Kind() == slog.KindDuration:
			all[a.Key] = a.Value.String()
		default:
			all[a.Key] = a.Value.Any()
		}
	}
	return all
}

const (
	changeHeader   = "Later-Change"
	undoableHeader = "Later-Undoable"
)

type headerKey struct{}

// withHeader returns the context of a request with the header of its reply, for the ids of its changes.
func withHeader(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, headerKey{}, h)
}

// isOf reports whether a change is of queues and topics that see reports true for, and of no schedule unless schedules
// is set.
func isOf(c *changelog.Change, see func(queue string) bool, schedules bool) bool {
	topic, ok := c.Attributes["topic"].(string)
	_, scheduled := c.Attributes["schedule"]
	return (c.Queue != "" || ok) && (c.Queue == "" || see(c.Queue)) && (!ok || see(reserved.Topic+topic)) &&
		(!scheduled || schedules)
}

// seesChange returns a function that reports whether the sender of a request sees a change.
func seesChange(ctx context.Context) func(*changelog.Change) bool {
	if access.Check(ctx, access.Look, "") == nil {
		return func(*changelog.Change) bool { return true }
	}
	see, schedules := visible(ctx), access.CheckSchedules(ctx, access.Look) == nil
	return func(c *changelog.Change) bool { return isOf(c, see, schedules) }
}

// shownChange returns a change as the sender of a request may see it: without texts that a caller searched for in
// payloads, if payloads are hidden.
func (s *Server) shownChange(ctx context.Context, c *changelog.Change) Change {
	shown := Change{Change: view.Change(c)}
	if _, has := c.Attributes["filter"]; has && hides(ctx) {
		shown.Attributes = maps.Clone(c.Attributes)
		delete(shown.Attributes, "filter")
	}
	if c.Undone == nil && s.mayUndo(ctx, c) == nil {
		if shown.Undo = s.undos.of(c.ID); shown.Undo == nil && c.Back != nil {
			shown.Undo = &Undoable{}
		}
	}
	return shown
}

func (s *Server) listChanges(ctx context.Context, in *PageQuery) (*output[Page[Change]], error) {
	after, err := changePosition(in.Cursor)
	if err != nil {
		return nil, err
	}
	found, err := s.changes.List(ctx, after, in.Limit+1, seesChange(ctx))
	if err != nil {
		return nil, err
	}
	next := ""
	if len(found) > in.Limit {
		found = found[:in.Limit]
		last := found[in.Limit-1]
		next = fmt.Sprintf("%d.%s", last.Time.UnixMilli(), last.ID)
	}
	out := outputOf(pageOf(found, func(c *changelog.Change) Change { return s.shownChange(ctx, c) }))
	out.Body.Next = next
	return out, nil
}

// changePosition returns the place in the list that a cursor stands for.
func changePosition(cursor string) (after changelog.Position, err error) {
	if cursor == "" {
		return after, nil
	}
	ms, id, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n < 0 || n > maxChangeTime || store.CheckID(id) != nil {
		return after, field("query.cursor", store.Invalid("is %.40q: give the next of the page before", cursor))
	}
	return changelog.Position{Time: time.UnixMilli(n), ID: id}, nil
}

// maxChangeTime is later than all changes, in ms since 1970.
const maxChangeTime = 4_000_000_000_000

// changingVerbs begin the ids of operations that list their change.
var changingVerbs = []string{"apply", "backfill", "cancel", "configure", "delete", "drain", "edit", "import", "move",
	"pause", "purge", "put", "replay", "reschedule", "restart", "resume", "rewind", "run", "set", "start", "stop",
	"subscribe", "trigger", "undo", "unsubscribe"}

// describeChanges describes the headers with the ids of changes.
func (s *Server) describeChanges() {
	text := &huma.Schema{Type: huma.TypeString}
	headers := map[string]*huma.Param{
		changeHeader: {Schema: text,
			Description: "The id of the change in /v1/changes; none if nothing was changed, several if several things were"},
		undoableHeader: {Schema: &huma.Schema{Type: huma.TypeBoolean},
			Description: "True if undoChange can undo the change; none otherwise"},
	}
	for _, path := range s.api.OpenAPI().Paths {
		for _, op := range []*huma.Operation{path.Post, path.Put, path.Patch, path.Delete} {
			if op == nil || !slices.ContainsFunc(changingVerbs, func(verb string) bool {
				return strings.HasPrefix(op.OperationID, verb)
			}) {
				continue
			}
			for _, status := range []string{"200", "201", "202"} {
				if r := op.Responses[status]; r != nil {
					all := maps.Clone(headers)
					maps.Copy(all, r.Headers)
					r.Headers = all
				}
			}
		}
	}
}
