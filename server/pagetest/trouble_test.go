package pagetest

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
)

func TestPageKeepsWhatItKnewWhenTheStoreIsDown(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := newSite(t, redis.URL(), "", "")
	s.fill("orders", 3)
	b := s.open("/")
	b.see(".rows td.id", "m-02")
	b.see(".queues li", "orders")
	b.allow("50[0-9]|ERR_") // for the requests of the page until then
	redis.Kill()
	b.see(".banner", "What you see is from")
	b.see(".live.off", "not live")
	b.see(".queues li", "orders")
	b.see(".rows td.id", "m-02")
	b.checkAccess()
	b.screenshot("store-down")
	redis.Restart(t)
	b.gone(".banner")
	b.see(".live", "live")
}

// A view that asks again and again waits for a reply that takes longer than that. Else it would never show one.
func TestViewsWaitForASlowServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", "x")
	b := s.open("/")
	b.see(".queues li", "orders")
	evaluate[bool](b, `(() => {
  const real = fetch;
  window.held = []; // requests for operations, which the view asks for every second
  window.fetch = (path, init) => {
    if (!path.startsWith('v1/operations')) return real(path, init);
    return new Promise((resolve, reject) => {
      init.signal.addEventListener('abort', () => reject(new DOMException('', 'AbortError')));
      held.push({ signal: init.signal, reply: () => resolve(real(path, init)) });
    });
  };
  return true;
})()`)
	b.click("nav.views a", "Changes")
	b.await("held.length > 0")
	b.awaitOverviews(6) // one comes every 500 ms at most
	if n := evaluate[int](b, "held.length"); n != 1 || evaluate[bool](b, "held[0].signal.aborted") {
		t.Errorf("it asked %d times before the first reply", n)
	}
	evaluate[bool](b, "held[0].reply(), true")
	b.await("held.length > 1") // it goes on
}

func TestTwoTabsAndAProgramChangeTheSameMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 4)
	first, second := s.open("/?queue=orders"), s.open("/?queue=orders&message=m-01")
	first.see(".rows td.id", "m-03")
	second.see(".panel", "order")
	first.allow("404") // of the message that is gone
	second.allow("404")

	first.click(".rows td.id a", "m-01")
	first.click(".panel button", "Cancel…")
	first.click("dialog button.danger")
	first.see(".notice", "m-01 is cancelled")
	second.see(".panel", "does not exist any more")

	reply, err := http.Post(s.url+"/v1/queues/orders/messages", "application/json",
		strings.NewReader(`{"id": "m-99", "payload": "hello", "in": "2h"}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(reply.Body)
	reply.Body.Close()
	if err != nil || reply.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s, %v", reply.Status, body, err)
	}
	for _, b := range []*tab{first, second} {
		b.see(".queues .counts", "4")
	}
	second.press(".")
	second.see(".rows td.id", "m-99")

	first.click(".queues button", "Pause… orders")
	first.click("dialog button.primary")
	second.see(".queues .badge", "paused")
	if err := s.client.Queue("orders").Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.gone(".queues .badge")
	second.gone(".queues .badge")
}

func TestPagesThatAreLeftHoldNoConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", "{}", later.WithID("a"), later.In(time.Hour))
	b := s.open("/")
	for range 4 { // browsers have six connections for a server
		b.visit("/?queue=orders&message=a")
		b.see(".panel dl.facts")
		b.visit("/?view=events")
		b.see("main .live", "live")
	}
}
