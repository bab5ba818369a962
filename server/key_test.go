package server

import (
	"net/http"
	"strings"
	"testing"
)

func TestKeyGoesThroughEveryOperation(t *testing.T) {
	a := newAPI(t)
	a.do(http.MethodPost, mail, `{"payload": "x", "id": "json", "key": "k"}`).is(http.StatusCreated)
	a.do(http.MethodPost, mail, "x", "Content-Type", "text/plain", "Later-Id", "raw", "Later-Key", "k").
		is(http.StatusCreated)
	a.do(http.MethodPost, mail+"/batch", `{"messages": [{"id": "batch", "key": "k"}]}`).is(http.StatusOK)
	a.do(http.MethodPost, mail+"/batch", `{"id": "line", "key": "k"}`+"\n", "Content-Type", "application/x-ndjson")
	for _, m := range list(a.do(http.MethodGet, mail, nil).is(http.StatusOK), "items") {
		if m["key"] != "k" {
			t.Errorf("listed %v", m)
		}
	}
	a.do(http.MethodPatch, mail+"/json", `{"payload": "y"}`).is(http.StatusOK)
	b := newAPI(t)
	if got := b.do(http.MethodPost, "/v1/import", a.export("mail")).is(http.StatusOK); got["imported"] != 4.0 {
		t.Errorf("imported %v", got)
	}
	for _, id := range []string{"json", "raw", "batch", "line"} {
		for _, of := range []*api{a, b} {
			if got := of.do(http.MethodGet, mail+"/"+id, nil).is(http.StatusOK); got["key"] != "k" {
				t.Errorf("message %s is %v", id, got)
			}
		}
	}

	got := list(a.do(http.MethodPost, receivePath, `{"max": 4}`).is(http.StatusOK), "messages")
	if len(got) != 4 || got[0]["key"] != "k" {
		t.Fatalf("received %v", got)
	}
	then := `{"then": [{"queue": "mail", "id": "next", "key": "next"}]}`
	a.do(http.MethodPost, "/v1/leases/"+got[0]["token"].(string)+"/ack", then).is(http.StatusNoContent)
	if got := a.do(http.MethodGet, mail+"/next", nil).is(http.StatusOK); got["key"] != "next" {
		t.Errorf("the follow-up is %v", got)
	}
	a.do(http.MethodPost, mail, `{"id": "next", "on_duplicate": "replace"}`).is(http.StatusCreated)
	if got := a.do(http.MethodGet, mail+"/next", nil); strings.Contains(got.body, `"key"`) {
		t.Errorf("the replaced message has the key of the one before: %s", got.body)
	}

	a.do(http.MethodPost, "/v1/queues/mail/series",
		`{"id": "s", "until": "2100-01-01T00:00:00Z", "offsets": ["-24h"], "key": "k"}`).is(http.StatusCreated)
	series := a.do(http.MethodGet, mail+"?group=series:s", nil).is(http.StatusOK)
	if items := list(series, "items"); len(items) != 1 || items[0]["key"] != "k" {
		t.Errorf("the series has %v", items)
	}
	a.do(http.MethodPut, "/v1/schedules/daily", `{"queue": "mail", "every": "1h", "key": "k"}`).is(http.StatusOK)
	if got := a.do(http.MethodGet, "/v1/schedules/daily", nil).is(http.StatusOK); got["key"] != "k" {
		t.Errorf("the schedule is %v", got)
	}
}
