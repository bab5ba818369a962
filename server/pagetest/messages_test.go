package pagetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
)

// open opens a message in its panel.
func (b *tab) openMessage(queue, id string) {
	b.t.Helper()
	b.visit("/?queue=" + queue + "&message=" + id)
	b.see(".panel h2", id)
	b.see(".panel dl.facts")
}

func TestSearchFindsWhatIsMeant(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	hour := later.In(time.Hour)
	s.send("orders", `{"order":{"id":1,"total":50}}`, later.WithID("small"), hour)
	s.send("orders", `{"order":{"id":2,"total":500}}`, later.WithID("large"), hour, later.Header("kind", "gift"))
	s.send("mail", `please refund this`, later.WithID("refund-1"), hour, later.Group("ada"))
	b := s.open("/")
	b.see(".rows td.id", "small")
	for _, search := range []struct{ q, found string }{
		{"refund", "refund-1"}, {`"refund this"`, "refund-1"}, {"id:large", "large"}, {"order.total>=100", "large"},
		{"header:kind=gift", "large"}, {"REFUND ada", "refund-1"}, {"group:ada", "refund-1"}, {"order.id=1", "small"},
	} {
		b.press("f")
		b.await("document.activeElement.id === 'search'")
		b.write(search.q, "#search")
		b.press(kb.Enter)
		b.awaitURL("q=")
		b.see(".listhead", "1 message found")
		b.await(`[...document.querySelectorAll('.rows td.id')].map(e => e.textContent).join() === ` + quote(search.found))
		b.click(".listhead a", "clear the search")
		b.await("document.querySelectorAll('.rows td.id').length === 3")
	}
	b.press("f")
	b.write("nothing like this", "#search")
	b.press(kb.Enter)
	b.see(".rows", "Nothing matches")
	b.see(".listhead", "0 messages found, 3 messages looked at")
}

func TestGroupOfAMessageLeadsToItsMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	const group = `Ada "L" 17`
	for _, id := range []string{"one", "two"} {
		s.send("orders", id, later.WithID(id), later.In(time.Hour), later.Group(group))
	}
	s.send("orders", `Ada L 17`, later.WithID("other"), later.In(time.Hour), later.Group("Ada"))
	b := s.open("/")
	b.openMessage("orders", "one")
	b.click(".panel dl.facts a", group)
	b.see(".listhead", "2 messages found")
	b.see(".rows td.id", "two")
}

func TestMessageIsMarkedInTheListOfItsQueue(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for _, queue := range []string{"mail", "orders"} {
		s.send(queue, "x", later.WithID("same"), later.In(time.Hour))
	}
	b := s.open("/")
	b.click(".rows tbody tr", "orders")
	b.awaitURL("mq=orders")
	b.await("document.querySelectorAll('.rows tr.shown').length > 0")
	if shown := evaluate[string](b, `[...document.querySelectorAll('.rows tr.shown td.queue')].map(
  e => e.textContent).join()`); shown != "orders" {
		t.Errorf("the marked messages are of the queues %s", shown)
	}
}

func TestMessageTellsAllAboutItself(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", `{"order":4711,"items":["lamp",{"name":"tea","gift":true}]}`, later.WithID("order-4711"),
		later.In(26*time.Hour), later.Header("customer", "ada"), later.MaxAttempts(3), later.Key("customer-7"))
	b := s.open("/")
	b.click(".rows td.id a", "order-4711")
	b.awaitURL("message=order-4711")
	b.see(".panel .why", "due")
	if facts := b.see(".panel dl.facts"); !strings.Contains(facts, "UTC") || !strings.Contains(facts, "of 3") ||
		!strings.Contains(facts, "customer-7") {
		t.Error(facts)
	}
	b.see(".panel", "customer")
	b.see(".panel .tree", "4711")
	b.see(".panel .tree", "gift")
	b.click(".panel button", "text")
	b.see(".panel pre", `{"order":4711`)
	b.click(".panel button", "hex")
	b.see(".panel pre", "7b 22 6f 72")
	b.press(kb.Escape)
	b.gone(".panel")
}

func TestMessageIsRescheduledAndThatIsUndone(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", "{}", later.WithID("a"), later.In(time.Hour))
	due := s.due("orders", "a")
	b := s.open("/")
	b.openMessage("orders", "a")
	b.click(".panel button", "Reschedule…")
	b.write("3h", "dialog input[name=in]")
	b.click("dialog button.primary", "Reschedule")
	b.see(".notice", "a is due")
	b.gone("dialog")
	if moved := s.due("orders", "a"); moved.Sub(due) < time.Hour {
		t.Errorf("due %v, and before %v", moved, due)
	}
	b.click(".notice button", "Undo")
	b.see(".notice", "due as before")
	s.wantDue("orders", "a", due)
}

