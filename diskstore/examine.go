package diskstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

var _ store.Examiner = (*Store)(nil)

// Examine implements store.Examiner. Each queue is examined as it was at one moment, in a snapshot, while other
// calls go on; 10 million messages of 100 bytes took 6 seconds. Repairs are short calls like others, each on up to
// store.MaxBatch messages.
//
// What a message's state is comes from the message itself: one whose record tells a reason of death is dead; else
// one that a lease lists is leased, by the lease that ends last if there are several; else it is due at the time
// that its record says, or it was sent with. With Repair the indexes are made to say the same:
//
//   - an index entry, a record or a place in a lease without message is removed;
//   - a message that is in no index, or in a wrong one or several, is in the right one;
//   - a message that cannot be read goes to dead as unreadable, with its bytes;
//   - a record that cannot be read is lost: the message keeps its place, and its attempts begin anew;
//   - a lease that cannot be read ends, and its messages are due again;
//   - counters are counted anew; where they could not be read the queue is paused, as nobody knows whether it was;
//   - what has no queue is given one called recovered-N;
//   - keys of a kind that nobody knows are removed.
//
// What a damaged file held cannot be repaired: see Salvage.
func (s *Store) Examine(ctx context.Context, opts store.Examination, report func(store.Finding)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	var mu sync.Mutex
	left := false // nobody listens any more
	e := &examiner{s, ctx, opts.Repair, maxSuspects, func(f store.Finding) {
		mu.Lock()
		defer mu.Unlock()
		if !left {
			report(f)
		}
	}}
	err := s.guarded(func() error {
		if err := e.files(); err != nil {
			return err
		}
		return e.queues()
	})
	mu.Lock()
	defer mu.Unlock()
	left = true
	return err
}

// examiner examines a store that is open.
type examiner struct {
	s      *Store
	ctx    context.Context
	repair bool
	limit  int64 // of each queueLook
	report func(store.Finding)
}

// maxSuspects is about how many messages that may be wrong are looked at in one pass; they take some 200 MB.
const maxSuspects = 500_000

// files checks what is not a queue's.
func (e *examiner) files() error {
	e.report(store.Finding{Severity: store.SeverityOK, Check: "format", Text: fmt.Sprintf("%s is a %s", e.s.dir, strings.TrimSpace(format))})
	e.report(e.s.roomFinding())
	e.report(e.s.reserve.finding())
	disk := e.s.db.Metrics().DiskSpaceUsage()
	e.report(store.Finding{Severity: store.SeverityOK, Check: "size", Count: int64(disk), Text: fmt.Sprintf("the files take %s", formatBytes(disk))})
	reportTears(e.s.found, e.report)
	return e.tables()
}

// roomFinding tells how much room there is.
func (d *directory) roomFinding() store.Finding {
	f := store.Finding{Severity: store.SeverityOK, Check: "room"}
	usage, err := d.fs.GetDiskUsage(d.dir)
	switch {
	case errors.Is(err, vfs.ErrUnsupported):
		f.Severity, f.Text = store.SeverityNote, "this file system does not tell how much room it has"
	case err != nil:
		f.Severity, f.Text = store.SeverityWarning, fmt.Sprintf("free space is unknown: %v", err)
	default:
		f.Count, f.Text = int64(usage.AvailBytes), fmt.Sprintf("the disk has %s left", formatBytes(usage.AvailBytes))
		if usage.AvailBytes < minFree {
			f.Severity = store.SeverityWarning
			f.Text += fmt.Sprintf(", and %s are kept for claims and acks, so sends are refused", formatBytes(minFree))
			f.Advice = "free some space"
		}
	}
	return f
}

// reportTears tells what a crash left unfinished before the directory was opened.
func reportTears(v *survey, report func(store.Finding)) {
	if len(v.tears) == 0 {
		report(store.Finding{Severity: store.SeverityOK, Check: "log", Text: "the log had a clean end when the store was opened"})
	}
	for _, t := range v.tears {
		report(store.Finding{Severity: store.SeverityNote, Check: "log", Count: t.size,
			Text: fmt.Sprintf("a crash left %d bytes at the end of %s unfinished, from byte %d; nothing acknowledged was in them", t.size, t.file, t.at)})
	}
}

func faultFinding(f fault) store.Finding {
	return store.Finding{Severity: store.SeverityError, Check: "files", Text: f.file + " is damaged: " + f.text}
}

// tables compares every block of every table with its checksum.
func (e *examiner) tables() error {
	levels, err := e.s.db.SSTables()
	if err != nil {
		return e.s.unreadable(err)
	}
	numbers := map[uint64]bool{}
	for _, level := range levels {
		for _, t := range level {
			numbers[uint64(t.BackingSSTNum)] = true
		}
	}
	return e.s.checkTables(func() error { return e.s.interrupted(e.ctx) }, slices.Sorted(maps.Keys(numbers)), e.report)
}

// checkTables checks tables, and tells of each damaged block. One that is gone by now is passed over: it was merged
// into another, or its absence is told elsewhere.
func (d *directory) checkTables(interrupted func() error, numbers []uint64, report func(store.Finding)) error {
	blocks, size, damaged := 0, uint64(0), 0
	for _, number := range numbers {
		t, err := openTable(d.fs, d.dir, tableName(number))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return d.reading(err)
		}
		n, err := t.check(interrupted)
		err = errors.Join(err, t.close())
		if err != nil {
			return err
		}
		blocks, size = blocks+n, size+uint64(t.size)
		for _, lost := range t.lost {
			damaged++
			text := fmt.Sprintf("%s is damaged: %s at %v cannot be read", t.name, lost.what, lost.extent)
			if lost.at == lost.end {
				text = fmt.Sprintf("%s is damaged: %s cannot be read", t.name, lost.what)
			}
			report(store.Finding{Severity: store.SeverityError, Check: "tables", Text: text, Advice: d.salvageAdvice(), Count: lost.end - lost.at})
		}
	}
	if damaged == 0 {
		report(store.Finding{Severity: store.SeverityOK, Check: "tables", Count: int64(len(numbers)),
			Text: fmt.Sprintf("tables: %d of %s; all blocks, %d, match their checksums", len(numbers), formatBytes(size), blocks)})
	}
	return nil
}

func (d *directory) salvageAdvice() string {
	return fmt.Sprintf("stop the program, and save what can be read: later doctor --store %s --salvage NEWDIR", d.url())
}

// Inspect checks the files of a store that is not open, or cannot be opened because they are damaged. It changes
// nothing, and tells of all damage where Open stops at the first. Errors are those of Salvage.
func Inspect(ctx context.Context, dir string, report func(store.Finding)) error {
	return inspect(ctx, directory{dir, vfs.Default}, report)
}

func inspect(ctx context.Context, d directory, report func(store.Finding)) error {
	release, err := d.hold()
	if err != nil {
		return err
	}
	defer release()
	v, err := d.survey()
	if err != nil {
		return err
	}
	if err := d.checkFormat(); err != nil {
		report(store.Finding{Severity: store.SeverityError, Check: "format", Text: err.Error()})
	}
	report(d.roomFinding())
	for _, f := range v.faults {
		finding := faultFinding(f)
		finding.Advice = d.salvageAdvice()
		report(finding)
	}
	if v.manifest != nil && len(v.faults) == 0 {
		reportTears(v, report)
	}
	numbers := slices.Sorted(maps.Keys(v.tables))
	if v.tables == nil { // nobody knows which there should be
		names, err := d.fs.List(d.dir)
		if err != nil {
			return d.reading(err)
		}
		for _, name := range names {
			if number, ok := tableNumber(name); ok {
				numbers = append(numbers, number)
			}
		}
		slices.Sort(numbers)
	}
	return d.checkTables(func() error { return context.Cause(ctx) }, numbers, report)
}

// queues examines all that the store has numbers for.
func (e *examiner) queues() error {
	snapshot, err := e.snapshot()
	if err != nil {
		return err
	}
	w, err := e.whole(snapshot)
	if err := e.s.drop(snapshot, err); err != nil {
		return err
	}
	if err := e.store(w); err != nil {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(w.queues)) {
		if err := e.queue(number, w.queues[number]); err != nil {
			return err
		}
	}
	return nil
}

// snapshot is the store as it is now.
func (e *examiner) snapshot() (snapshot *pebble.Snapshot, err error) {
	var failed error
	err = e.s.do(e.ctx, func(t *tx) {
		if failed = t.flush(); failed == nil {
			snapshot = e.s.db.NewSnapshot()
		}
	})
	switch {
	case err != nil && e.s.isStuck(): // the writer may be making it for ever
		return nil, err
	case err != nil:
		return nil, e.s.drop(snapshot, err)
	}
	return snapshot, failed
}

// whole is what the store has besides the queues.
type whole struct {
	queues   map[uint32]string // by number; "" for one without a name
	badNames []string
	unknown  unknownKeys
}

// unknownKeys is keys that belong to nothing that is known.
type unknownKeys struct {
	n        int64
	examples []string
	ranges   []span // what holds them and nothing else
}

// add takes in the key that follows the one before if next is set, with nothing known between them.
func (u *unknownKeys) add(key []byte, next bool) {
	if u.n++; len(u.examples) <= maxExamples {
		u.examples = append(u.examples, fmt.Sprintf("%x", key))
	}
	to := append(slices.Clone(key), 0)
	if !next {
		u.ranges = append(u.ranges, span{from: to[:len(key):len(key)]})
	}
	u.ranges[len(u.ranges)-1].to = to
}

