package diskstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

var _ store.Checker = (*Store)(nil)

// Check implements store.Checker. It checks each queue as it was at one moment, in a snapshot, while other calls go
// on. With Repair it rebuilds each queue that has an issue; see repair.go. Calls on that queue wait meanwhile, and
// calls on other queues go on. One Check with Repair runs at a time; another returns ErrUnavailable.
//
// What the messages themselves say is right: a message whose record has a reason of death is dead; else one that a
// lease holds is leased, by the lease that ends last; else it is due at the time of its record, or the time that it was
// sent with. A repair makes the indexes and counters agree with that:
//
//   - index entries are written anew, and records and places in leases without a message are removed;
//   - a message that cannot be read goes to dead as unreadable, with its bytes;
//   - a record that cannot be read is replaced: the message is due as it was sent, and its attempts begin anew;
//   - a lease that cannot be read ends, and its messages are due again;
//   - a queue whose counters cannot be read is left paused, because nobody knows whether it was;
//   - keys of a queue without a name become the queue recovered-N;
//   - keys of an unknown kind are removed.
//
// What a damaged file held cannot be repaired; see Recover.
func (s *Store) Check(ctx context.Context, opts store.CheckOptions, report func(store.CheckResult)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	if opts.Repair {
		if !s.repairing.TryLock() {
			return fmt.Errorf("%w: another repair of %s is under way", store.ErrUnavailable, s.dir)
		}
		defer s.repairing.Unlock()
	}
	var mu sync.Mutex
	returned := false
	e := &checker{s, ctx, opts.Repair, func(f store.CheckResult) {
		mu.Lock()
		defer mu.Unlock()
		if !returned { // Pebble may give up, and leave this goroutine behind
			report(f)
		}
	}}
	err := s.guarded(e.run)
	mu.Lock()
	defer mu.Unlock()
	returned = true
	return err
}

// checker checks an open store.
type checker struct {
	s      *Store
	ctx    context.Context
	repair bool
	report func(store.CheckResult)
}

func (e *checker) run() error {
	e.ok("format", "", 0, "%s is a store of format %s", e.s.dir, oneLine(formatText))
	var full error
	if err := e.step("", false, func(t *tx) error { full = t.checkRoom(); return nil }); err != nil {
		return err
	}
	if full != nil {
		e.report(store.CheckResult{Severity: store.SeverityWarning, Check: "room", Text: full.Error()})
	}
	e.report(e.s.reserve.report())
	e.report(e.s.checkMode())
	used := e.s.db.Metrics().DiskSpaceUsage()
	e.ok("size", "", int64(used), "the files take %s", formatBytes(used))
	tables, err := liveTables(e.s.db)
	if err != nil {
		return e.s.unreadable(err)
	}
	if err := e.s.checkTables(func() error { return e.s.interrupted(e.ctx) }, tables, e.report); err != nil {
		return err
	}
	queues, err := e.checkNames()
	if err != nil {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(queues)) {
		if err := e.checkQueue(queues[number], number); err != nil {
			return err
		}
	}
	return nil
}

func (e *checker) ok(check, queue string, n int64, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	e.report(store.CheckResult{Severity: store.SeverityOK, Check: check, Queue: queue, Count: n, Text: text})
}

// step has the writer execute f after all changes so far. It waits for a repair of the queue, which is "" for the store
// itself, except in the repair that parked the queue.
func (e *checker) step(queue string, parked bool, f func(t *tx) error) error {
	var failed error
	run := func(t *tx) {
		if failed = t.flush(); failed == nil {
			failed = f(t)
		}
	}
	var err error
	if parked {
		err = e.s.doParked(e.ctx, queue, run)
	} else {
		err = e.s.do(e.ctx, queue, urgent, run)
	}
	if err == nil { // else the writer may never leave it
		err = failed
	}
	return err
}

// inSnapshot has r read a snapshot during read. The writer calls prepare right before it takes the snapshot; see step.
func (e *checker) inSnapshot(r *reader, queue string, parked bool, prepare func(t *tx) error,
	read func() error) error {
	var snapshot *pebble.Snapshot
	err := e.step(queue, parked, func(t *tx) error {
		if err := prepare(t); err != nil {
			return err
		}
		snapshot = e.s.db.NewSnapshot()
		return nil
	})
	if err == nil {
		r.src = snapshot
		err = read()
	}
	if e.s.isStuck() || snapshot == nil {
		return err
	}
	return e.s.closeSnapshot(snapshot, err)
}

// checkNames checks, and repairs, what the store holds beside the contents of its queues. It returns the names of all
// queues by number, "" for a number without a name.
func (e *checker) checkNames() (map[uint32]string, error) {
	queues := map[uint32]string{}
	stray := map[string]string{} // keys that belong to nothing, with their values
	var all issues
	r := &reader{s: e.s}
	err := e.inSnapshot(r, "", false, func(*tx) error { return nil }, func() error {
		it, err := r.iterate(nil, nil)
		if err != nil {
			return err
		}
		for valid := it.First(); valid; {
			key, value := string(it.Key()), string(it.Value())
			name, isName := strings.CutPrefix(key, string(appendKey(nil, 0, kindName)))
			switch number, named := numberOf(key), numberOf(value); {
			case number != 0:
				queues[number] += "" // its name, which came first, or none
				valid = it.SeekGE(numberKey(number + 1))
				continue
			case isName && len(value) == 4 && named != 0 && queues[named] == "":
				queues[named] = name
			case isName:
				all.add("names", name)
				stray[key] = value
			case key != string(appendKey(nil, 0, kindStamp)) && !isRequest(key, value):
				all.add("keys", fmt.Sprintf("%x", key))
				stray[key] = value
			}
			valid = it.Next()
		}
		return r.end(it, nil)
	})
	if err == nil && len(stray) > 0 && e.repair {
		err = e.step("", false, func(t *tx) error { return t.removeStray(stray) })
	}
	if err != nil {
		return nil, err
	}
	if len(stray) == 0 {
		e.ok("names", "", int64(len(queues)), "queues: %d, each with a number of its own", len(queues))
	}
	all.report("", e.repair, e.report)
	return queues, nil
}

// numberOf returns the queue number at the beginning of a key or in the value of a name; 0 when there is none.
func numberOf(b string) uint32 {
	if len(b) < 4 || b[:4] == "\xff\xff\xff\xff" { // so that each queue's range of keys has an end
		return 0
	}
	return binary.BigEndian.Uint32([]byte(b))
}

// checkTables compares every block of tables with its checksum, and reports those that are damaged. It passes over a
// table that was merged into others meanwhile.
func (d *directory) checkTables(interrupted func() error, tables []string, report func(store.CheckResult)) error {
	damaged := false
	for _, name := range tables {
		if err := interrupted(); err != nil {
			return err
		}
		err := d.checkTable(name)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if isNoAccess(err) {
			return d.readError(err)
		}
		damaged = true
		report(store.CheckResult{Severity: store.SeverityError, Check: "tables", Count: 1,
			Text: fmt.Sprintf("%s is damaged: %v", name, err), Advice: d.recoverAdvice()})
	}
	if !damaged {
		report(store.CheckResult{Severity: store.SeverityOK, Check: "tables", Count: int64(len(tables)),
			Text: fmt.Sprintf("tables: %d; all blocks match their checksums", len(tables))})
	}
	return nil
}

func (d *directory) checkTable(name string) (err error) {
	defer recovered(&err)
	r, err := d.openTable(name)
	if err != nil {
		return err
	}
	return cmp.Or(r.ValidateBlockChecksums(), r.Close())
}

// recoverAdvice says what to do about a damaged file of a store that may be open.
func (d *directory) recoverAdvice() string {
	return fmt.Sprintf("stop the program and recover what can be read: later doctor --store %s --recover NEWDIR", d.url())
}

// recovered is deferred around calls of Pebble on damaged files, which may panic.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%v", r)
	}
}

// issues is what is wrong with a queue, or beside the queues.
type issues []*issue

type issue struct {
	check, text string
	n           int64
	examples    []string
}

// countedIssues are the checks whose issues are counted, with some examples.
var countedIssues = map[string]string{
	"names":      "names without a queue of their own",
	"keys":       "keys that belong to nothing",
	"leases":     "leases that cannot be read or do not match their messages",
	"unreadable": "messages that cannot be read, or whose record cannot be",
	"remembered": "remembered ids that would never be forgotten",
}

// maxExamples is how many ids an issue names.
const maxExamples = 3

// add counts an issue of a check in countedIssues.
func (all *issues) add(check, example string) {
	i := slices.IndexFunc(*all, func(i *issue) bool { return i.check == check })
	if i < 0 {
		i = len(*all)
		all.note(check, 0, countedIssues[check])
	}
	is := (*all)[i]
	is.n++
	is.examples = append(is.examples, strconv.Quote(example))[:min(is.n, maxExamples)]
}

// note adds n issues that a text describes.
func (all *issues) note(check string, n int64, text string) {
	*all = append(*all, &issue{check: check, text: text, n: n})
}

func (all issues) report(queue string, repaired bool, report func(store.CheckResult)) {
	for _, i := range all {
		f := store.CheckResult{Severity: store.SeverityError, Check: i.check, Queue: queue, Text: i.text, Count: i.n,
			Repaired: repaired}
		if i.examples != nil {
			f.Text = fmt.Sprintf("%s: %d (such as %s)", i.text, i.n, strings.Join(i.examples, ", "))
		}
		if !repaired {
			f.Advice = "repair it: later doctor --repair"
		}
		report(f)
	}
}