func TestMessageIsEditedRunAndCancelled(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", `{"total":1}`, later.WithID("a"), later.In(time.Hour))
	b := s.open("/")
	b.openMessage("orders", "a")
	b.click(".panel button", "Edit…")
	b.write(`{"total":2}`, "dialog textarea[name=payload]")
	b.write("kind=gift", "dialog textarea[name=headers]")
	b.click("dialog button.primary", "Save")
	b.see(".notice", "a is changed")
	b.see(".panel", "gift")
	info, err := s.client.Queue("orders").Get(t.Context(), "a")
	if err != nil || string(info.Payload) != `{"total":2}` || info.Headers["kind"] != "gift" {
		t.Fatalf("%+v, %v", info, err)
	}
	b.click(".panel button", "Run now")
	b.see("dialog", "cannot be undone")
	b.click("dialog button", "Run it now")
	b.see(".panel .state.ready")
	b.click(".panel button", "Cancel…")
	b.see("dialog", "undone for ten minutes")
	b.allow("404.*messages/a") // it may be read again just after
	b.click("dialog button.danger")
	b.see(".notice", "a is cancelled")
	b.gone(".panel")
	if _, err := s.client.Queue("orders").Get(t.Context(), "a"); !errors.Is(err, later.ErrNotFound) {
		t.Error(err)
	}
}

func TestMessageThatAWorkerHoldsSaysWho(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", "{}", later.WithID("a"))
	if held, err := s.client.Queue("orders").Receive(t.Context(), 1); err != nil || len(held) != 1 {
		t.Fatal(held, err)
	}
	b := s.open("/?state=leased")
	b.click(".rows td.id a", "a")
	b.see(".panel .why", "held")
	b.see(".panel button", "Cancel…")
	b.gone(".panel button", "Reschedule…")
}

func TestActionsThatFailSayWhy(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", "{}", later.WithID("a"), later.In(time.Hour))
	b := s.open("/")
	b.openMessage("orders", "a")
	b.click(".panel button", "Edit…")
	b.write("no value", "dialog textarea[name=headers]")
	b.click("dialog button.primary", "Save")
	b.see("dialog .failure", "write name=value")
	b.closeDialog()
	if _, err := s.client.Queue("orders").Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b.allow("404")
	b.see(".panel", "does not exist any more")
}

func TestJSONPayloadIsEditedWithAllItsDigits(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", `{"n":12345678901234567890,"f":1.10}`, later.WithID("a"), later.In(time.Hour),
		later.Header("content-type", "application/json"))
	b := s.open("/")
	b.openMessage("orders", "a")
	b.see(".panel .tree", "12345678901234567890")
	b.click(".panel button", "Edit…")
	b.write(`{"n":`, "dialog textarea[name=payload]")
	b.click("dialog button.primary", "Save")
	b.see("dialog", "no longer JSON")
	b.write(`{"n":12345678901234567891}`, "dialog textarea[name=payload]")
	b.click("dialog button.primary", "Save")
	b.see(".notice", "a is changed")
	info, err := s.client.Queue("orders").Get(t.Context(), "a")
	if err != nil || string(info.Payload) != `{"n":12345678901234567891}` || len(info.Headers) != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
}

// hostile are payloads that would do harm if they were taken for more than text.
var hostile = map[string]string{
	"html":     `<img src=x onerror="alert(1)"><h1>Owned</h1><style>*{display:none}</style>`,
	"script":   `</script><script>alert(2)</script>`,
	"json":     `{"<b>key</b>":"<script>alert(3)</script>","__proto__":{"polluted":true},"url":"javascript:alert(4)"}`,
	"emoji":    "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \U000e0041",
	"rtl":      "\u202egnp.exe\u202c שלום \u2066\u2069 مرحبا",
	"control":  "\x00\x01\x1b[31mred\x1b[0m\r\n\t\x7f",
	"bytes":    "\xff\xfe\x80invalid\xc3\x28",
	"deep":     strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
	"wide":     `{"list":[` + strings.Repeat("1,", 20_000) + `1]}`,
	"long":     strings.Repeat("long words without any space", 30_000)[:800_000],
	"megabyte": `{"text":"` + strings.Repeat("x", 1<<20-64) + `"}`,
	"empty":    "",
}

