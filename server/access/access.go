// Package access decides which requests to a server are allowed: rights, the roles that combine them, the identity of
// the sender of a request, and a Control that derives the identity from a configuration file. It imports package store
// and internal packages for texts and errors. Start with Right, then Control.
package access

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/store"
)

// Right is permission to make requests of one kind.
type Right uint8

// The rights. Each route of a server needs one of them.
const (
	// Look is to read messages, counts, schedules and events.
	Look Right = iota + 1
	// Get is to read single messages by id.
	Get
	// Send is to send messages, and to cancel, reschedule and edit single ones by id.
	Send
	// Work is to receive and settle messages.
	Work
	// Operate is to change the messages of other senders: pause, replay, purge, bulk changes, schedules, topics.
	Operate
	// Administer is to delete queues, to import, and to use the server as a store.
	Administer
)

// String returns the right as a verb, as in "may not look at queue mail".
func (r Right) String() string {
	return [...]string{Look: "look at", Get: "get messages of", Send: "send to", Work: "work on", Operate: "operate",
		Administer: "administer"}[r]
}

// Name returns the name of the right, as in the description of the HTTP API.
func (r Right) Name() string {
	name, _, _ := strings.Cut(r.String(), " ")
	return name
}

// Role is a named set of rights.
type Role string

// The roles.
const (
	RoleRead    Role = "read"
	RoleSend    Role = "send"
	RoleWork    Role = "work"
	RoleOperate Role = "operate"
	RoleAdmin   Role = "admin"
)

var rights = map[Role][]Right{
	RoleRead:    {Look, Get},
	RoleSend:    {Get, Send},
	RoleWork:    {Get, Send, Work},
	RoleOperate: {Look, Get, Send, Operate},
	RoleAdmin:   {Look, Get, Send, Work, Operate, Administer},
}

// roles are the names of the roles, and roleNames the same for errors.
var (
	roles     = []string{string(RoleRead), string(RoleSend), string(RoleWork), string(RoleOperate), string(RoleAdmin)}
	roleNames = strings.Join(roles, ", ")
)

// Allows reports whether a role includes a right.
func (r Role) Allows(right Right) bool { return slices.Contains(rights[r], right) }

// Identity is the sender of a request, with the sender's rights.
type Identity struct {
	// Name is the sender's name in logs.
	Name string
	Role Role
	// Queues are the names to which the identity is limited; nil means all. A name that ends in * stands for all names
	// with the prefix before the *. The name of a topic is topic:NAME, and the name of the schedules is schedules: . A
	// name with * stands for topics and schedules only if it begins with topic: or schedules: itself, or is * alone.
	Queues []string
	// HidePayloads replaces payloads, headers and error texts of messages in replies, except for received messages,
	// which are always complete.
	HidePayloads bool

	isToken bool // and not a user
}

// Key is a text that no other caller has: a token and a user may have the same name.
func (i Identity) Key() string {
	if i.isToken {
		return "token " + i.Name
	}
	return "user " + i.Name
}

// May reports whether the identity has a right on a queue. The queue "" is the whole server: requests about all queues,
// or about none. A right on a queue that Later keeps for itself is a right on the topic or the server that the queue
// belongs to; see needed.
func (i Identity) May(right Right, queue string) bool {
	return i.has(needed(right, queue))
}

// MaySchedules reports whether the identity has a right on schedules. A schedule also needs the right on its queue.
func (i Identity) MaySchedules(right Right) bool { return i.has(right, reserved.Schedules) }

func (i Identity) has(right Right, name string) bool {
	if !i.Role.Allows(right) {
		return false
	}
	return i.Queues == nil || slices.ContainsFunc(i.Queues, func(pattern string) bool { return matches(pattern, name) })
}

