package pagetest

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/laterq/later"
)

func TestNewMessageIsSentWithAllThatItCanHave(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 1)
	if err := s.client.Queue("orders").SetFlow(t.Context(), later.Flow{Urgency: true}); err != nil {
		t.Fatal(err)
	}
	b := s.open("/?queue=orders")
	b.see(".rows td.id")
	b.press("n")
	b.see("dialog h2", "New message")
	b.await("document.querySelector('dialog input[name=queue]').value === 'orders'")
	b.write("new-1", "dialog input[name=id]")
	b.write(`{"order": 12345678901234567890}`, "dialog textarea[name=payload]")
	b.write("kind=gift\nfrom=page", "dialog textarea[name=headers]")
	b.click("dialog button", "in 1 h")
	b.click("dialog summary", "Group, key, urgency")
	b.write("order-7", "dialog input[name=group]")
	b.write("ada", "dialog input[name=key]")
	b.choose("high", "dialog select[name=urgency]")
	b.write("3", "dialog input[name=max_attempts]")
	b.write("2h", "dialog input[name=expire_after]")
	b.checkLooks("send")
	b.size(1280, 800, 1)
	b.click("dialog button.primary", "Send")
	b.see(".notice", "new-1 is sent to orders")
	b.see(".panel h2", "new-1")
	m := s.get("orders", "new-1")
	if string(m.Payload) != `{"order":12345678901234567890}` || m.Headers["kind"] != "gift" ||
		m.Headers["from"] != "page" || m.Group != "order-7" || m.Key != "ada" || m.Urgency != later.UrgencyHigh ||
		m.MaxAttempts != 3 || m.ExpireAfter != 2*time.Hour || time.Until(m.Due) < 59*time.Minute ||
		time.Until(m.Due) > time.Hour {
		t.Errorf("%+v", m)
	}
}

func TestErrorsOfANewMessageAreBesideTheirFields(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 1)
	b := s.open("/?queue=orders")
	b.allow("400|409") // the server refuses it
	b.click(".listhead button", "New message…")
	wrong := func(field, text string) {
		t.Helper()
		b.click("dialog button.primary", "Send")
		b.see("dialog .field:has([name="+field+"][aria-invalid=true]) small.late", text)
		b.await("document.activeElement.name === " + quote(field))
	}
	b.write("{", "dialog textarea[name=payload]")
	wrong("payload", "no longer JSON")
	b.click("dialog label.choice", "text")
	b.write("nothing", "dialog textarea[name=headers]")
	wrong("headers", "has no value: write name=value")
	b.write("", "dialog textarea[name=headers]")
	b.write("m-00", "dialog input[name=id]")
	wrong("id", "A live message has this id")
	b.write("fresh", "dialog input[name=id]")
	b.click("dialog summary", "Group, key, urgency")
	b.write("a/b", "dialog input[name=key]")
	wrong("key", "key")
	b.write("", "dialog input[name=key]")
	b.choose("high", "dialog select[name=urgency]")
	wrong("urgency", "set the flow of the queue first")
	b.choose("", "dialog select[name=urgency]")
	b.write("soon", "dialog input[name=expire_after]")
	wrong("expire_after", "give a duration")
	b.checkAccess()
	b.write("", "dialog input[name=expire_after]")
	b.write(".", "dialog input[name=queue]")
	wrong("queue", "no path can hold")
	b.write("orders", "dialog input[name=queue]")
	b.click("dialog button.primary", "Send")
	b.see(".notice", "fresh is sent")
	if m := s.get("orders", "fresh"); string(m.Payload) != "{" {
		t.Errorf("the payload is %q", m.Payload)
	}
}

