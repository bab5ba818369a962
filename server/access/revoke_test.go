package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsThatLastEndWithTheAccessOfTheirSenders(t *testing.T) {
	text := strings.Replace(file(t), "[127.0.0.1]", "[192.0.2.1]", 1) // from where requests of httptest come
	for name, test := range map[string]struct {
		change   string // old and new text of the file, with a | between
		sender   func(*http.Request)
		isClosed bool
	}{
		"another token is added": {"tokens:|tokens:\n  - {name: new, role: send, sha256: " + hashOf("new") + "}",
			bearer("t0ken"), false},
		"the token is removed":            {hashOf("t0ken") + "|" + hashOf("other"), bearer("t0ken"), true},
		"the token has another role":      {"role: send|role: read", bearer("t0ken"), true},
		"the token is limited to a queue": {"role: send|queues: [mail], role: send", bearer("t0ken"), true},
		"another user has another role":   {"role: send|role: read", basic("ann", "pass word"), false},
		"the user has another role":       {"role: operate|role: read", basic("ann", "pass word"), true},
		"the user has another password": {"ann: $2|ann: '" + bcryptOf(t, "new") + "' #",
			basic("ann", "pass word"), true},
		"the group has another role": {"admins, role: admin|admins, role: operate", member("joe", "admins"),
			true},
		"the group of others is different": {"support, role: read|support, role: send", member("joe", "admins"),
			false},
		"the proxy is not trusted any more":  {"192.0.2.1]|192.0.2.2]", member("joe", "admins"), true},
		"the configuration cannot be read":   {"tokens:|tokens: [", bearer("t0ken"), false},
		"the name in logs becomes different": {"name: shop|name: shop2", bearer("t0ken"), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := control(t, text)
				ctx, leave := context.WithCancel(t.Context())
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
				test.sender(r)
				var cause error
				var all sync.WaitGroup
				all.Go(func() {
					c.Handler(lastingHandler(&cause)).ServeHTTP(httptest.NewRecorder(), r)
				})
				synctest.Wait()
				old, changed, _ := strings.Cut(test.change, "|")
				if !strings.Contains(text, old) {
					t.Fatalf("no %q in %s", old, text)
				}
				rewrite(t, c.cfg.File, strings.Replace(text, old, changed, 1))
				time.Sleep(2*checkEvery + time.Millisecond)
				synctest.Wait()
				if ended := cause == errRevoked; ended != test.isClosed {
					t.Errorf("ended: %v (%v)", ended, cause)
				}
				leave()
				all.Wait()
				time.Sleep(checkEvery)
				synctest.Wait()
				if c.lasting.ticking != nil {
					t.Error("the configuration is checked without a request")
				}
			})
		})
	}
}

// lastingHandler answers when its request ends, and says why it did.
func lastingHandler(cause *error) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer OnRevoke(ctx, cancel)()
		<-ctx.Done()
		*cause = context.Cause(ctx)
	})
}

func member(user, group string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set(forwardedUser, user)
		r.Header.Set(forwardedGroups, group)
	}
}

func TestRepliesOfRevokedSendersAreCutOff(t *testing.T) {
	c, _ := control(t, file(t))
	s := serve(t, c.Handler(EndRevoked(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("half of "))
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	bearer("t0ken")(r)
	reply, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if n, err := reply.Body.Read(make([]byte, 100)); n != 8 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	rewrite(t, c.cfg.File, strings.Replace(file(t), "role: send", "role: read", 1))
	if _, err := reply.Body.Read(make([]byte, 100)); err == nil || err.Error() == "EOF" {
		t.Errorf("the reply looks whole: %v", err)
	}
}
