package server

import (
	"context"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/store"
)

// maxChanges is how many changes a server remembers.
const maxChanges = 1000

func registerChanges(s *Server) {
	route(s, access.Look, on("GET /v1/changes", "server", "listChanges",
		"List changes that were made through this server, latest first",
		says("Those that are logged: purges, replays, pauses, deletions and other changes to what others sent, the "+
			"last 1,000 since the server started. Changes of no single queue are shown to those who may look at "+
			"all.")), s.listChanges)
}

// changes are the last changes that were made through a server.
type changes struct {
	mu    sync.Mutex
	last  []*Change // a ring: that with an id is at (id - 1) % maxChanges
	count int64     // changes so far: the id of the last one
}

// Change is a change that a caller made through a server.
type Change struct {
	ID         int64          `json:"id" doc:"Grows with each change, from 1 when the server starts"`
	Time       string         `json:"time"`
	Who        string         `json:"who"`
	What       string         `json:"what"`
	Queue      string         `json:"queue,omitempty"`
	Attributes map[string]any `json:"attributes" doc:"To what it was done, such as id, count and filter"`
}

// Changed logs a change made by the sender of the request of ctx, as access.Log does, and lists it in /v1/changes. It
// is for handlers next to the Server, such as the handler of a store. The attributes queue and topic name the changed
// queue or topic. Without them, the change is listed only for senders that may look at all queues.
func (s *Server) Changed(ctx context.Context, what string, attrs ...slog.Attr) {
	access.Log(ctx, s.log, what, attrs...)
	c := &Change{Time: wire.FormatTime(time.Now()), Who: access.NameOf(ctx), What: what, Attributes: map[string]any{}}
	for _, a := range attrs {
		switch {
		case a.Key == "queue":
			c.Queue = a.Value.String()
		case a.Value.Kind() == slog.KindDuration:
			c.Attributes[a.Key] = a.Value.String()
		default:
			c.Attributes[a.Key] = a.Value.Any()
		}
	}
	s.changes.add(c)
	s.problems.readSoon()
}

func (cs *changes) add(c *Change) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.last) < maxChanges {
		cs.last = append(cs.last, c)
	} else {
		cs.last[cs.count%maxChanges] = c
	}
	cs.count++
	c.ID = cs.count
}

// before returns up to limit changes with ids below one that a function shows, latest first. id 0 is after all.
func (cs *changes) before(id int64, limit int, shows func(*Change) bool) []*Change {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if id == 0 {
		id = cs.count + 1
	}
	found := []*Change{}
	oldest := cs.count - int64(len(cs.last)) + 1
	for id = min(id, cs.count+1) - 1; id >= oldest && len(found) < limit; id-- {
		if c := cs.last[(id-1)%maxChanges]; shows(c) {
			found = append(found, c)
		}
	}
	return found
}

// isOf reports whether a change is of queues and topics that see reports true for, and of no schedule unless schedules
// is set.
func (c *Change) isOf(see func(queue string) bool, schedules bool) bool {
	topic, ok := c.Attributes["topic"].(string)
	_, scheduled := c.Attributes["schedule"]
	return (c.Queue != "" || ok) && (c.Queue == "" || see(c.Queue)) && (!ok || see(reserved.Topic+topic)) &&
		(!scheduled || schedules)
}

// withoutFilter returns the change without texts that a caller searched for in payloads.
func (c *Change) withoutFilter() *Change {
	if _, has := c.Attributes["filter"]; !has {
		return c
	}
	hidden := *c
	hidden.Attributes = maps.Clone(c.Attributes)
	delete(hidden.Attributes, "filter")
	return &hidden
}

// ChangePage is a page of changes, latest first.
type ChangePage struct {
	Page[*Change]
	Since string `json:"since" doc:"When the server started"`
}

func (s *Server) listChanges(ctx context.Context, in *PageQuery) (*output[ChangePage], error) {
	all := access.Check(ctx, access.Look, "") == nil
	see, schedules := visible(ctx), access.CheckSchedules(ctx, access.Look) == nil
	out := &output[ChangePage]{}
	out.Body.Since = wire.FormatTime(s.started)
	var before int64
	if in.Cursor != "" {
		var err error
		if before, err = strconv.ParseInt(in.Cursor, 10, 64); err != nil || before < 1 {
			return nil, field("query.cursor", store.Invalid("is %.40q: give the next of the page before", in.Cursor))
		}
	}
	found := s.changes.before(before, in.Limit+1, func(c *Change) bool { return all || c.isOf(see, schedules) })
	if len(found) > in.Limit {
		found = found[:in.Limit]
		out.Body.Next = strconv.FormatInt(found[in.Limit-1].ID, 10)
	}
	out.Body.Items = found
	if hides(ctx) {
		for i, c := range out.Body.Items {
			out.Body.Items[i] = c.withoutFilter()
		}
	}
	return out, nil
}

func registerInfo(s *Server) {
	// Every role has the right Get.
	route(s, access.Get, on("GET /v1/server", "server", "getServer",
		"Describe the server and what the sender of the request may do"), s.info)
}

// ServerInfo describes a server and the sender of a request.
type ServerInfo struct {
	Version  string `json:"version"`
	Store    string `json:"store" doc:"The kind of the store, such as redis, embedded, memory or remote"`
	Started  string `json:"started"`
	Waits    int    `json:"waits" doc:"Requests that wait for messages or events"`
	MaxWaits int    `json:"max_waits"`

	KeepsFinished []string `json:"keeps_finished,omitempty" doc:"The queues whose finished messages this server keeps, as far as the sender may look at them; a * at the end stands for any text"`

	AccessControl bool        `json:"access_control" doc:"Whether the server asks who sends a request"`
	Who           string      `json:"who,omitempty"`
	Role          access.Role `json:"role,omitempty" doc:"None, if the server has no access control"`
	Rights        []string    `json:"rights" enum:"look,get,send,work,operate,administer" doc:"What the sender may do, as routes name it: look, get, send, work, operate and administer"`
	Queues        []string    `json:"queues,omitempty" doc:"The queues that the sender is limited to; none means all"`
	HidePayloads  bool        `json:"hide_payloads,omitempty" doc:"The sender sees no payloads, headers and error texts"`
}

func (s *Server) info(ctx context.Context, _ *struct{}) (*output[ServerInfo], error) {
	who, controlled := access.FromContext(ctx)
	info := ServerInfo{
		Version: s.cfg.Version, Store: s.cfg.Store, Started: wire.FormatTime(s.started), Waits: int(s.waits.Taken()),
		MaxWaits: s.cfg.MaxWaits, AccessControl: controlled, Who: who.Name, Role: who.Role, Queues: who.Queues,
		HidePayloads: who.HidePayloads, KeepsFinished: s.finished.visible(ctx),
	}
	for right := access.Look; right <= access.Administer; right++ {
		if may(ctx, right, "") == nil {
			info.Rights = append(info.Rights, right.Name())
		}
	}
	return outputOf(info), nil
}
