package server

import (
	"context"

	"github.com/laterq/later/internal/wire"
	"github.com/laterq/later/server/access"
)

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

	KeepsFinished []string `json:"keeps_finished,omitempty" doc:"This server keeps the finished messages of these queues, as far as the sender may look at them; a * at the end stands for any text"`

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
