package server

import (
	"net/http"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/server/access"
)

func TestWhyExplainsAMessage(t *testing.T) {
	a := newAPI(t)
	a.send("mail", "1")
	got := a.do(http.MethodGet, mail+"/1/why", nil).is(http.StatusOK)
	if got["reason"] != "no_worker" || got["text"] != "no worker is running for queue mail" || got["workers"] != 0.0 {
		t.Errorf("%v", got)
	}
	due := time.Date(2090, 7, 1, 12, 0, 0, 0, time.UTC)
	if err := a.client.Queue("mail").Reschedule(t.Context(), "1", later.At(due)); err != nil {
		t.Fatal(err)
	}
	sender := a.as(access.Identity{Name: "x", Role: access.RoleSend, Queues: []string{"mail"}, HidePayloads: true})
	got = sender.do(http.MethodGet, mail+"/1/why?time_zone=Europe/Berlin", nil).is(http.StatusOK)
	if got["text"] != "due on 1 July 2090 at 14:00" || got["due"] != "2090-07-01T12:00:00.000Z" {
		t.Errorf("%v", got)
	}
}
