package server

import (
	"errors"
	"net/http"
	"strings"
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

	if err := a.client.Queue("mail").RunNow(t.Context(), "1"); err != nil {
		t.Fatal(err)
	}
	held, err := a.client.Queue("mail").Receive(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := held[0].GiveBack(t.Context(), time.Hour, -1, errors.New("secret")); err != nil {
		t.Fatal(err)
	}
	got = a.do(http.MethodGet, mail+"/1/why", nil).is(http.StatusOK)
	if got["reason"] != "given_back" || got["error"] != "secret" || !strings.HasSuffix(got["text"].(string), ": secret") {
		t.Errorf("%v", got)
	}
	got = sender.do(http.MethodGet, mail+"/1/why", nil).is(http.StatusOK)
	if got["reason"] != "given_back" || got["error"] != nil || strings.Contains(got["text"].(string), "secret") {
		t.Errorf("a sender who sees no errors: %v", got)
	}
}

func TestErrorsOfWhatWorkersGiveBackAreHidden(t *testing.T) {
	back := []later.GivenBack{{Queue: "mail", Kind: "secret", Error: "secret", Messages: 1}, {Queue: "other", Messages: 1}}
	w := later.WorkerInfo{Queues: []string{"mail"}, GivenBack: back}
	ctx := access.NewContext(t.Context(), access.Identity{Name: "x", Role: access.RoleRead, Queues: []string{"mail"},
		HidePayloads: true})
	if !limitWorker(ctx, &w) || len(w.GivenBack) != 1 || w.GivenBack[0] != (later.GivenBack{Queue: "mail", Messages: 1}) {
		t.Errorf("given back is %+v", w.GivenBack)
	}
}