func TestHostilePayloadsDoNoHarm(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for name, payload := range hostile {
		s.send("hostile", payload, later.WithID(name), later.In(time.Hour), later.Header("<b>x</b>", "<i>\u202e"))
	}
	s.send("hostile", "x", later.WithID(`<img src=x onerror="alert(5)">`), later.In(time.Hour))
	b := s.open("/?queue=hostile")
	b.await(fmt.Sprintf("document.querySelectorAll('.rows td.id').length === %d", len(hostile)+1))
	b.checkWidth()
	for name := range hostile {
		b.openMessage("hostile", name)
		b.see(".payload-view")
		for _, way := range []string{"tree", "text", "hex"} {
			const ways = `[...document.querySelectorAll('.payload-view .segmented button')].map(e => e.textContent)`
			if slices.Contains(evaluate[[]string](b, ways), way) {
				b.click(".payload-view .segmented button", way)
				b.await(`document.querySelector('.payload-view [aria-pressed=true]').textContent === ` + quote(way))
			}
		}
		b.checkWidth()
		if evaluate[bool](b, "!!document.querySelector('.rows img, .panel img, .panel h1, main style, main script') || "+
			"!!({}).polluted") {
			t.Errorf("%s was taken for HTML", name)
		}
	}
	b.openMessage("hostile", "rtl")
	b.click(".payload-view button", "text")
	b.see(".payload-view pre", `\u202egnp.exe`) // the character that turns the direction can be seen
	b.checkAccess()
}

func TestListsStayFlatWithManyMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	var batch []later.Outgoing
	for i := range 30_000 {
		payload, _ := json.Marshal(map[string]int{"order": i})
		batch = append(batch, later.Outgoing{ID: fmt.Sprintf("m-%05d", i), Payload: payload,
			When: later.In(time.Hour + time.Duration(i)*time.Second)})
		if len(batch) == 10_000 {
			if _, err := s.client.Queue("orders").SendBatch(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			batch = nil
		}
	}
	b := s.open("/?queue=orders")
	b.see(".rows td.id", "m-00000")
	for range 12 { // each end of the list loads more
		before := evaluate[int](b, "document.querySelector('.rows').scrollHeight")
		evaluate[bool](b, "document.querySelector('.rows').scrollTop = 1e9, true")
		b.await(fmt.Sprintf("document.querySelector('.rows').scrollHeight > %d", before))
		if n := evaluate[int](b, "document.querySelectorAll('.rows tr').length"); n > 100 {
			t.Fatalf("%d rows are drawn", n)
		}
	}
	b.press("f")
	b.write("order=29999", "#search")
	b.press(kb.Enter)
	b.see(".listhead", "1 message found, 30,000 messages looked at")
	b.see(".rows td.id", "m-29999")
}

func TestKeysWalkThroughTheList(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	for i := range 5 {
		s.send("orders", "{}", later.WithID(fmt.Sprintf("m-%d", i)), later.In(time.Duration(i+1)*time.Hour))
	}
	b := s.open("/?queue=orders")
	b.see(".rows td.id", "m-4")
	b.press("jjj")
	b.see("tr[data-cursor]", "m-2")
	b.press("k")
	b.see("tr[data-cursor]", "m-1")
	b.press(kb.Enter)
	b.see(".panel h2", "m-1")
	b.press(kb.Escape)
	b.gone(".panel")
	b.press("r")
	b.see("dialog", "Run m-1 now?")
	b.press("r")      // the dialog is open
	b.press(kb.Enter) // its action has the focus
	b.see(".notice", "m-1 is due now")
	b.gone(".rows td.id", "m-1") // it is not scheduled any more
	b.gone("tr[data-cursor]")    // and the cursor is on no other message
	b.press("rxse")
	b.gone("dialog")
	b.press("j")
	b.see("tr[data-cursor]", "m-2")
	b.press("k")
	b.see("tr[data-cursor]", "m-0")
	b.press("x")
	b.see("dialog", "Cancel m-0")
	b.closeDialog()
	b.press("?")
	b.see("dialog", "reschedule the message")
	b.closeDialog()
	b.press("k", chromedp.ModifierCtrl)
	b.see("dialog input")
	b.write("go to work", "dialog input")
	b.press(kb.Enter)
	b.see("h1", "Workers")
	b.press("gs")
	b.see("h1", "Schedules")
	b.press("gh")
	b.see("h1", "Horizon")
}
