package problem_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/laterq/later/internal/problem"
	"github.com/laterq/later/store"
)

func TestEveryCodeHasAStatus(t *testing.T) {
	want := map[store.Code]int{
		"invalid": 400, "too_large": 413, "not_found": 404, "duplicate": 409, "leased": 409, "dead": 409,
		"conflict":   409,
		"lease_lost": 409, "full": 507, "not_durable": 504, "unavailable": 503, "misconfigured": 502,
		"unauthenticated": 401,
		"forbidden":       403, "unsupported": 501,
		"corrupt": 500, "closed": 503,
	}
	for _, kind := range store.Kinds() {
		if got := problem.Status(kind.Code); got != want[kind.Code] {
			t.Errorf("%s: %d, want %d", kind.Code, got, want[kind.Code])
		}
		delete(want, kind.Code)
	}
	if len(want) > 0 {
		t.Errorf("no such codes: %v", want)
	}
	if got := problem.Status(store.Internal); got != http.StatusInternalServerError {
		t.Errorf("internal: %d", got)
	}
}

func TestErrorIsWrittenAsAProblem(t *testing.T) {
	invalid := store.Invalid(`lease is "x": give a duration`)
	for _, c := range []struct {
		status int
		err    error
		want   string
	}{
		{0, invalid, `{"title":"Bad Request","status":400,"code":"invalid",` +
			`"detail":"lease is \"x\": give a duration"}`},
		{http.StatusUnprocessableEntity, invalid, `{"title":"Unprocessable Entity","status":422,` +
			`"code":"invalid","detail":"lease is \"x\": give a duration"}`},
		{0, fmt.Errorf("body: %w", &problem.Error{Err: invalid, Field: "lease"}),
			`{"title":"Bad Request","status":400,"code":"invalid",` +
				`"detail":"body: lease is \"x\": give a duration","field":"lease"}`},
		{0, &problem.Error{Err: store.ErrMisconfigured, Status: http.StatusMisdirectedRequest},
			`{"title":"Misdirected Request","status":421,"code":"misconfigured",` +
				`"detail":"store refuses this configuration"}`},
		{0, errors.New("broken"), `{"title":"Internal Server Error","status":500,` +
			`"code":"internal","detail":"broken"}`},
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Length", "1")
		problem.Write(w, c.status, c.err)
		want := `{"type":"` + problem.TypePrefix + string(store.CodeOf(c.err)) + `",` + c.want[1:] + "\n"
		if w.Body.String() != want || w.Code != problem.New(c.status, c.err).Status {
			t.Errorf("%v: %d %s, want %s", c.err, w.Code, w.Body, want)
		}
		if h := w.Header(); h.Get("Content-Type") != "application/problem+json" || h.Get("Content-Length") != "" {
			t.Errorf("%v: header %v", c.err, h)
		}
	}
	if err := (&problem.Error{Err: invalid}); !errors.Is(err, store.ErrInvalid) || err.Error() != invalid.Error() {
		t.Errorf("%v is not what it wraps", err)
	}
}
