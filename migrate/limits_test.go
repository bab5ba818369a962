package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/inspect"
	"github.com/laterq/later/store"
)

// limited gives a queue limits, and some of its keys limits of their own.
func limited(t *testing.T, c *later.Client, queue string, keys int) later.Flow {
	t.Helper()
	f := later.Flow{Concurrency: 9, Rate: later.Rate{N: 10, Per: time.Second, Burst: 5}, Urgency: true,
		Key: later.KeyFlow{Order: later.OrderHalt, Weight: 2, Rate: later.Rate{N: 3, Per: time.Minute}}}
	if err := c.Queue(queue).SetFlow(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		setKey(t, c, queue, fmt.Sprintf("key-%05d", i), i%999+1)
	}
	return f
}

func setKey(t *testing.T, c *later.Client, queue, key string, weight int) {
	t.Helper()
	if err := c.Queue(queue).SetKeyFlow(t.Context(), key, later.KeyOverride{Weight: &weight}); err != nil {
		t.Fatal(err)
	}
}

// limitsOf describes the limits of a queue and its keys.
func limitsOf(t *testing.T, c *later.Client, queue string) string {
	t.Helper()
	stats, err := c.Store().Stats(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%+v", stats.Flow.Flow.Normal())
	err = eachOverride(t.Context(), side{store: c.Store()}, queue, func(key string, o store.KeyOverride) error {
		text += fmt.Sprintf("\n%s %d", key, *o.Weight)
		return nil
	})
	if err != nil && stats.Flow.Fair {
		t.Fatal(err)
	}
	return text
}

// eachWay calls do with a function that moves queues to another store by a copy, and then by an export and its import.
// The function returns what became of the limits of the queue.
func eachWay(t *testing.T, do func(t *testing.T, move func(to, from *later.Client) Limits)) {
	t.Run("copy", func(t *testing.T) {
		do(t, func(to, from *later.Client) Limits { return mustCopy(t, to, from, CopyConfig{})[0].Limits })
	})
	t.Run("export", func(t *testing.T) {
		do(t, func(to, from *later.Client) Limits {
			return imported(t, to, bytes.NewReader(exported(t, from))).Queues[0].Limits
		})
	})
}

func TestLimitsAreMovedToEveryEngine(t *testing.T) {
	names, clients := engines(t)
	eachWay(t, func(t *testing.T, move func(to, from *later.Client) Limits) {
		for _, name := range names {
			from, queue := newMem(t), t.Name()+name
			limited(t, from, queue, store.MaxKeysPage+7)
			mustSend(t, from.Queue(queue), "m", later.Key("k"), later.Urgent())
			if err := clients[name].Store().Delete(t.Context(), queue); err != nil {
				t.Fatal(err)
			}
			for _, want := range []Limits{LimitsSet, LimitsSame} {
				if l := move(clients[name], from); l != want {
					t.Errorf("%s: limits are %q, want %q", name, l, want)
				}
				if got, want := limitsOf(t, clients[name], queue), limitsOf(t, from, queue); got != want {
					t.Errorf("%s: limits are\n%s\nwant\n%s", name, got, want)
				}
			}
		}
	})
}

// A queue keeps limits of its own, and a key too.
func TestLimitsOfTheTargetStay(t *testing.T) {
	eachWay(t, func(t *testing.T, move func(to, from *later.Client) Limits) {
		from, to := newMem(t), newMem(t)
		limited(t, from, "q", 3)
		if err := to.Queue("q").SetFlow(t.Context(), later.Flow{Fair: true}); err != nil {
			t.Fatal(err)
		}
		setKey(t, to, "q", "key-00001", 77)
		before := limitsOf(t, to, "q")
		if l := move(to, from); l != LimitsKept {
			t.Errorf("limits are %q, want kept", l)
		}
		if got := limitsOf(t, to, "q"); got != before {
			t.Errorf("limits are\n%s\nwant\n%s", got, before)
		}

		to = newMem(t)
		limited(t, to, "q", 0)
		setKey(t, to, "q", "key-00001", 77)
		move(to, from)
		if got := limitsOf(t, to, "q"); !strings.HasSuffix(got, "\nkey-00000 1\nkey-00001 77\nkey-00002 3") {
			t.Errorf("limits are\n%s", got)
		}

		plain := newMem(t)
		mustSend(t, plain.Queue("q"), "m")
		if l := move(to, plain); l != LimitsNone {
			t.Errorf("limits are %q without any in the source", l)
		}
		if got := limitsOf(t, to, "q"); !strings.HasSuffix(got, "\nkey-00002 3") {
			t.Errorf("limits are\n%s", got)
		}
	})
}

func TestFilteredExportsHaveNoLimits(t *testing.T) {
	c := newMem(t)
	limited(t, c, "q", 1)
	var file bytes.Buffer
	cfg := ExportConfig{Filter: &inspect.Filter{State: later.StateReady}}
	if _, err := Export(t.Context(), c, &file, cfg); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(file.String(), "later_limits") {
		t.Errorf("the export is %s", &file)
	}
}

// An export with limits that is cut at any byte is resumed, and its import begins at any line.
func TestExportWithLimitsIsResumedAndImportedFromAnyLine(t *testing.T) {
	from := newMem(t)
	for _, queue := range []string{"a", "b"} {
		limited(t, from, queue, 2)
		mustSend(t, from.Queue(queue), "m", later.WithID("m"), later.In(time.Hour))
	}
	whole := exported(t, from)
	check := func(what string, export []byte, line int64) {
		to := newMem(t)
		if line > 1 {
			part := bytes.Join(bytes.SplitAfterN(export, []byte("\n"), int(line))[:line-1], nil)
			if _, err := Import(t.Context(), to, bytes.NewReader(part), ImportConfig{}); !errors.Is(err, ErrIncomplete) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if _, err := Import(t.Context(), to, bytes.NewReader(export), ImportConfig{FromLine: line}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, queue := range []string{"a", "b"} {
			if got, want := limitsOf(t, to, queue), limitsOf(t, from, queue); got != want {
				t.Errorf("%s: limits of %s are\n%s\nwant\n%s", what, queue, got, want)
			}
			sameContents(t, to, from, queue)
		}
	}
	for line := range int64(bytes.Count(whole, []byte("\n"))) {
		check(fmt.Sprint("from line ", line+1), whole, line+1)
	}
	for cut := range whole {
		at, err := ReadPosition(bytes.NewReader(whole[:cut]))
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		file := bytes.NewBuffer(bytes.Clone(whole[:at.Size]))
		if _, err := Export(t.Context(), from, file, ExportConfig{Resume: at}); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		check(fmt.Sprint("cut at ", cut), file.Bytes(), 1)
	}
}

// An import that goes on among the limits of keys sets none in a queue with other limits.
func TestImportFromALineOfAKeyKnowsTheLimitsOfItsQueue(t *testing.T) {
	from := newMem(t)
	f := limited(t, from, "q", 2)
	export := exported(t, from)
	for want, flows := range map[Limits][]later.Flow{
		LimitsSet: {{}}, LimitsSame: {f}, LimitsKept: {{Concurrency: 1}, {Fair: true}},
	} {
		for _, f := range flows {
			to := newMem(t)
			if err := to.Queue("q").SetFlow(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			r, err := Import(t.Context(), to, bytes.NewReader(export), ImportConfig{FromLine: 4})
			if err != nil || r.Queues[0].Limits != want {
				t.Errorf("Import into a queue with %+v returned %+v, %v", f, r, err)
			}
			if keys := strings.Count(limitsOf(t, to, "q"), "\n"); keys > 0 && want == LimitsKept {
				t.Errorf("limits of %d keys were set", keys)
			}
		}
	}
}

// A line before FromLine may be wrong; limits without their queue's, or behind the end, are refused.
func TestLimitsInTheWrongPlace(t *testing.T) {
	const header, end, flow = `{"later_export":2}` + "\n", `{"later_export_end":2,"messages":0}` + "\n",
		`{"later_limits":"q","flow":{"fair":true}}` + "\n"
	if _, err := Import(t.Context(), newMem(t), strings.NewReader(header+`{"later_limits":1}`+"\n"+flow+end),
		ImportConfig{FromLine: 3}); err != nil {
		t.Error(err)
	}
	for export, want := range map[string]string{
		header + `{"later_limits":"q","key":"k","override":{"weight":2}}` + "\n" + end: `limits of key "k" come before`,
		header + end + flow: "line 3: limits follow the end",
	} {
		to := newMem(t)
		if _, err := Import(t.Context(), to, strings.NewReader(export), ImportConfig{}); !errors.Is(err, store.ErrInvalid) ||
			!strings.Contains(strings.Replace(err.Error(), `, limits of queue "q"`, "", 1), want) {
			t.Errorf("Import returned %v; want %q", err, want)
		}
	}
	if _, err := ReadPosition(strings.NewReader(header + end + flow)); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("ReadPosition returned %v", err)
	}
}

// An export that was resumed after a change of limits has both, and the last ones are set.
func TestLastLimitsOfAnExportAreSet(t *testing.T) {
	from, to := newMem(t), newMem(t)
	limited(t, from, "q", 1)
	first := exported(t, from)
	if err := from.Queue("q").SetFlow(t.Context(), later.Flow{Fair: true}); err != nil {
		t.Fatal(err)
	}
	r := imported(t, to, bytes.NewReader(append(first, exported(t, from)...)))
	if got, want := limitsOf(t, to, "q"), limitsOf(t, from, "q"); got != want || r.Queues[0].Limits != LimitsSet {
		t.Errorf("%+v: limits are\n%s\nwant\n%s", r, got, want)
	}
}

// Damaged limits of keys keep no message from being saved.
func TestDamagedLimitsOfKeysAreTold(t *testing.T) {
	from, to := newMem(t), newMem(t)
	limited(t, from, "q", 1)
	mustSend(t, from.Queue("q"), "m")
	damaged := newClient(t, &noKeys{Store: from.Store(), read: store.ErrCorrupt})
	r, err := Copy(t.Context(), to, damaged, CopyConfig{})
	if !errors.Is(err, store.ErrCorrupt) || r.Queues[0].Copied != 1 || r.Queues[0].Limits != LimitsSet {
		t.Errorf("Copy returned %+v, %v", r, err)
	}
	var file bytes.Buffer
	e, err := Export(t.Context(), damaged, &file, ExportConfig{})
	if !errors.Is(err, store.ErrCorrupt) || e.Messages != 1 || !e.Complete {
		t.Errorf("Export returned %+v, %v", e, err)
	}
}

// Limits that could not be set are not told as set.
func TestLimitsThatFailAreNotToldAsSet(t *testing.T) {
	from, to := newMem(t), newMem(t)
	limited(t, from, "q", 1)
	failing := newClient(t, &noKeys{Store: to.Store(), flow: store.ErrUnavailable})
	c, err := Copy(t.Context(), failing, from, CopyConfig{})
	if !errors.Is(err, store.ErrUnavailable) || c.Queues[0].Limits != LimitsNone {
		t.Errorf("Copy returned %+v, %v", c, err)
	}
	r, err := Import(t.Context(), failing, bytes.NewReader(exported(t, from)), ImportConfig{})
	if !errors.Is(err, store.ErrUnavailable) || r.Queues[0].Limits != LimitsNone {
		t.Errorf("Import returned %+v, %v", r, err)
	}
}

// Limits that a queue gets at the same moment are compared with the ones to be set.
func TestTheSameLimitsAtTheSameMoment(t *testing.T) {
	from, to := newMem(t), newMem(t)
	f := limited(t, from, "q", 2)
	racing := newClient(t, &noKeys{Store: to.Store(), before: &f})
	if q := mustCopy(t, racing, from, CopyConfig{})[0]; q.Limits != LimitsSame {
		t.Errorf("limits are %q", q.Limits)
	}
	if got, want := limitsOf(t, to, "q"), limitsOf(t, from, "q"); got != want {
		t.Errorf("limits are\n%s\nwant\n%s", got, want)
	}
}

func TestLimitsThatAreNotAllowedAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		`{"later_limits":"q"}`: `"flow" and "override" or none`,
		`{"later_limits":"q","flow":{},"override":{"weight":2},"key":"k"}`:      `"flow" and "override" or none`,
		`{"later_limits":"q","flow":{"concurrency":1},"key":"k"}`:               `"key" is given beside "flow"`,
		`{"later_limits":"q","flow":{"concurrency":-1}}`:                        "concurrency",
		`{"later_limits":"q","flow":{"rate":{"n":1}}}`:                          "per",
		`{"later_limits":"q","flow":{"speed":1}}`:                               `"speed"`,
		`{"later_limits":"{}","flow":{"concurrency":1}}`:                        "queue name",
		`{"later_limits":"topic:t","flow":{"concurrency":1}}`:                   "topic:t",
		`{"later_limits":"q","override":{"weight":2}}`:                          "key",
		`{"later_limits":"q","key":"a/b","override":{"weight":2}}`:              "key",
		`{"later_limits":"q","key":"k","override":{"weight":0}}`:                "weight",
		`{"later_limits":"` + strings.Repeat("q", 5000) + `","flow":{}}`:        "4096",
		`{"later_limits":"q","flow":` + strings.Repeat(`{"key":`, 900) + `1}}}`: "line 2",
	} {
		to := newMem(t)
		export := `{"later_export":2}` + "\n" + line + "\n" + `{"later_export_end":2,"messages":0}` + "\n"
		_, err := Import(t.Context(), to, strings.NewReader(export), ImportConfig{})
		if (!errors.Is(err, store.ErrInvalid) && !errors.Is(err, store.ErrTooLarge)) ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%.80s: %v; want an error with %q", line, err, want)
		}
		if queues, _, err := to.Store().Queues(t.Context(), ""); err != nil || len(queues) > 0 {
			t.Errorf("%.80s: the store has queues %q, %v", line, queues, err)
		}
		if _, err := ReadPosition(strings.NewReader(export)); err == nil {
			t.Errorf("%.80s: ReadPosition returned no error", line)
		}
	}
}

