package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/laterq/later/server/access"
)

func registerInfo(s *Server) {
	route(s, access.Look, huma.Operation{
		Method: http.MethodGet, Path: "/v1/server", Tags: []string{"server"},
		Summary: "Describe the server and what the sender of the request may do",
	}, s.info)
}

// ServerInfo describes a server and the sender of a request.
type ServerInfo struct {
	Version  string      `json:"version"`
	Waits    int         `json:"waits" doc:"Requests that wait for messages or events"`
	MaxWaits int         `json:"max_waits"`
	Who      string      `json:"who,omitempty"`
	Role     access.Role `json:"role,omitempty" doc:"None, if the server has no access control"`
	Queues   []string    `json:"queues,omitempty" doc:"The queues that the sender is limited to; none means all"`
	// HidePayloads is set if they see no payloads, headers and error texts.
	HidePayloads bool `json:"hide_payloads,omitempty" doc:"The sender sees no payloads, headers and error texts"`
}

type infoOutput struct{ Body ServerInfo }

func (s *Server) info(ctx context.Context, _ *struct{}) (*infoOutput, error) {
	who, _ := access.FromContext(ctx)
	return &infoOutput{ServerInfo{Version: s.cfg.Version, Waits: len(s.waits), MaxWaits: s.cfg.MaxWaits, Who: who.Name,
		Role: who.Role, Queues: who.Queues, HidePayloads: who.HidePayloads}}, nil
}
