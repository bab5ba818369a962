package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/laterq/later/internal/reserved"
	"github.com/laterq/later/memstore"
)

func TestLogoutsAreKeptUntilTheLoginWouldHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newBubbleAPI(t, memstore.New())
		one, other := Logouts(a.client), Logouts(a.client)
		revoked := func(session string) bool {
			t.Helper()
			is, err := other.Revoked(t.Context(), session)
			if err != nil {
				t.Fatal(err)
			}
			return is
		}
		revoke := func(session string, after time.Duration) {
			t.Helper()
			if err := one.Revoke(t.Context(), session, time.Now().Add(after)); err != nil {
				t.Fatal(err)
			}
		}
		if revoked("a") {
			t.Error("nothing was ended")
		}
		revoke("a", time.Hour)
		revoke("a", time.Hour)
		revoke("b", 2*time.Hour)
		if !revoked("a") || !revoked("b") || revoked("c") {
			t.Error("other sessions were ended")
		}
		time.Sleep(time.Hour + time.Second)
		revoke("c", time.Hour)
		stats, err := a.client.Queue(reserved.Logouts).Stats(t.Context())
		if err != nil || stats.Scheduled != 2 || stats.Ready != 0 || !revoked("b") || !revoked("c") {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}