func TestMessageIsDuplicated(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	due := time.Now().Add(30 * time.Hour).Truncate(time.Second)
	s.send("orders", `{"n":12345678901234567890,"a":[1]}`, later.WithID("first"), later.At(due), later.Group("g"),
		later.Header("kind", "gift"), later.MaxAttempts(4))
	s.send("orders", "\xff\x00", later.WithID("bytes"), later.At(due))
	b := s.open("/?queue=orders&message=first")
	b.click(".panel .actions button", "Duplicate…")
	b.see("dialog h2", "Duplicate first")
	b.await("document.querySelector('dialog input[name=id]').value === ''")
	b.write("second", "dialog input[name=id]")
	b.checkAccess()
	b.click("dialog button.primary", "Send")
	b.see(".panel h2", "second")
	a, c := s.get("orders", "first"), s.get("orders", "second")
	if string(a.Payload) != string(c.Payload) || !c.Due.Equal(due) || c.Group != "g" || c.Headers["kind"] != "gift" ||
		c.MaxAttempts != 4 {
		t.Errorf("%+v, want it like %+v", c, a)
	}
	b.visit("/?queue=orders&message=bytes")
	b.click(".panel .actions button", "Duplicate…")
	b.see("dialog", "2 bytes that are no text")
	b.write("bytes-2", "dialog input[name=id]")
	b.click("dialog button.primary", "Send")
	b.see(".panel h2", "bytes-2")
	if m := s.get("orders", "bytes-2"); string(m.Payload) != "\xff\x00" {
		t.Errorf("the payload is %q", m.Payload)
	}
}

func TestSendWhoseReplyWasLostIsRepeatedOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", "0")
	b := s.open("/?queue=orders")
	b.click("button", "New message…")
	b.write("1", "dialog textarea[name=payload]")
	evaluate[bool](b, `(() => { const real = fetch; window.fetch = async (to, init) => {
		const response = await real(to, init);
		if (init.method !== 'POST') return response;
		window.fetch = real;
		throw new TypeError('the reply was lost');
	}; return true; })()`)
	b.click("dialog button.primary", "Send")
	b.see("dialog .failure", "cannot be reached")
	b.click("dialog button.primary", "Send")
	b.see(".notice", "is sent to orders")
	if got := s.stats("orders"); got.Ready != 2 {
		t.Errorf("%+v", got)
	}
	b.see(".panel h2")
	b.click("button", "Duplicate…")
	b.click("dialog button.primary", "Send") // another one, with the same fields
	b.gone("dialog")
	if got := s.stats("orders"); got.Ready != 3 {
		t.Errorf("%+v", got)
	}
}

// A textarea has one kind of line breaks, and headers are lines of one.
func TestLineBreaksStayAsTheyAre(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.send("orders", "a\r\nb", later.WithID("first"), later.In(time.Hour), later.Header("x", "1\ny=2"))
	first := s.get("orders", "first")
	b := s.open("/?queue=orders&message=first")
	b.click(".panel .actions button", "Duplicate…")
	b.write("second", "dialog input[name=id]")
	b.click("dialog button.primary", "Send")
	b.see(".panel h2", "second")
	if m := s.get("orders", "second"); !bytes.Equal(m.Payload, first.Payload) || !maps.Equal(m.Headers, first.Headers) {
		t.Errorf("%q %q, want %q %q", m.Payload, m.Headers, first.Payload, first.Headers)
	}
	b.click(".panel button", "Edit…")
	b.write("a\nb\nc", "dialog textarea[name=payload]")
	b.click("dialog button.primary", "Save")
	b.see(".notice", "second is changed")
	if m := s.get("orders", "second"); string(m.Payload) != "a\r\nb\r\nc" || !maps.Equal(m.Headers, first.Headers) {
		t.Errorf("%q %q", m.Payload, m.Headers)
	}
	b.click(".panel button", "Edit…")
	b.write("x=3", "dialog textarea[name=headers]")
	b.click("dialog button.primary", "Save")
	b.see("dialog .failure", "does not fit on a line")
}

func TestReadersCannotSendOrDuplicate(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", roles(t))
	s.fill("orders", 1)
	for _, who := range []string{"reader", "secretary"} {
		b := s.login("/?queue=orders&message=m-00", who)
		b.see(".panel .facts", "orders")
		b.gone("button", "New message…")
		b.gone("button", "Duplicate…")
		b.press("n")
		b.press("?")
		b.see("dialog h2", "Keys")
		b.gone("dialog dd", "new message")
	}
}
