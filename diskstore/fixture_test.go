package diskstore

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laterq/later/store"
)

// writeFixture has TestFixture write the fixture of this version's format. Do so before the format is raised:
//
//	go test ./diskstore -run 'TestFixture$' -write-fixture
var writeFixture = flag.Bool("write-fixture", false, "write the fixture of this version's format to testdata")

// fixture returns the directory of a store of an earlier format, with what TestFixture put into it.
func fixture(format int) string { return filepath.Join("testdata", fmt.Sprintf("format%d", format)) }

// TestFixture writes a store that has some of everything, and was killed: its HOLDER is there.
func TestFixture(t *testing.T) {
	if !*writeFixture {
		t.Skip("writes a fixture only with -write-fixture")
	}
	dir, killed := filepath.Join(t.TempDir(), "store"), fixture(formatVersion)
	s, err := Open(dir, WithClock(newManualClock()), withReserve(0), withMemTable(256<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fillFixture(t, s)
	if err := os.RemoveAll(killed); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	by := "process 1 on machine, later, since 2030-01-02T03:04:05Z\n" // and not this machine's name
	if err := os.WriteFile(filepath.Join(killed, holderFile), []byte(by), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fillFixture puts messages of all states into a queue, some of them into a table and the rest into the log.
func fillFixture(t *testing.T, s *Store) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(id string, delay time.Duration, change func(m *store.Outgoing)) {
		t.Helper()
		m := plain(id)
		m.Due.Delay = delay
		if change != nil {
			change(&m)
		}
		r, err := s.Send(t.Context(), "q", []store.Outgoing{m})
		must(err)
		must(r[0].Err)
	}
	claim := func() []store.Settlement {
		t.Helper()
		c, err := s.Claim(t.Context(), "q", store.ClaimRequest{Max: 10, Lease: time.Hour})
		must(err)
		var all []store.Settlement
		for _, m := range c.Messages {
			all = append(all, store.Settlement{Receipt: m.Receipt})
		}
		return all
	}
	must(s.SetProperties(t.Context(), "q", map[string]string{"color": "blue"}, nil))
	must(s.SetDeadRetention(t.Context(), "q", store.Retention{MaxCount: 100}, nil))
	must(s.SetPaused(t.Context(), "paused", true))
	for _, id := range []string{"acked", "buried", "retried", "snoozed"} {
		put(id, 0, func(m *store.Outgoing) { m.Group = "g" })
	}
	settled := claim()
	for i := range settled {
		switch settled[i].Receipt.ID {
		case "acked":
			settled[i].Action, settled[i].DedupWindow = store.Ack, 24*time.Hour
		case "buried":
			settled[i].Action, settled[i].Reason = store.Bury, "because"
		case "retried":
			settled[i].Action, settled[i].Reason, settled[i].Delay = store.Nack, "no", time.Hour
		case "snoozed":
			settled[i].Action, settled[i].Delay = store.Snooze, time.Hour
		}
	}
	_, err := s.Settle(t.Context(), "q", settled)
	must(err)
	must(s.db.Flush())
	put("held", 0, nil)
	put("followed", 0, nil)
	put("cancelled", 0, nil)
	claim()
	put("followed", time.Minute, func(m *store.Outgoing) {
		m.OnDuplicate.Mode, m.Payload = store.DuplicateFollow, []byte("payload of the successor")
	})
	_, err = s.Cancel(t.Context(), "q", store.CancelRequest{IDs: []string{"cancelled"}})
	must(err)
	put("ready", 0, nil)
	put("scheduled", time.Hour, func(m *store.Outgoing) { m.Group = "g" })
	session := store.WithRequest(t.Context(), store.Request{Session: "session", Number: 3})
	_, err = s.Send(session, "q", []store.Outgoing{plain("remembered request")})
	must(err)
}
