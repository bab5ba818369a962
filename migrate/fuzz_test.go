package migrate

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// FuzzImport imports lines. They are refused with an error of the import, or there are as many messages as the result
// says, and the export of them is imported again.
func FuzzImport(f *testing.F) {
	const head = `{"later_export":2,"time":"2026-01-01T00:00:00Z","queues":["q"]}` + "\n"
	const message = `{"queue":"q","id":"a","state":"scheduled","due":"2100-01-01T00:00:00Z"`
	deep := strings.Repeat("[", 70)
	for _, lines := range []string{"", head, head + message + "}\n", head + message + `,"payload":"\ud800"}`,
		head + message + `,"payload":` + deep + "}\n", head + message + `,"id":"b"}` + "\n",
		head + message + `,"raw_base64":"gA=="}` + "\n",
		head + `{"queue":"q","id":"..","state":"dead","due":"2026-01-01T00:00:00Z"}` + "\n" +
			`{"later_export_end":2,"messages":1}` + "\n",
		head + `{"later_export_end":2,"messages":18446744073709551616}`, head + "\n\n{}\n", `{"later_export":9}`,
		head + head, deep, "\xff\n\x00",
		`{"later_export":2,"queues":["` + strings.Repeat("x", 999) + `"]}`,
		head + message + `,"due":"9999-12-31T23:59:59Z"}`} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		if _, err := ReadPosition(bytes.NewReader(lines)); err != nil && store.CodeOf(err) == store.Internal {
			t.Errorf("%q: reading the position: %v", lines, err)
		}
		c, err := later.Open(t.Context(), "mem://")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		result, err := Import(t.Context(), c, bytes.NewReader(lines), ImportConfig{})
		if err != nil && store.CodeOf(err) == store.Internal && !errors.Is(err, ErrIncomplete) {
			t.Errorf("%q: %v", lines, err)
		}
		var text bytes.Buffer
		exported, eerr := Export(t.Context(), c, &text, ExportConfig{})
		if eerr != nil || exported.Messages != result.Imported {
			t.Fatalf("%q: %d were imported (%v), %d exported (%v)", lines, result.Imported, err, exported.Messages,
				eerr)
		}
		again, err := Import(t.Context(), c, &text, ImportConfig{})
		if err != nil || again.Duplicates != result.Imported {
			t.Errorf("%q: the export %q is imported with %+v, %v", lines, &text, again, err)
		}
	})
}