// needed returns the right, and the name, that a request needs for a right on a queue. They differ for the queues that
// Later keeps for itself. Otherwise a request could do there what the routes of topics and schedules refuse:
//   - The messages of a topic's queue belong to the topic. To send, get or cancel one of them is to publish. To receive
//     one keeps it from the topic's subscriptions, which needs Operate.
//   - The history of a topic is read with Look and changed with Operate, like the topic.
//   - The other queues hold messages about all queues. They are read with Look and changed with Operate for the whole
//     server.
//   - A change of the list of ended logins could make a login valid again, even that of an admin, so it needs
//     Administer.
func needed(right Right, queue string) (Right, string) {
	prefix, rest := reserved.Cut(queue)
	if prefix == "" {
		return right, queue
	}
	topic := ""
	if (prefix == reserved.Topic || prefix == reserved.History) && rest != "" {
		topic = reserved.Topic + rest
	}
	publishes := right == Get || right == Send
	switch {
	case publishes && queue == topic:
	case right == Get:
		right = Look
	case prefix == reserved.Logouts && right != Look:
		right = Administer
	case right == Send, right == Work:
		right = Operate
	}
	return right, topic
}

func matches(pattern, queue string) bool {
	prefix, all := strings.CutSuffix(pattern, "*")
	switch {
	case !all:
		return pattern == queue
	case prefix == "":
		return true
	}
	kept, _ := reserved.Cut(queue)
	return strings.HasPrefix(prefix, kept) && strings.HasPrefix(queue, prefix)
}

type contextKey struct{}

// caller is the sender of a request. The fields after the Identity are zero without a Control.
type caller struct {
	Identity
	control  *Control
	settings *settings
	request  *http.Request // as it came
}

// NewContext returns a context with an identity.
func NewContext(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, &caller{Identity: who})
}

// FromContext returns the identity in a context. A context without identity means that the server has no access
// control, and the request may do everything.
func FromContext(ctx context.Context) (who Identity, controlled bool) {
	from, controlled := ctx.Value(contextKey{}).(*caller)
	if !controlled {
		return who, false
	}
	return from.Identity, true
}

// Check returns an ErrForbidden unless the sender of the request of ctx has a right on a queue; see Identity.May.
func Check(ctx context.Context, right Right, queue string) error {
	who, controlled := FromContext(ctx)
	if !controlled || who.May(right, queue) {
		return nil
	}
	what := "this server"
	if queue != "" {
		what = fmt.Sprintf("queue %q", queue)
	} else if who.Role.Allows(right) {
		what = "queues other than " + strings.Join(who.Queues, ", ")
	}
	return refuse(http.StatusForbidden, "%s has the role %s and may not %v %s", who.Name, who.Role, right, what)
}

// CheckSchedules is Check for schedules; see Identity.MaySchedules.
func CheckSchedules(ctx context.Context, right Right) error {
	who, controlled := FromContext(ctx)
	if !controlled || who.MaySchedules(right) {
		return nil
	}
	return refuse(http.StatusForbidden, "%s has the role %s and may not %v schedules", who.Name, who.Role, right)
}

// CheckRole is Check for a request that names no queue. The handler of the request must limit itself to queues that
// Check allows.
func CheckRole(ctx context.Context, right Right) error {
	who, controlled := FromContext(ctx)
	if !controlled || who.Role.Allows(right) {
		return nil
	}
	return refuse(http.StatusForbidden, "%s has the role %s and may not %v this server", who.Name, who.Role, right)
}

// Require returns a handler of requests that need a right on the whole server.
func Require(right Right, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Check(r.Context(), right, ""); err != nil {
			problem.Write(w, 0, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse returns an error with a status: ErrUnauthenticated for 401, ErrForbidden for 403, else ErrMisconfigured.
func refuse(status int, format string, args ...any) error {
	kind := store.ErrMisconfigured
	switch status {
	case http.StatusUnauthorized:
		kind = store.ErrUnauthenticated
	case http.StatusForbidden:
		kind = store.ErrForbidden
	}
	return &problem.Error{Err: &refusal{kind, fmt.Sprintf(format, args...)}, Status: status}
}

// refusal is an error of a kind with its own text.
type refusal struct {
	kind error
	text string
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }
