package migrate

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/laterq/later/memstore"
	"github.com/laterq/later/store"
)

func TestImportOfAnExportThatIsCutAtAnyByteGoesOn(t *testing.T) {
	source := newMem(t)
	fill(t, source, "a", 3)
	whole := exported(t, source)
	for cut := range len(whole) {
		target := newMem(t)
		first, err := Import(t.Context(), target, bytes.NewReader(whole[:cut]), ImportConfig{})
		switch {
		case errors.Is(err, store.ErrInvalid) && first.Imported == 0: // not even a header
		case errors.Is(err, ErrIncomplete):
		case cut == len(whole)-1 && err == nil: // nothing but the end of the last line is missing
		default:
			t.Fatalf("cut at %d: %v, %+v", cut, err, first)
		}
		second, err := Import(t.Context(), target, bytes.NewReader(whole), ImportConfig{FromLine: first.NextLine})
		if err != nil || second.Duplicates != 0 || first.Imported+second.Imported != 11 {
			t.Fatalf("cut at %d: %v, %+v after %+v", cut, err, second, first)
		}
		sameContents(t, target, source, "a")
		if all := imported(t, target, bytes.NewReader(whole)); all.Imported != 0 || all.Duplicates != 11 {
			t.Fatalf("cut at %d: %+v", cut, all)
		}
	}
}

func TestImportThatIsStoppedGoesOnAtTheLineThatItNames(t *testing.T) {
	source := newMem(t)
	fill(t, source, "a", 1000)
	fill(t, source, "b", 7)
	whole := exported(t, source)
	stop := errors.New("stop")
	for batches := 1; ; batches++ {
		target := newMem(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		left := batches
		first, err := Import(ctx, target, bytes.NewReader(whole), ImportConfig{Progress: func(ImportResult) {
			if left--; left == 0 {
				cancel(stop)
			}
		}})
		cancel(nil)
		if err != nil && err != stop {
			t.Fatal(err)
		}
		second, err2 := Import(t.Context(), target, bytes.NewReader(whole), ImportConfig{FromLine: first.NextLine})
		if err2 != nil || second.Duplicates != 0 {
			t.Fatalf("%v, %+v after %+v", err2, second, first)
		}
		sameContents(t, target, source, "a")
		sameContents(t, target, source, "b")
		if err == nil {
			return
		}
	}
}

func TestImportNamesTheStoreThatRefusesWithTheLine(t *testing.T) {
	source := newMem(t)
	fill(t, source, "q", 600)
	whole := exported(t, source)
	for _, kind := range []error{store.ErrFull, store.ErrUnavailable} {
		h := &hooked{Store: memstore.New()}
		calls := 0
		h.restore = func(queue string, infos []store.Info) ([]store.SendResult, error) {
			if calls++; calls == 2 {
				return nil, kind
			}
			return h.Store.Restore(t.Context(), queue, infos)
		}
		target := newClient(t, h)
		r, err := Import(t.Context(), target, bytes.NewReader(whole), ImportConfig{})
		if !errors.Is(err, kind) || r.NextLine != 2+store.MaxBatch || r.Imported != store.MaxBatch ||
			!strings.Contains(err.Error(), `line 502 on, into queue "q"`) {
			t.Errorf("%v, %+v", err, r)
		}
		r, err = Import(t.Context(), target, bytes.NewReader(whole), ImportConfig{FromLine: r.NextLine})
		if err != nil || r.Duplicates != 0 {
			t.Errorf("%v, %+v", err, r)
		}
		sameContents(t, target, source, "q")
	}
}

func TestInputOfSomethingElseWritesNothing(t *testing.T) {
	good := string(exported(t, twoQueues(t)))
	for text, want := range map[string]string{
		"":                                 "input is empty",
		"id,queue\n1,q\n":                  "line 1 is not the header of an export",
		"\n":                               "line 1 is not the header",
		strings.Repeat("x", 9<<20):         "line 1 is not the header",
		`{"later_export":1}`:               "the version that wrote it",
		`{"later_export":3}`:               "the version that wrote it",
		`{"later_export":0}`:               "the version that wrote it",
		good[strings.Index(good, "\n")+1:]: "line 1 is not the header",
		"\xef\xbb\xbf" + good:              "line 1 is not the header",
	} {
		h := &hooked{Store: memstore.New(), restore: func(string, []store.Info) ([]store.SendResult, error) {
			t.Error("something was written")
			return nil, errStop
		}}
		_, err := Import(t.Context(), newClient(t, h), strings.NewReader(text), ImportConfig{})
		if !errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrUnsupported) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
		early := CheckHeader(bufio.NewReader(strings.NewReader(text)))
		if (early == nil) != (kindOf([]byte(text)) == headerLine) {
			t.Errorf("%.40q: the header alone is %v", text, early)
		}
	}
}

