package pagetest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later"
)

// roles is a configuration file with a token of the same name for each role, for secretary, who sees no payloads, and
// for buyer, who operates the topic orders and its subscription stock alone.
func roles(t *testing.T) (file string) {
	t.Helper()
	text := "tokens:\n"
	for name, role := range map[string]string{"reader": "role: read", "operator": "role: operate",
		"secretary": "role: read, hide_payloads: true",
		"buyer":     "role: operate, queues: [\"topic:orders\", stock]"} {
		hash := sha256.Sum256([]byte(name))
		text += fmt.Sprintf("  - {name: %s, sha256: %s, %s}\n", name, hex.EncodeToString(hash[:]), role)
	}
	file = filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// login opens a page and logs in.
func (s *site) login(path, token string) *tab {
	s.Helper()
	b := s.open(path)
	b.allow("401") // why the page asks
	b.see("h1", "Log in")
	b.write(token, "input[name=token]")
	b.click("button.primary", "Log in")
	b.see("header.top summary", token)
	return b
}

func TestLoginAsksUntilATokenIsRight(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", roles(t))
	s.fill("orders", 1)
	b := s.open("/?queue=orders")
	b.allow("401")
	b.see("h1", "Log in")
	b.checkLooks("login")
	b.size(1280, 800, 1)
	b.write("guess", "input[name=token]")
	b.click("button.primary", "Log in")
	b.see(".failure", "not one of this server's")
	b.write("operator", "input[name=token]")
	b.click("button.primary", "Log in")
	b.see(".rows td.id", "m-00")
	b.awaitURL("queue=orders") // it is where it was asked for
	b.click("header.top summary", "operator")
	b.click("header.top button", "Log out")
	b.see("h1", "Log in")
}

func TestReadersSeeNoActions(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", roles(t))
	s.fill("orders", 2)
	s.bury("orders", "error %d", 1)
	s.schedule("report", "0 * * * *")
	b := s.login("/?queue=orders&message=m-00", "reader")
	b.see(".panel .tree", "order")
	for _, action := range []string{"Run now", "Reschedule…", "Edit…", "Cancel…", "Pause…", "Change all that match…"} {
		b.gone("button", action)
	}
	b.visit("/?queue=orders&state=dead&group=error")
	b.see(".errors li")
	b.gone("button", "Replay…")
	b.visit("/?view=schedules&schedule=report")
	b.see(".calendar .day")
	b.gone("button", "Run now")
	b.gone("button", "New schedule…")
}

func TestPayloadsAreHiddenWhereTheRoleSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t, "", "", roles(t))
	s.send("orders", `{"secret":4711}`, later.WithID("a"), later.In(time.Hour), later.Header("customer", "ada lovelace"))
	s.bury("orders", "the secret of %d", 1)
	b := s.login("/?queue=orders&message=a", "secretary")
	b.see(".panel", "does not show payloads")
	b.visit("/?queue=orders&state=dead")
	b.see(".rows td.id")
	b.press("/")
	if help := b.see(".findhelp"); strings.Contains(help, "header:") || strings.Contains(help, "error:") {
		t.Errorf("the help shows conditions that are refused: %s", help)
	}
	b.press(kb.Escape)
	for _, path := range []string{"/?queue=orders&message=a", "/?queue=orders&state=dead", "/?find=a"} {
		b.visit(path)
		b.see(".rows td.id, .panel dl.facts, #found [role=option]")
		if evaluate[bool](b, `/4711|lovelace|the secret/.test(document.body.innerHTML)`) {
			t.Errorf("%s shows what is hidden", path)
		}
	}
}
