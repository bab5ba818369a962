package server

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/laterq/later/server/access"
)

func TestGroupIsMovedAndCancelledTogether(t *testing.T) {
	a := newAPI(t)
	for i := range 3 {
		a.do(http.MethodPost, mail, fmt.Sprintf(`{"id": "%d", "group": "order/7", "in": "1h"}`, i)).is(http.StatusCreated)
	}
	a.do(http.MethodPost, mail, `{"id": "other", "in": "1h"}`).is(http.StatusCreated)
	const group = "/v1/queues/mail/groups/order%2F7"
	moved := a.do(http.MethodPatch, group, `{"at": "2100-01-01T00:00:00Z"}`).is(http.StatusOK)
	if moved["rescheduled"] != 3.0 || moved["group"] != "order/7" || moved["due"] != "2100-01-01T00:00:00.000Z" {
		t.Errorf("%v", moved)
	}
	listed := list(a.do(http.MethodGet, mail+"?group=order/7", nil).is(http.StatusOK), "items")
	if len(listed) != 3 || listed[0]["due"] != "2100-01-01T00:00:00.000Z" {
		t.Errorf("%v", listed)
	}
	if got := a.do(http.MethodDelete, group, nil).is(http.StatusOK); got["cancelled"] != 3.0 || got["scheduled"] != 3.0 {
		t.Errorf("%v", got)
	}
	a.do(http.MethodDelete, group, nil).fails(http.StatusNotFound, "not_found", "", "no message of group")
	a.do(http.MethodPatch, group, `{"in": "1h"}`).fails(http.StatusNotFound, "not_found", "", "no message of group")
	a.do(http.MethodPatch, group, `{}`).fails(http.StatusBadRequest, "invalid", "in", "give in or at")
	a.do(http.MethodPatch, group, `{"in": "soon"}`).fails(http.StatusBadRequest, "invalid", "in")
	a.as(operator("orders")).do(http.MethodDelete, group, nil).fails(http.StatusForbidden, "forbidden", "")
	sender := access.Identity{Name: "shop", Role: access.RoleSend}
	a.as(sender).do(http.MethodDelete, group, nil).fails(http.StatusForbidden, "forbidden", "")
}

func TestSeriesFromSendToCancel(t *testing.T) {
	a := newAPI(t)
	const series = "/v1/queues/mail/series"
	const body = `{"id": "a/7", "payload": "dentist", "until": "2100-01-01T12:00:00Z", "offsets": ["-24h", "-1h", "1d"],
		"headers": {"kind": "reminder"}}`
	sent := a.do(http.MethodPost, series, body).is(http.StatusCreated)
	if sent["series"] != "a/7" || sent["sent"] != 3.0 || sent["skipped"] != 0.0 {
		t.Errorf("%v", sent)
	}
	a.do(http.MethodPost, series, body).fails(http.StatusConflict, "duplicate", "")
	const one = series + "/a%2F7"
	all := list(a.do(http.MethodGet, one, nil).is(http.StatusOK), "items")
	if len(all) != 3 || all[0]["offset"] != "-24h0m0s" || all[2]["due"] != "2100-01-02T12:00:00.000Z" {
		t.Errorf("%v", all)
	}
	moved := a.do(http.MethodPatch, one, `{"until": "2100-02-01T12:00:00Z"}`).is(http.StatusOK)
	if moved["moved"] != 3.0 {
		t.Errorf("%v", moved)
	}
	past := a.do(http.MethodPatch, one, `{"until": "2000-01-01T12:00:00Z", "past": "send"}`).is(http.StatusOK)
	if past["moved"] != 3.0 || past["skipped"] != 0.0 {
		t.Errorf("%v", past)
	}
	if got := a.do(http.MethodDelete, one, nil).is(http.StatusOK); got["cancelled"] != 3.0 {
		t.Errorf("%v", got)
	}
	a.do(http.MethodGet, one, nil).fails(http.StatusNotFound, "not_found", "", "no message of series")
	a.do(http.MethodDelete, one, nil).fails(http.StatusNotFound, "not_found", "", "no message of series")
	a.do(http.MethodPatch, one, `{"until": "2100-02-01T12:00:00Z"}`).fails(http.StatusNotFound, "not_found", "")
	late := a.do(http.MethodPost, series, `{"until": "2000-01-01T12:00:00Z", "offsets": ["1h"], "past": "skip"}`).
		is(http.StatusCreated)
	if late["skipped"] != 1.0 || late["series"] == "" {
		t.Errorf("%v", late)
	}
}

func TestSeriesRequestsThatAreWrongNameTheField(t *testing.T) {
	a := newAPI(t)
	const series = "/v1/queues/mail/series"
	for _, c := range []struct{ body, field, text string }{
		{`{"offsets": ["1h"]}`, "until", "missing"},
		{`{"until": "2100-01-01T12:00:00Z", "offsets": []}`, "offsets", "at least 1"},
		{`{"until": "2100-01-01T12:00:00Z", "offsets": ["1h", "soon"]}`, "offsets[1]", "give a duration"},
		{`{"until": "2100-01-01T12:00:00Z", "offsets": ["1h", "60m"]}`, "", "twice"},
		{`{"until": "2100-01-01T12:00:00Z", "offsets": ["1h"], "past": "keep"}`, "past", "one of"},
		{`{"until": "2100-01-01T12:00:00Z", "offsets": ["1h"], "in": "1h"}`, "in", "unknown"},
		{`{"until": "2100-01-01T12:00:00Z", "offsets": ["1h"], "timeout": "0s"}`, "timeout", "is 0"},
		{`{"until": "2100-01-01T12:00:00Z", "offsets": ["1h"], "headers": {"series": "x"}}`, "", "series"},
	} {
		a.do(http.MethodPost, series, c.body).fails(http.StatusBadRequest, "invalid", c.field, c.text)
	}
	a.do(http.MethodPatch, series+"/a", `{"until": "0001-01-01T00:00:00Z"}`).
		fails(http.StatusBadRequest, "invalid", "until")
	sender := access.Identity{Name: "shop", Role: access.RoleSend, Queues: []string{"orders"}}
	for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodDelete} {
		a.as(sender).do(method, series+"/a", nil).fails(http.StatusForbidden, "forbidden", "")
	}
	a.as(access.Identity{Role: access.RoleSend}).do(http.MethodGet, series+"/a", nil).
		fails(http.StatusNotFound, "not_found", "")
	a.as(access.Identity{Role: access.RoleRead}).do(http.MethodPost, series, `{}`).
		fails(http.StatusForbidden, "forbidden", "")
}
