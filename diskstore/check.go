package diskstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

var _ store.Examiner = (*Store)(nil)

// Examine implements store.Examiner. It checks each queue as it was at one moment, in a snapshot, while other calls go
// on. With Repair it rebuilds each queue that has an issue; see repair.go. Calls on that queue wait meanwhile, and
// calls on other queues go on. One Examine with Repair runs at a time; another returns ErrUnavailable.
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
func (s *Store) Examine(ctx context.Context, opts store.Examination, report func(store.Finding)) error {
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
	e := &examiner{s, ctx, opts.Repair, func(f store.Finding) {
		mu.Lock()
		defer mu.Unlock()
		if !returned { // Pebble may give up, and leave this goroutine behind
			report(f)
		}
	}}
	err := s.guarded(func() error {
		if err := e.checkFiles(); err != nil {
			return err
		}
		return e.checkQueues()
	})
	mu.Lock()
	defer mu.Unlock()
	returned = true
	return err
}

// examiner checks an open store.
type examiner struct {
	s      *Store
	ctx    context.Context
	repair bool
	report func(store.Finding)
}

func (e *examiner) checkFiles() error {
	ok := func(check string, n int64, text string) {
		e.report(store.Finding{Severity: store.SeverityOK, Check: check, Count: n, Text: text})
	}
	ok("format", 0, e.s.dir+" is a store of format "+oneLine(formatText))
	used := e.s.db.Metrics().DiskSpaceUsage()
	e.report(e.s.roomFinding(used))
	e.report(e.s.reserve.finding())
	ok("size", int64(used), "the files take "+formatBytes(used))
	tables, err := liveTables(e.s.db)
	if err != nil {
		return e.s.unreadable(err)
	}
	return e.s.checkTables(func() error { return e.s.interrupted(e.ctx) }, tables, e.report)
}

// checkQueues checks the names of the queues, and each queue by itself.
func (e *examiner) checkQueues() error {
	snapshot, err := e.snapshot("")
	if err != nil {
		return err
	}
	d, err := e.readNames(snapshot)
	if err = e.s.closeSnapshot(snapshot, err); err != nil {
		return err
	}
	if err := e.checkNames(d); err != nil {
		return err
	}
	for _, number := range slices.Sorted(maps.Keys(d.names)) {
		if err := e.checkQueue(d.names[number], number); err != nil {
			return err
		}
	}
	return nil
}

// snapshot returns a snapshot that is between two calls on a queue. It waits for a repair of the queue.
func (e *examiner) snapshot(name string) (snapshot *pebble.Snapshot, err error) {
	var failed error
	err = e.s.do(e.ctx, name, urgent, func(t *tx) {
		if failed = t.flush(); failed == nil {
			snapshot = e.s.db.NewSnapshot()
		}
	})
	if err == nil {
		return snapshot, failed
	}
	if snapshot != nil && !e.s.isStuck() { // else the writer may never leave it
		err = e.s.closeSnapshot(snapshot, err)
	}
	return nil, err
}

// names is what a store holds beside the contents of its queues.
type names struct {
	names    map[uint32]string // of queues by number; "" for a number without a name
	badNames []string          // without a number of their own
	unknown  [][]byte          // keys that belong to nothing
}

// maxUnknown is how many unknown keys beside the queues one repair removes.
const maxUnknown = 10_000

func (e *examiner) readNames(snapshot *pebble.Snapshot) (names, error) {
	n := names{names: map[uint32]string{}}
	r := &reader{s: e.s, src: snapshot}
	it, err := r.iterate(nil, nil)
	if err != nil {
		return n, err
	}
	for valid := it.First(); valid; {
		key := it.Key()
		number, kind, ok := splitKey(key)
		switch {
		case len(key) >= 4 && binary.BigEndian.Uint32(key) != 0 && binary.BigEndian.Uint32(key) != math.MaxUint32:
			number = binary.BigEndian.Uint32(key)
			if _, named := n.names[number]; !named {
				n.names[number] = ""
			}
			valid = it.SeekGE(numberKey(number + 1))
			continue
		case ok && number == 0 && kind == kindName:
			n.add(string(key[prefixLength:]), it.Value())
		case ok && number == 0 && kind == kindStamp && len(key) == prefixLength:
		case len(n.unknown) < maxUnknown:
			n.unknown = append(n.unknown, slices.Clone(key))
		}
		valid = it.Next()
	}
	return n, r.end(it, nil)
}

