package migrate

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// shortWriter fails after so many bytes.
type shortWriter struct {
	bytes.Buffer
	left int
}

var errShort = errors.New("no room")

func (w *shortWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.Buffer.Write(p[:n])
	if w.left -= n; n < len(p) {
		return n, errShort
	}
	return n, nil
}

func twoQueues(t *testing.T) *later.Client {
	source := newMem(t)
	fill(t, source, "a", 5)
	fill(t, source, "b", 4)
	return source
}

func TestExportThatIsCutAtAnyByteIsResumed(t *testing.T) {
	source := newMem(t)
	fill(t, source, "a", 2)
	fill(t, source, "b", 1)
	whole := exported(t, source)
	for cut := range len(whole) + 1 {
		w := &shortWriter{left: cut}
		r, err := Export(t.Context(), source, w, ExportConfig{})
		if cut < len(whole) && !errors.Is(err, errShort) || cut == len(whole) && err != nil ||
			r.Complete != (err == nil) {
			t.Fatalf("cut at %d: %v, %+v", cut, err, r)
		}
		resumed(t, source, whole, w.Bytes())
	}
}

func TestExportThatIsCutAgainAndAgainIsResumed(t *testing.T) {
	source := twoQueues(t)
	whole := exported(t, source)
	rapid.Check(t, func(t *rapid.T) {
		file := []byte{}
		for range rapid.IntRange(1, 5).Draw(t, "cuts") {
			p, err := ReadPosition(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			w := &shortWriter{left: rapid.IntRange(0, len(whole)/2).Draw(t, "bytes")}
			_, err = Export(context.Background(), source, w, ExportConfig{Resume: p})
			if err != nil && !errors.Is(err, errShort) {
				t.Fatal(err)
			}
			file = append(file[:p.Size:p.Size], w.Bytes()...)
		}
		resumed(t, source, whole, file)
	})
}

func TestExportThatIsStoppedEndsWithACompleteLine(t *testing.T) {
	source := newMem(t)
	fill(t, source, "q", 1000)
	whole := exported(t, source)
	stop := errors.New("stop")
	for pages := 1; ; pages++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		left := pages
		var b bytes.Buffer
		_, err := Export(ctx, source, &b, ExportConfig{Progress: func(QueueExport) {
			if left--; left == 0 {
				cancel(stop)
			}
		}})
		cancel(nil)
		if err == nil {
			return
		}
		if err != stop || !bytes.HasSuffix(b.Bytes(), []byte("}\n")) {
			t.Fatalf("after %d pages: %v", pages, err)
		}
		resumed(t, source, whole, b.Bytes())
	}
}

func TestExportThatIsResumedReadsNoMoreOfTheStoreThanItNeeds(t *testing.T) {
	source := newMem(t)
	fill(t, source, "a", 10)
	fill(t, source, "b", 10)
	whole := exported(t, source)
	lines := bytes.SplitAfter(whole, []byte("\n"))
	h := &hooked{Store: source.Store()}
	read := map[string]int{}
	h.list = func(queue string, req store.ListRequest) (store.Page, error) {
		page, err := source.Store().List(t.Context(), queue, req)
		read[queue] += len(page.Messages)
		return page, err
	}
	// The header, 32 messages of a, 2 leased, 10 scheduled, 5 ready of b: of one time are r0003, r0004 and r0005.
	resumed(t, newClient(t, h), whole, bytes.Join(lines[:1+32+2+10+5], nil))
	if read["a"] != 0 || read["b"] != 7+2+10 {
		t.Errorf("read %v", read)
	}
}

func TestWhatIsNotAnExportIsNotResumed(t *testing.T) {
	source := twoQueues(t)
	whole := string(exported(t, source))
	lines := strings.SplitAfter(whole, "\n")
	for text, want := range map[string]string{
		"id,queue\n1,q\n":               "line 1 is not the header of an export",
		"id":                            "line 1 is not the header of an export",
		"{}\n":                          "line 1 is not the header of an export",
		lines[0] + "x\n":                "line 2: text is not one JSON object",
		whole + lines[1]:                "a message follows the end",
		lines[0] + lines[len(lines)-2]:  "export has 0 messages and its end says 31",
		`{"later_export":3}` + "\n":     "the format 3 and this version of Later knows 2",
		`{"later_export":1}` + "\n":     "the format 1 and this version of Later knows 2",
		`{"later_export":"1"}` + "\n":   "header of an export cannot be read",
		lines[0] + `{"later_export":2}`: "",
	} {
		_, err := ReadPosition(strings.NewReader(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{"", "{", lines[0][:20], lines[0][:len(lines[0])-1]} {
		if p, err := ReadPosition(strings.NewReader(text)); err != nil || p.Size != 0 {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	p, err := ReadPosition(strings.NewReader(whole))
	if err != nil || !p.Complete || p.Messages != 31 {
		t.Fatalf("%+v, %v", p, err)
	}
	var b bytes.Buffer
	if r, err := Export(t.Context(), source, &b, ExportConfig{Resume: p}); err != nil || !r.Complete ||
		r.Messages != 31 ||
		b.Len() > 0 {
		t.Errorf("%+v, %v, wrote %q", r, err, &b)
	}
}

func TestExportThatIsResumedIsOfTheSameQueues(t *testing.T) {
	source := twoQueues(t)
	whole := exported(t, source, "b", "a")
	cut := whole[:len(whole)/3]
	resumed(t, source, whole, cut) // names none
	p, err := ReadPosition(bytes.NewReader(cut))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Export(t.Context(), source, &bytes.Buffer{}, ExportConfig{Resume: p, Queues: []string{"a"}})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), `["b" "a"]`) {
		t.Errorf("got %v", err)
	}
}

func TestExportFile(t *testing.T) {
	source := twoQueues(t)
	whole := exported(t, source)
	path := filepath.Join(t.TempDir(), "export")
	export := func(resume bool, queues ...string) (ExportResult, error) {
		return ExportFile(t.Context(), source, path, resume, ExportConfig{Queues: queues})
	}
	read := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if _, err := export(false, "none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an export that did not begin made a file: %v", err)
	}
	if r, err := export(true); err != nil || !r.Complete {
		t.Fatal(r, err)
	}
	sameLines(t, read(), whole)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := export(false); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "exists") {
		t.Errorf("got %v", err)
	}
	if r, err := export(true); err != nil || !r.Complete || len(r.Queues) != 0 {
		t.Errorf("a complete export was resumed: %+v, %v", r, err)
	}
	if err := os.WriteFile(path, append(whole[:len(whole)/2:len(whole)/2], make([]byte, 100)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := export(true); err != nil || !r.Complete || r.Messages != 31 {
		t.Errorf("%+v, %v", r, err)
	}
	sameLines(t, read(), whole)
	if err := os.WriteFile(path, []byte("id,queue\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := export(true); !errors.Is(err, store.ErrInvalid) || string(read()) != "id,queue\n" {
		t.Errorf("%v; the file has %q", err, read())
	}
}
