package pagetest

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/recurrence"
)

func TestBulkChangeIsLimitedAndStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 40)
	b := s.open("/?queue=orders")
	b.see(".rows td.id", "m-00")
	b.click("button", "Change all that match…")
	b.click("dialog label.choice", "Cancel")
	b.write("1", "dialog input[name=rate]")
	b.click("dialog button", "See what matches")
	b.see("dialog strong", "40 messages")
	b.write("40", "dialog input[name=count]")
	b.click("dialog .buttons button", "Cancel 40 messages")
	b.see("dialog progress")
	b.click("dialog button", "Stop")
	b.see("dialog strong", "then stopped")
	if left := s.stats("orders").Scheduled; left == 0 {
		t.Error("the bulk change did not stop")
	}
}

func TestDownloadBeforeARemovalCanBeImported(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	s.fill("orders", 12)
	due := s.due("orders", "m-10")
	b := s.open("/?queue=orders&q=id%3Am-1") // m-10 and m-11
	b.see(".rows td.id", "m-11")
	b.click("button", "Change all that match…")
	b.click("dialog label.choice", "Cancel")
	b.click("dialog button", "See what matches")
	b.see("dialog a", "Download them")
	reply, err := http.Get(evaluate[string](b, "document.querySelector('dialog a[download]').href"))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	export, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		t.Fatalf("%d %s, %v", reply.StatusCode, export, err)
	}
	b.confirm("2", "Cancel")
	if n := s.stats("orders").Scheduled; n != 10 {
		t.Errorf("%d messages are left", n)
	}
	imported, err := http.Post(s.url+"/v1/import", "application/x-ndjson", strings.NewReader(string(export)))
	if err != nil {
		t.Fatal(err)
	}
	defer imported.Body.Close()
	if n := s.stats("orders").Scheduled; imported.StatusCode != http.StatusOK || n != 12 {
		t.Errorf("%d, and %d messages", imported.StatusCode, n)
	}
	s.wantDue("orders", "m-10", due)
}

// A copied command for curl sends the message again, with any content.
func TestCopiedCommandSendsTheMessageAgain(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl")
	}
	const payload = `{"text": "it's $HOME & <b>\"more\"</b> 🎉"}`
	s := newSite(t, "", "", "")
	s.send("orders", payload, later.WithID("a"), later.In(time.Hour), later.Header("kind", "it's"))
	due := s.due("orders", "a")
	b := s.open("/")
	b.openMessage("orders", "a")
	evaluate[bool](b, "navigator.clipboard.writeText = async (text) => { window.copied = text }, true")
	b.click(".panel summary", "Copy as")
	b.click(".panel button", "curl command")
	b.see(".notice", "Copied")
	if _, err := s.client.Queue("orders").Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	copied := exec.CommandContext(t.Context(), "sh", "-c", evaluate[string](b, "copied"))
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m, err := s.client.Queue("orders").Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if string(m.Payload) != payload || m.Headers["kind"] != "it's" || !m.Due.Equal(due) {
		t.Errorf("%s, %v, %v", m.Payload, m.Headers, m.Due)
	}
}

// setTime sets a field for a date and time, on the clock of the browser.
func (b *tab) setTime(at time.Time, selector string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`(() => { const e = document.querySelector(%s); if (!e) return false;
		e.value = new Date(%d - new Date(%[2]d).getTimezoneOffset() * 60e3).toISOString().slice(0, 16);
		e.dispatchEvent(new Event('input', {bubbles: true})); return e.value !== '' })()`, quote(selector), at.UnixMilli()))
}

func TestScheduleIsBackfilledAfterADryRun(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", "")
	hourly := later.Schedule{Name: "hourly", Queue: "reports", When: recurrence.Spec{Cron: "0 * * * *"}}
	if _, err := s.client.Schedules().Put(t.Context(), hourly); err != nil {
		t.Fatal(err)
	}
	b := s.open("/?view=schedules&schedule=hourly")
	b.click(".panel button", "Backfill…")
	end := time.Now().Truncate(time.Hour).Add(-30 * time.Minute)
	b.setTime(end.Add(-5*time.Hour), "dialog label:nth-of-type(1) input")
	b.setTime(end, "dialog label:nth-of-type(2) input")
	b.click("dialog button", "Look how many")
	b.see("dialog strong", "5 runs")
	if n := s.stats("reports").Scheduled + s.stats("reports").Ready; n > 1 { // the next run
		t.Errorf("the dry run sent %d messages", n)
	}
	b.click("dialog button", "Send them")
	b.see(".notice", "5 runs of hourly sent")
	b.gone("dialog")
	if n := s.stats("reports").Ready; n < 5 {
		t.Errorf("%d messages", n)
	}
}

// A million messages are shown, selected and searched like ten.
func TestPageShowsAMillionMessages(t *testing.T) {
	t.Parallel()
	const count = 1_000_000
	s := newSite(t, "", "", "")
	batch := make([]later.Outgoing, 10_000)
	for sent := 0; sent < count; sent += len(batch) {
		for i := range batch {
			batch[i] = later.Outgoing{Payload: []byte(`{"order":1}`),
				When: later.In(2*time.Hour + time.Duration(sent+i)*80*time.Millisecond)}
		}
		if _, err := s.client.Queue("orders").SendBatch(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	b := s.open("/?queue=orders")
	b.see(".figures a", "1M")
	b.drag(0.60, 0.65, ".plot") // within the day
	b.awaitURL("from=")
	b.see(".range strong", "in the range")
	b.see(".rows td.id")
	b.visit("/?queue=orders&q=nothing")
	b.see(".listhead", "50,000 messages looked at")
	b.click(".rows button", "Look further")
	b.see(".listhead", "100,000 messages looked at")
	b.visit("/?queue=orders&q=order%3D1")
	b.click("button", "Change all that match…")
	b.click("dialog label.choice", "Shift")
	b.write("1h", "dialog input[name=by]")
	b.click("dialog button", "See what matches")
	b.see("dialog p", "match")
	b.click("dialog button", "Stop")
	b.see("dialog button", "See what matches")
}