func (n *names) add(name string, value []byte) {
	number := nameNumber(value)
	if number == 0 || number == math.MaxUint32 || n.names[number] != "" {
		n.badNames = append(n.badNames, name)
		return
	}
	n.names[number] = name
}

// nameNumber returns the queue number that is stored for a name; 0 when there is none.
func nameNumber(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

// checkNames reports, and repairs, what is wrong beside the contents of the queues.
func (e *examiner) checkNames(n names) error {
	if len(n.badNames) == 0 && len(n.unknown) == 0 {
		e.report(store.Finding{Severity: store.SeverityOK, Check: "names", Count: int64(len(n.names)),
			Text: fmt.Sprintf("queues: %d, each with a number of its own", len(n.names))})
		return nil
	}
	var all issues
	for _, name := range n.badNames {
		all.add(issueName, name)
	}
	for _, key := range n.unknown {
		all.add(issueKey, fmt.Sprintf("%x", key))
	}
	if e.repair {
		if err := e.step(func(t *tx) error { return t.removeNames(n) }); err != nil {
			return err
		}
	}
	all.report("", e.repair, e.report)
	return nil
}

// step has the writer execute a step of a repair beside the contents of the queues.
func (e *examiner) step(f func(t *tx) error) error {
	var failed error
	err := e.s.do(e.ctx, "", urgent, func(t *tx) {
		if failed = t.flush(); failed == nil {
			failed = f(t)
		}
	})
	if err == nil { // else the writer may never leave it
		err = failed
	}
	return err
}

// checkTables compares every block of tables with its checksum, and reports those that are damaged. It passes over a
// table that was merged into others meanwhile.
func (d *directory) checkTables(interrupted func() error, tables []string, report func(store.Finding)) error {
	damaged := false
	for _, name := range tables {
		if err := interrupted(); err != nil {
			return err
		}
		err := d.checkTable(name)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		damaged = true
		report(store.Finding{Severity: store.SeverityError, Check: "tables", Count: 1,
			Text: fmt.Sprintf("%s is damaged: %v", name, err), Advice: d.recoverAdvice()})
	}
	if !damaged {
		report(store.Finding{Severity: store.SeverityOK, Check: "tables", Count: int64(len(tables)),
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

// issue is one kind of thing that is wrong.
type issue struct{ check, text string }

// issues counts what is wrong, with some examples.
type issues []*issueCount

type issueCount struct {
	issue
	n        int64
	examples []string
}

// maxExamples is how many ids a finding names.
const maxExamples = 3

func (all *issues) add(what issue, example string) {
	i := slices.IndexFunc(*all, func(c *issueCount) bool { return c.issue == what })
	if i < 0 {
		i = len(*all)
		*all = append(*all, &issueCount{issue: what})
	}
	c := (*all)[i]
	if c.n++; len(c.examples) < maxExamples {
		c.examples = append(c.examples, strconv.Quote(example))
	}
}

// note adds what a text of its own describes.
func (all *issues) note(check string, n int64, text string) {
	*all = append(*all, &issueCount{issue: issue{check, text}, n: n})
}

// report reports each kind of issue.
func (all issues) report(queue string, repaired bool, report func(store.Finding)) {
	for _, c := range all {
		f := store.Finding{Severity: store.SeverityError, Check: c.check, Queue: queue, Count: c.n, Repaired: repaired}
		f.Text = c.text
		if len(c.examples) > 0 {
			examples := strings.Join(c.examples, ", ")
			if c.n > maxExamples {
				examples += ", …"
			}
			f.Text = fmt.Sprintf("%s: %d (%s)", c.text, c.n, examples)
		}
		if !repaired {
			f.Advice = "repair it: later doctor --repair"
		}
		report(f)
	}
}
