package pagetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
)

func TestFindBoxIsUsedAgainAndClosesByItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.order42()
	s.send("orders", "17", later.WithID("attempts=0"), later.In(time.Hour))
	b := s.open("/?from=2020-01-01T00:00:00Z&queue=orders")
	b.see(".rows td.id", "cancel-order-42")
	b.find("cancel-order-42")
	b.press(kb.Enter) // before it is found
	b.see(".panel h2", "cancel-order-42")
	b.press(kb.Escape)
	b.gone(".panel")
	b.press("/")
	b.found("cancel-order-42") // Enter was for the time before
	b.gone(".panel")
	b.press(kb.Tab) // How to search
	b.await("document.activeElement.closest('.find .results') !== null")
	b.press(kb.Escape)
	b.gone("#found")
	b.awaitURL("from=2020") // the range is as it was
	b.press("/")
	b.found("cancel-order-42")
	for range 12 {
		b.press(kb.Tab)
	}
	b.gone("#found")
	b.await("document.activeElement.closest('.find') === null")

	b.find("attempts=0")
	b.found("attempts=0")
	b.see(".looked", "in quotes")
}

func TestFindShowsMoreThanOneHundredMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 250)
	for i := range 60 {
		s.send(fmt.Sprintf("m-queue-%d", i), "", later.WithID("other"), later.In(time.Hour))
	}
	b := s.open("/")
	b.find("m-")
	b.see(".looked", "100 messages found")
	b.see(".looked", "10 names left out")
	b.click(".looked button", "Look for more")
	b.see(".looked", "200 messages found")
	b.await("[...document.querySelectorAll('#found .id')].length === 200")
	b.see(".looked", "10 names left out")
}

// TestFindRepeatsTheRequestThatFailed has the second request of a search fail once, after some results.
func TestFindRepeatsTheRequestThatFailed(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 150)
	b := s.open("/")
	b.find("m-")
	b.see(".looked", "100 messages found, 100 of 150 messages")
	evaluate[bool](b, `(() => {
		const real = window.fetch;
		window.fetch = async (...args) => {
			const response = await real(...args);
			if (!String(args[0]?.url ?? args[0]).includes('cursor=')) return response;
			window.fetch = real;
			const lines = (await response.text()).trim().split('\n');
			return new Response(lines.slice(0, -1).join('\n') + '\n', { headers: response.headers });
		};
		return true;
	})()`)
	b.click(".looked button", "Look for more")
	b.see(".looked", "The search was cut off")
	b.click(".looked button", "Try again")
	b.await("!document.querySelector('.looked').textContent.includes('cut off') && " +
		"!document.querySelector('.looked progress')")
	b.see(".looked", "150 messages found, 150 of 150 messages")
	b.await("[...document.querySelectorAll('#found .id')].length === 150")
}

func TestTimesInTheURLThatAreNoneAreNotSet(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.order42()
	for _, url := range []string{"/?from=tomorrow", "/?to=x&z0=x&z1=y", "/?z0=2030-01-01T00:00:00Z",
		"/?z0=2031-01-01T00:00:00Z&z1=2030-01-01T00:00:00Z"} {
		s.open(url).see(".rows td.id", "cancel-order-42")
	}
}
