package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

// onTwoServers runs a test with two servers of a Redis, and of an embedded store that the second one does not have open
// itself.
func onTwoServers(t *testing.T, test func(a, b *api)) {
	for name, url := range map[string]func() string{
		"redis":    func() string { return redistest.Start(t).URL() },
		"embedded": func() string { return "file://" + t.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			at := url()
			test(newAPIWith(t, at, Config{}), newAPIWith(t, at, Config{}))
		})
	}
}

// polling begins a request that waits, and returns its reply when it comes.
func (a *api) polling(ctx context.Context, body string) <-chan *reply {
	before := a.server.waits.Taken()
	replies := make(chan *reply, 1)
	go func() {
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/receive", strings.NewReader(body)))
		replies <- &reply{a.t, body, w.Code, w.Header(), w.Body.String()}
	}()
	for a.server.waits.Taken() == before {
		runtime.Gosched()
	}
	return replies
}

const threeQueues = `{"queues": [{"name": "a"}, {"name": "b"}, {"name": "mail"}], "lease": "1h", "wait": "1m"`

// TestWaitOnSeveralQueuesEndsWithAMessageOfAnother waits on one server for a message that is sent through another one.
// A store without notifications is asked again after five seconds.
func TestWaitOnSeveralQueuesEndsWithAMessageOfAnotherServer(t *testing.T) {
	onTwoServers(t, func(a, b *api) {
		for i, queue := range []string{"a", "b", "mail", "a", "mail", "b"} {
			waiting, sending := a, b
			if i%2 == 1 {
				waiting, sending = b, a
			}
			replies := waiting.polling(t.Context(), threeQueues+`}`)
			begin := time.Now()
			sending.send(queue, fmt.Sprint("m", i))
			got := list((<-replies).is(http.StatusOK), "messages")
			if took := time.Since(begin); len(got) != 1 || got[0]["queue"] != queue || took > 3*time.Second {
				t.Errorf("%v after %v", got, took)
			}
		}
	})
}

func TestReceiveOfAClientWhoIsGoneHoldsNothing(t *testing.T) {
	onTwoServers(t, func(a, b *api) {
		for _, worker := range []string{"", `, "worker": "py"`} {
			ctx, leave := context.WithCancel(t.Context())
			replies := a.polling(ctx, threeQueues+worker+`}`)
			leave()
			<-replies
			for a.server.waits.Taken() > 0 {
				runtime.Gosched()
			}
			for _, queue := range []string{"a", "b", "mail"} {
				b.send(queue, "m"+worker)
			}
			for left := 3; left > 0; {
				got := list(b.do(http.MethodPost, "/v1/receive", threeQueues+`, "max": 10}`).is(http.StatusOK), "messages")
				if left -= len(got); len(got) == 0 {
					t.Fatalf("%d messages are held for nobody", left)
				}
			}
		}
	})
}

// TestNamedWorkerOfTwoServersIsOneWorker polls through one server, and then through the other one.
func TestNamedWorkerOfTwoServersIsOneWorker(t *testing.T) {
	onTwoServers(t, func(a, b *api) {
		const poll = threeQueues + `, "worker": "py"}`
		listed := func(state string) {
			t.Helper()
			for _, at := range []*api{a, b} {
				for limit := time.Now().Add(time.Minute); ; runtime.Gosched() {
					all := list(at.do(http.MethodGet, "/v1/workers", nil).is(http.StatusOK), "items")
					if len(all) == 1 && all[0]["name"] == "py" && all[0]["state"] == state {
						break
					}
					if len(all) > 1 || time.Now().After(limit) {
						t.Fatalf("%v, want one that is %s", all, state)
					}
				}
			}
		}
		tell := func(by *api, command string) {
			t.Helper()
			told := list(by.do(http.MethodPost, "/v1/workers/py/"+command, nil).is(http.StatusOK), "workers")
			if len(told) != 1 || told[0]["error"] != nil {
				t.Errorf("%s: %v", command, told)
			}
		}
		ctx, leave := context.WithCancel(t.Context())
		first := a.polling(ctx, poll)
		listed("running")
		tell(b, "pause")
		b.send("mail", "m")
		leave()
		<-first
		second := b.polling(t.Context(), poll)
		listed("paused")
		got := a.do(http.MethodPost, "/v1/receive", `{"queues": [{"name": "mail"}], "worker": "py"}`).is(http.StatusOK)
		if got["command"] != "pause" || len(list(got, "messages")) != 0 {
			t.Errorf("the other server lets a paused worker have %v", got)
		}
		tell(a, "resume")
		got = (<-second).is(http.StatusOK)
		if messages := list(got, "messages"); len(messages) != 1 || got["command"] != nil {
			t.Errorf("resumed: %v", got)
		}
		listed("running")
		third := a.polling(t.Context(), poll)
		tell(b, "drain")
		if got := (<-third).is(http.StatusOK); got["command"] != "drain" {
			t.Errorf("%v", got)
		}
		if got := b.do(http.MethodPost, "/v1/receive", poll).is(http.StatusOK); got["command"] != "drain" {
			t.Errorf("the other server: %v", got)
		}
	})
}

// leaving is a store that ends the context of its caller when the caller has claimed messages of the queue mail.
type leaving struct {
	store.Store
	leave func()
}

func (l *leaving) Claim(ctx context.Context, queue string, r store.ClaimRequest) (store.Claim, error) {
	claim, err := l.Store.Claim(ctx, queue, r)
	if queue == "mail" {
		l.leave()
	}
	return claim, err
}

func TestReceiveOfAClientWhoLeavesWithItsReplyHoldsNothing(t *testing.T) {
	l := &leaving{Store: memstore.New()}
	a := newBubbleAPI(t, l)
	a.send("mail", "m", "n")
	for _, body := range []string{
		`{"queues": [{"name": "mail"}], "max": 2}`, `{"queues": [{"name": "mail"}, {"name": "orders"}], "max": 2}`,
		`{"queues": [{"name": "mail"}], "max": 2, "worker": "py"}`,
		`{"max": 2, "queues": [{"name": "mail"}], "\u0077ait": "1s"}`,
	} {
		ctx, leave := context.WithCancel(t.Context())
		l.leave = leave
		a.server.ServeHTTP(httptest.NewRecorder(),
			httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/receive", strings.NewReader(body)))
		for limit := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
			stats, err := a.client.Queue("mail").Stats(t.Context())
			if err == nil && stats.Leased == 0 && stats.Ready == 2 {
				break
			}
			if err != nil || time.Now().After(limit) {
				t.Fatalf("%s: %+v, %v", body, stats, err)
			}
		}
	}
}