func (e *examiner) whole(snapshot *pebble.Snapshot) (w whole, err error) {
	w.queues = map[uint32]string{}
	it, err := snapshot.NewIter(nil)
	if err != nil {
		return w, e.s.unreadable(err)
	}
	unknown := false
	for valid := it.First(); valid; {
		number, kind, ok := splitKey(it.Key())
		switch before := unknown; {
		case !ok || number == 0 && kind != kindName || kind == 0xff: // too short, or of no kind
			w.unknown.add(it.Key(), before)
			unknown, valid = true, it.Next()
		case number == 0:
			w.name(string(it.Key()[prefixLength:]), it.Value())
			unknown, valid = false, it.Next()
		default:
			if _, known := w.queues[number]; !known {
				w.queues[number] = ""
			}
			unknown, valid = false, it.SeekGE(appendKey(nil, number, 0xff))
		}
	}
	if err := it.Close(); err != nil {
		return w, e.s.unreadable(err)
	}
	return w, nil
}

// name takes in the name of a queue.
func (w *whole) name(name string, value []byte) {
	number := uint32(0)
	if len(value) == 4 {
		number = binary.BigEndian.Uint32(value)
	}
	if number == 0 || w.queues[number] != "" {
		w.badNames = append(w.badNames, name)
		return
	}
	w.queues[number] = name
}

// store tells of, and repairs, what is wrong beside the queues.
func (e *examiner) store(w whole) error {
	f := store.Finding{Severity: store.SeverityError, Check: "names", Count: int64(len(w.badNames)),
		Text:   countText("names without a queue of their own", int64(len(w.badNames)), w.badNames),
		Advice: "the messages, if any, are under another name: recovered-N after a repair"}
	err := e.mend(f, func(t *tx) error {
		for _, name := range w.badNames {
			if err := t.removeBadName(name); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = e.removeUnknown("", w.unknown)
	}
	if err == nil && len(w.badNames) == 0 && w.unknown.n == 0 {
		e.report(store.Finding{Severity: store.SeverityOK, Check: "names", Count: int64(len(w.queues)),
			Text: fmt.Sprintf("queues: %d, each with a number of its own", len(w.queues))})
	}
	return err
}

// removeBadName removes a name if it still has no queue of its own.
func (t *tx) removeBadName(name string) error {
	key := appendIDKey(nil, 0, kindName, name)
	value, ok, err := t.get(key)
	if !ok || err != nil {
		return err
	}
	own := len(value) == 4 && binary.BigEndian.Uint32(value) != 0
	for _, q := range t.s.queues {
		own = own && (q.name == name || q.number != binary.BigEndian.Uint32(value))
	}
	if !own {
		t.remove(key)
		delete(t.s.queues, name)
	}
	return nil
}

// removeUnknown tells of keys that nobody knows.
func (e *examiner) removeUnknown(queue string, u unknownKeys) error {
	f := store.Finding{Severity: store.SeverityError, Check: "keys", Queue: queue, Count: u.n,
		Text: countText("keys of no kind that is known", u.n, u.examples)}
	return e.mend(f, func(t *tx) error {
		for _, r := range u.ranges {
			if err := t.batch.DeleteRange(r.from, r.to, nil); err != nil {
				return t.s.fail(err)
			}
		}
		return nil
	})
}

// mend reports a finding about what it counts, if anything, after it was repaired if it is to be.
func (e *examiner) mend(f store.Finding, repair func(t *tx) error) error {
	if f.Count == 0 {
		return nil
	}
	if e.repair {
		var failed error
		if err := e.s.do(e.ctx, func(t *tx) {
			if failed = t.flush(); failed == nil {
				failed = repair(t)
			}
		}); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
		f.Repaired, f.Advice = true, ""
	} else if f.Advice == "" {
		f.Advice = repairAdvice
	}
	e.report(f)
	return nil
}

const repairAdvice = "repair it: later doctor --repair"

// maxExamples is how many ids a finding names.
const maxExamples = 3

// countText says how many there are of something wrong, and names some.
func countText(what string, n int64, ids []string) string {
	return fmt.Sprintf("%s: %d (%s)", what, n, examples(ids))
}

// examples names some of what a finding is about.
func examples(all []string) string {
	var quoted []string
	for _, text := range all[:min(len(all), maxExamples)] {
		quoted = append(quoted, fmt.Sprintf("%q", text))
	}
	if len(all) > maxExamples {
		quoted = append(quoted, "…")
	}
	return strings.Join(quoted, ", ")
}

// formatBytes gives a size for people.
func formatBytes(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	unit := (bits.Len64(n) - 1) / 10
	return fmt.Sprintf("%.1f %ciB", float64(n)/float64(uint64(1)<<(10*unit)), "KMGTPE"[unit-1])
}