func TestImportGivesNamesOfDotsOthers(t *testing.T) {
	source := newMem(t)
	for _, queue := range []string{"q", "..", "topic:."} {
		for _, m := range []store.Message{{ID: "."}, {ID: "..", Group: "."}, {ID: "plain"}} {
			if _, err := source.Store().Send(t.Context(), queue, []store.Outgoing{{Message: m}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole := exported(t, source)
	target := newMem(t)
	r := imported(t, target, bytes.NewReader(whole))
	if r.Imported != 9 || r.Renamed != 8 {
		t.Errorf("%+v", r)
	}
	for _, q := range r.Queues {
		want := map[string]int64{"q": 2, "%2E%2E": 3, "topic:%2E": 3}
		if q.Renamed != want[q.Queue] || len(want) != len(r.Queues) {
			t.Errorf("%+v", q)
		}
		all := contents(t, target, q.Queue)
		if len(all) != 3 || all["%2E"].ID == "" || all["%2E%2E"].Group != "%2E" || all["plain"].ID == "" {
			t.Errorf("%s: %v", q.Queue, all)
		}
	}
	if again := imported(t, target, bytes.NewReader(whole)); again.Duplicates != 9 || again.Renamed != 8 {
		t.Errorf("%+v", again)
	}
	for queue, want := range map[string]string{"q": `id is "."`, "..": `queue name is ".."`} {
		_, err := Copy(t.Context(), newMem(t), source, CopyConfig{Queues: []string{queue}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", queue, err)
		}
	}
}

var errStop = errors.New("stop")

func TestImportNamesTheLineThatFailsAndImportsThoseBeforeIt(t *testing.T) {
	lines := strings.SplitAfter(string(exported(t, twoQueues(t))), "\n")
	for bad, want := range map[string]string{
		"x\n":                             "line 4: text is not one JSON object",
		strings.Repeat("x", 9<<20) + "\n": "line 4: line is longer than 8388608 bytes",
		strings.Replace(lines[3], `"id"`, `"Id"`, 1):      `line 4: field "Id" is unknown`,
		strings.Replace(lines[3], `"a"`, `"changes:"`, 1): `line 4: queue "changes:" has the list of changes`,
		`{"later_export":3}` + "\n":                       "line 4: store unsupported: the export has the format 3",
	} {
		target := newMem(t)
		input := strings.Join(slices.Replace(slices.Clone(lines), 3, 4, bad), "")
		r, err := Import(t.Context(), target, strings.NewReader(input), ImportConfig{})
		if err == nil || !strings.Contains(err.Error(), want) || r.Imported != 2 || r.NextLine != 4 ||
			errors.Is(err, ErrIncomplete) {
			t.Errorf("%.30q: %.200v, %+v", bad, err, r)
		}
		if r, err := Import(t.Context(), target, strings.NewReader(strings.Join(lines, "")),
			ImportConfig{FromLine: 4}); err != nil ||
			r.Duplicates != 0 {
			t.Errorf("%v, %+v", err, r)
		}
	}
}

func TestImportOfAnIncompleteExportSaysSo(t *testing.T) {
	lines := strings.SplitAfter(string(exported(t, twoQueues(t))), "\n")
	all, n := strings.Join(lines, ""), len(lines)-1
	for _, test := range []struct {
		name, input, want string
		imported          int64
	}{
		{"no end", strings.Join(lines[:n-1], ""), "it ends after line 32 without an end", 31},
		{"torn", strings.Join(lines[:9], "") + `{"queue":"a`, "line 10, the last one, is not whole", 8},
		{"a line is missing", strings.Join(lines[:5], "") + strings.Join(lines[6:], ""),
			"line 32 says that the export has 31 messages, and there are 30", 30},
		{"torn before another", strings.Join(lines[:9], "") + all,
			"begins at line 1 has no end before the next begins at line 10", 31},
	} {
		r, err := Import(t.Context(), newMem(t), strings.NewReader(test.input), ImportConfig{})
		if !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), test.want) || r.Imported != test.imported {
			t.Errorf("%s: %v, %+v", test.name, err, r)
		}
	}
}

func TestExportsOneAfterTheOtherAreOneImport(t *testing.T) {
	source := twoQueues(t)
	a, b, target := exported(t, source, "a"), exported(t, source, "b"), newMem(t)
	input := slices.Concat(a, b, []byte("\n\r\n"), a)
	r := imported(t, target, bytes.NewReader(input))
	want := []QueueImport{{Queue: "a", Imported: 17, Duplicates: 17}, {Queue: "b", Imported: 14}}
	if r.Imported != 31 || r.Duplicates != 17 || !slices.Equal(r.Queues, want) {
		t.Errorf("got %+v", r)
	}
	sameContents(t, target, source, "a")
	sameContents(t, target, source, "b")
	_, err := Import(t.Context(), target, bytes.NewReader(append(a, b[bytes.IndexByte(b, '\n')+1:]...)), ImportConfig{})
	if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "line 20: a message follows the end") {
		t.Errorf("got %v", err)
	}
}

func TestImportBeginsAtALineOfTheInput(t *testing.T) {
	whole := exported(t, twoQueues(t))
	for from, want := range map[int64]string{-1: "must be 1 or more", 35: "the input has 33 lines"} {
		_, err := Import(t.Context(), newMem(t), bytes.NewReader(whole), ImportConfig{FromLine: from})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("from line %d: %v", from, err)
		}
	}
	for _, from := range []int64{33, 34} { // nothing is left
		if r, err := Import(t.Context(), newMem(t), bytes.NewReader(whole), ImportConfig{FromLine: from}); err != nil ||
			r.Imported != 0 {
			t.Errorf("from line %d: %v, %+v", from, err, r)
		}
	}
}

func TestInputThatCannotBeReadIsToldOf(t *testing.T) {
	whole := exported(t, twoQueues(t))
	lines := bytes.SplitAfter(whole, []byte("\n"))
	input := io.MultiReader(bytes.NewReader(bytes.Join(lines[:5], nil)), iotestErr{})
	r, err := Import(t.Context(), newMem(t), input, ImportConfig{})
	if !errors.Is(err, errStop) || !strings.Contains(err.Error(), "after line 5") || r.Imported != 4 ||
		r.NextLine != 6 {
		t.Errorf("%v, %+v", err, r)
	}
}

type iotestErr struct{}

func (iotestErr) Read([]byte) (int, error) { return 0, errStop }