// A store that fails while limits are set ends the import at their line, and the import goes on there.
func TestImportThatCannotSetLimitsGoesOnAtTheirLine(t *testing.T) {
	from := newMem(t)
	limited(t, from, "q", 2)
	export := exported(t, from)
	to := newMem(t)
	failing := newClient(t, &noKeys{Store: to.Store(), keys: store.ErrUnavailable})
	r, err := Import(t.Context(), failing, bytes.NewReader(export), ImportConfig{})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), `line 3, limits of queue "q"`) ||
		r.NextLine != 3 {
		t.Fatalf("Import returned %+v, %v", r, err)
	}
	if _, err := Import(t.Context(), to, bytes.NewReader(export), ImportConfig{FromLine: r.NextLine}); err != nil {
		t.Fatal(err)
	}
	if got, want := limitsOf(t, to, "q"), limitsOf(t, from, "q"); got != want {
		t.Errorf("limits are\n%s\nwant\n%s", got, want)
	}
}

// noKeys is a store that fails to set limits of queues or keys, or to read the ones of keys.
type noKeys struct {
	store.Store
	flow, keys, read error
	before           *store.Flow // what another process sets before the first SetFlow
}

func (s *noKeys) SetFlow(ctx context.Context, queue string, f store.Flow, former *store.Flow) error {
	if f := s.before; f != nil {
		s.before = nil
		if err := s.Store.SetFlow(ctx, queue, *f, nil); err != nil {
			return err
		}
	}
	if s.flow != nil {
		return s.flow
	}
	return s.Store.SetFlow(ctx, queue, f, former)
}

func (s *noKeys) SetKeyFlow(ctx context.Context, queue, key string, o store.KeyOverride) error {
	if s.keys != nil {
		return s.keys
	}
	return s.Store.SetKeyFlow(ctx, queue, key, o)
}

func (s *noKeys) Keys(ctx context.Context, queue string, req store.KeysRequest) ([]store.KeyState, error) {
	if s.read != nil {
		return nil, s.read
	}
	return s.Store.Keys(ctx, queue, req)
}
