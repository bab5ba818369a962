package pagetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
)

// order42 sends messages about an order, and others.
func (s *site) order42() {
	s.Helper()
	hour := later.In(time.Hour)
	s.send("orders", `{"order":{"number":42,"total":120,"customer":"Ada"}}`, later.WithID("cancel-order-42"), hour)
	s.send("mail", "hello", later.WithID("reminder-7"), hour, later.Group("order-42"))
	s.send("mail", "bye", later.WithID("other"), hour, later.Header("kind", "gift"))
	s.schedule("order-42-report", "0 9 * * *")
}

// find writes a text into the box that finds anything.
func (b *tab) find(text string) {
	b.t.Helper()
	b.press("/")
	b.write(text, "#find")
}

// found waits until a result has a text.
func (b *tab) found(text string) {
	b.t.Helper()
	b.see("#found [role=option]", text)
}

func TestOrder42IsFoundAndOpened(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.order42()
	b := s.open("/")
	b.see(".rows td.id", "cancel-order-42")
	b.press("/")
	b.await("document.activeElement.id === 'find'")
	b.write("order 42", "#find")
	b.found("group order-42 in mail")
	b.found("schedule order-42-report")
	b.found("reminder-7")
	b.found("cancel-order-42")
	b.see(".looked", "2 messages found, 3 of 3 messages in 2 queues looked at")
	b.see(".looked", `"order" and "42" in id, group, key or payload`)
	b.awaitURL("find=order+42")
	b.checkAccess()
	for range 3 { // group, schedule, two messages
		b.press(kb.ArrowDown)
	}
	b.see("#found [aria-selected=true]", "cancel-order-42")
	b.await("document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))" +
		".getAttribute('aria-selected') === 'true'")
	b.press(kb.Enter)
	b.see(".panel h2", "cancel-order-42")
	b.gone("#found")
	b.awaitURL("message=cancel-order-42")
	evaluate[bool](b, "history.back(), true")
	b.found("cancel-order-42") // the URL has the search
	b.press(kb.Escape)
	b.gone("#found")
	b.await("!location.search.includes('find')")

	b.visit("/?find=cancel-order-42")
	b.found("cancel-order-42")
	b.see("#found", "Exact id")
	b.press(kb.Escape)
	b.gone("#found")
	b.find("group:order-42")
	b.found("reminder-7")
	b.click("#found [role=option]", "group order-42")
	b.see(".rows td.id", "reminder-7")
	b.await("document.querySelectorAll('.rows td.id').length === 1")
}

func TestFindOpensNamesAndLists(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.order42()
	b := s.open("/?view=workers")
	b.see("h1", "Workers")
	b.find("order-42-report")
	b.click("#found [role=option]", "schedule order-42-report")
	b.see(".panel h2", "order-42-report")
	b.find("order.total>=100")
	b.found("cancel-order-42")
	b.click(".looked a", "1 match")
	b.see(".rows td.id", "cancel-order-42")
	b.see(".listhead", "1 message found, ")
	b.find("attempts<1")
	b.see(".looked", "give a comparison such as attempts>=1")
	b.allow("400") // the server refuses it
	b.write("reminder-7", "#find")
	b.press(kb.Enter) // before it is found
	b.see(".panel h2", "reminder-7")
	b.press("k", chromedp.ModifierCtrl)
	b.write("cancel-order-42", "dialog input")
	b.see("dialog [aria-selected=true]", "cancel-order-42")
	b.checkAccess()
	b.press(kb.Enter)
	b.see(".panel h2", "cancel-order-42")
}

func TestFindSaysWhereItLookedAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	batch := make([]later.Outgoing, 500)
	for i := range 110 {
		for j := range batch {
			batch[j] = later.Outgoing{ID: fmt.Sprintf("m-%d", 500*i+j), When: later.In(time.Duration(i+1) * time.Hour)}
		}
		if _, err := s.client.Queue("orders").SendBatch(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	b := s.open("/")
	b.find("-54999")
	b.see(".looked", "Nothing was found so far.")
	b.see(".looked", "0 messages found, 50,000 of 55,000 messages in 1 queue looked at")
	b.see(".looked", "and for names of queues")
	b.click(".looked button", "Look further")
	b.found("m-54999")
	b.see(".looked", "1 message found, 55,000 of 55,000 messages")
	b.write("nothing like this", "#find")
	b.see(".looked", "Nothing was found so far.")
	b.click(".looked button", "Look further")
	b.see(".looked", "Nothing was found.")
	b.checkAccess()
}

func TestHelpHasExamplesOfTheMessagesOnScreen(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.order42()
	b := s.open("/")
	b.see(".rows td.id", "cancel-order-42")
	b.press("/")
	help := b.see(".findhelp", "order.number>=42")
	for _, example := range []string{"order.customer~Ada", "header:kind=gift", "group:order-42", "id:"} {
		if !strings.Contains(help, example) {
			t.Errorf("the help lacks %s: %s", example, help)
		}
	}
	b.checkAccess()
	b.click(".findhelp button", "order.number>=42")
	b.found("cancel-order-42")
	b.gone(".findhelp")
	b.click(".results button", "How to search")
	b.see(".findhelp", "All words and conditions must match.")
	b.size(390, 844, 1)
	b.await("document.documentElement.scrollWidth <= innerWidth") // when the chart was drawn again
	b.checkAccess()
}
