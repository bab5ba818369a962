// Package access decides who may do what with a server: rights, the roles that combine them, and the identity of
// whoever sent a request. It imports the standard library and package store only. Start with Right.
package access

import (
	"context"
	"slices"
)

// Right is permission to make requests of one kind.
type Right uint8

// The rights. Each route of a server needs one of them.
const (
	// Look is to read messages, counts, schedules and events.
	Look Right = iota + 1
	// Send is to send messages, and to get, cancel and reschedule single ones by id.
	Send
	// Work is to receive and settle messages.
	Work
	// Operate is to change what others sent: pause, replay, purge, bulk changes, schedules, topics.
	Operate
	// Administer is to delete queues, to import, and to use the server as a store.
	Administer
)

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
	RoleRead:    {Look},
	RoleSend:    {Send},
	RoleWork:    {Send, Work},
	RoleOperate: {Look, Send, Operate},
	RoleAdmin:   {Look, Send, Work, Operate, Administer},
}

// Allows reports whether a role includes a right.
func (r Role) Allows(right Right) bool { return slices.Contains(rights[r], right) }

// Identity is who sent a request, and what they may do.
type Identity struct {
	// Name is what logs call them.
	Name string
	Role Role
	// Queues are the names that they are limited to; nil means all. A name that ends in * stands for all that begin
	// with what precedes it.
	Queues []string
	// HidePayloads replaces payloads, headers and error texts of messages that they look at. Received messages are
	// always complete.
	HidePayloads bool
}

type contextKey struct{}

// NewContext returns a context with an identity.
func NewContext(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, who)
}

// FromContext returns the identity in a context. Without one, whoever asks may do everything: the server has no access
// control.
func FromContext(ctx context.Context) (who Identity, controlled bool) {
	who, controlled = ctx.Value(contextKey{}).(Identity)
	return who, controlled
}
