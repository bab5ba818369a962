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

	"github.com/laterq/later/store"
)

var _ store.Checker = (*Store)(nil)

// Check implements store.Checker. It checks each queue as it was at one moment, in a snapshot, while other calls go on.
// It repairs nothing, because a damaged store is better left as it is: Recover copies its messages to a new one.
func (s *Store) Check(ctx context.Context, _ store.CheckOptions, report func(store.CheckResult)) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Done()
	e := &checker{s, ctx, report}
	e.ok("format", "", 0, "%s is a store of format %s", s.dir, oneLine(formatText))
	var full error
	if err := s.do(ctx, "", urgent, func(t *tx) { full = t.checkRoom() }); err != nil {
		return err
	}
	if full != nil {
		report(store.CheckResult{Severity: store.SeverityWarning, Check: "room", Text: full.Error()})
	}
	report(s.reserve.report())
	report(s.checkMode())
	var used uint64
	var tables []string
	err := s.guarded(func() (err error) {
		used = s.db.Metrics().DiskSpaceUsage()
		tables, err = liveTables(s.db)
		return err
	})
	if err != nil {
		return s.unreadable(err)
	}
	e.ok("size", "", int64(used), "the files take %s", formatBytes(used))
	if err := s.checkTables(func() error { return s.interrupted(ctx) }, tables, report); err != nil {
		return err
	}
	return e.checkQueues()
}

// checker checks an open store.
type checker struct {
	s      *Store
	ctx    context.Context
	report func(store.CheckResult)
}

func (e *checker) ok(check, queue string, n int64, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	e.report(store.CheckResult{Severity: store.SeverityOK, Check: check, Queue: queue, Count: n, Text: text})
}

func (e *checker) checkQueues() error {
	n, err := read(e.ctx, e.s, "", nil, func(v *view) (*names, error) { return v.names() })
	if err != nil {
		return err
	}
	if n.stray == 0 {
		e.ok("names", "", int64(len(n.queues)), "queues: %d, each with a number of its own", len(n.queues))
	}
	n.issues.report("", e.s.recoverAdvice(), e.report)
	for _, number := range slices.Sorted(maps.Keys(n.queues)) {
		if err := e.checkQueue(n.queues[number], number); err != nil {
			return err
		}
	}
	return nil
}

// names are the keys of a store beside the contents of its queues.
type names struct {
	queues map[uint32]string // by number, "" for a number without a name
	signs  map[string]string // by name
	stray  int               // keys that belong to nothing
	issues
}

// names reads the names of all queues.
func (r *reader) names() (*names, error) {
	n := &names{queues: map[uint32]string{}, signs: map[string]string{}}
	it, err := r.iterate(nil, nil)
	if err != nil {
		return nil, err
	}
	for valid := it.First(); valid; {
		key, value := string(it.Key()), it.Value()
		if number := numberOf(key); number != 0 {
			n.queues[number] += "" // its name, which came first, or none
			valid = it.SeekGE(numberKey(number + 1))
			continue
		}
		_, kind, _ := splitKey(it.Key())
		rest := key[min(len(key), prefixLength):]
		switch named := numberOf(string(value)); {
		case kind == kindSign && isSign(rest, value):
			n.signs[rest] = string(value) // they come before the names
		case kind == kindName && len(value) == 4 && named != 0 && n.queues[named] == "" && n.signs[rest] == "":
			n.queues[named] = rest
		case kind == kindName:
			n.add("names", rest)
			n.stray++
		case kind == kindStamp && rest == "", kind == kindRequest && isRequest(rest, value):
		default:
			n.add("keys", fmt.Sprintf("%x", key))
			n.stray++
		}
		valid = it.Next()
	}
	return n, r.end(it, nil)
}

// numberOf returns the queue number at the beginning of a key or in the value of a name; 0 when there is none.
func numberOf(b string) uint32 {
	if len(b) < 4 || b[:4] == "\xff\xff\xff\xff" { // so that each queue's range of keys has an end
		return 0
	}
	return binary.BigEndian.Uint32([]byte(b))
}

// checkTables compares every block of tables with its checksum, and reports damaged tables. It passes over a table that
// has been merged into others since.
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

// recoverAdvice is the advice for damage in a store that may be open.
func (d *directory) recoverAdvice() string {
	return fmt.Sprintf("stop the program and recover all readable messages: later doctor --store %s --recover NEWDIR",
		d.url())
}

// recovered turns a panic into an error. It is deferred around calls of Pebble that may panic on damaged files.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%v", r)
	}
}

// issues are the mismatches of a queue, or of the store itself.
type issues []*issue

type issue struct {
	check, text string
	n           int64
	examples    []string
}

// countedIssues are the checks that count their issues and give some examples.
var countedIssues = map[string]string{
	"names":      "names without a queue of their own",
	"keys":       "keys that belong to nothing",
	"limits":     "limits of keys that cannot be read, or that are of a queue without turns",
	"holds":      "keys that are held by a message that does not exist, is leased, or is not as dead as the key says",
	"leases":     "leases that cannot be read or do not match their messages",
	"outbox":     "outboxes, and numbers of parcels that have arrived, that cannot be read",
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

// report reports the issues, with advice, or without as repaired.
func (all issues) report(queue, advice string, report func(store.CheckResult)) {
	for _, i := range all {
		r := store.CheckResult{Severity: store.SeverityError, Check: i.check, Queue: queue, Text: i.text, Count: i.n,
			Advice: advice, Repaired: advice == ""}
		if i.examples != nil {
			r.Text = fmt.Sprintf("%s: %d (such as %s)", i.text, i.n, strings.Join(i.examples, ", "))
		}
		report(r)
	}
}
