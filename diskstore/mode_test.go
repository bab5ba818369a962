//go:build unix

package diskstore

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laterq/later/store"
)

func TestDirectoryOfOthersIsReported(t *testing.T) {
	for mode, want := range map[os.FileMode]store.Severity{
		0: store.SeverityOK, 0o700: store.SeverityOK, 0o770: store.SeverityOK, 0o750: store.SeverityOK,
		0o755: store.SeverityNote, 0o711: store.SeverityNote, 0o777: store.SeverityWarning,
	} {
		dir := filepath.Join(t.TempDir(), "store")
		if mode != 0 { // else the store makes it
			try(t, os.Mkdir(dir, mode))
			try(t, os.Chmod(dir, mode)) // whatever the umask is
		}
		var log bytes.Buffer
		s, err := Open(dir, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		if err != nil {
			t.Fatal(err)
		}
		var got store.CheckResult
		try(t, s.Check(t.Context(), store.CheckOptions{}, func(r store.CheckResult) {
			if r.Check == "access" {
				got = r
			}
		}))
		if got.Severity != want || (want != store.SeverityOK) != strings.Contains(got.Advice, "chmod o= "+dir) {
			t.Errorf("%v: %+v, want %s", mode, got, want)
		}
		try(t, s.Close())
		if warned := strings.Contains(log.String(), "level=WARN"); warned != (want == store.SeverityWarning) {
			t.Errorf("%v: %s", mode, &log)
		}
	}
}
