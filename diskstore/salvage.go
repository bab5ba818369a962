package diskstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/store"
)

// Salvage makes a new store in target, which must be missing or empty, of all that can still be read of the
// damaged one in dir, where nothing is changed. It calls report for each part of a file that is lost, with the
// messages next to it, for what did not fit together any more (see Store.Examine), and for what each queue has.
//
// It reads the tables and the logs by themselves, block by block and record by record, and goes on behind what is
// damaged; of several versions of a key the newest that can be read wins. So a message may come back that was
// acked, or in an older state, where the damage hit what said so; one that can be read is never lost. Where the
// list of files is damaged, all files are read, older ones too. It needs room for the new store, and memory for a
// block of each table and for the logs, some 100 MB.
//
// Errors: ErrInvalid for a target that cannot be one; ErrUnavailable when dir is open, or reading or writing fails;
// ErrUnsupported when dir is no store. Damage is no error. After an error, remove target.
func Salvage(ctx context.Context, dir, target string, report func(store.Finding)) error {
	return salvage(ctx, directory{dir, vfs.Default}, directory{target, vfs.Default}, report)
}

func salvage(ctx context.Context, from, to directory, report func(store.Finding)) error {
	if err := to.empty(from); err != nil {
		return err
	}
	release, err := from.hold()
	if err != nil {
		return err
	}
	defer release()
	r := &rescue{directory: from, report: report}
	if err := r.open(); err != nil {
		return errors.Join(err, r.close())
	}
	saved, err := r.save(ctx, to)
	if err := errors.Join(err, r.close()); err != nil {
		return err
	}
	r.tell(saved)
	return r.finish(ctx, to)
}

// empty refuses a directory in which no new store can be made.
func (d *directory) empty(from directory) error {
	inside := func(a, b string) bool {
		rel, err := filepath.Rel(a, b)
		return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
	}
	if inside(from.dir, d.dir) || inside(d.dir, from.dir) {
		return store.Invalid("the new directory %s and the damaged one %s are in each other: give one elsewhere", d.dir, from.dir)
	}
	names, err := d.fs.List(d.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return d.reading(err)
	case len(names) > 0:
		return store.Invalid("the new directory %s holds %s: give an empty one, or one that does not exist", d.dir, names[0])
	}
	return nil
}

// hold keeps others away from a store's directory, in which it changes nothing. One that cannot be written to
// needs no lock.
func (d *directory) hold() (release func() error, err error) {
	if _, err := d.fs.Stat(d.dir); err != nil {
		return nil, d.reading(err)
	}
	names, err := d.fs.List(d.dir)
	if err != nil {
		return nil, d.reading(err)
	}
	if !slices.Contains(names, formatFile) {
		return nil, fmt.Errorf("%w: %s has no file %s and is no store of Later", store.ErrUnsupported, d.dir, formatFile)
	}
	if !slices.Contains(names, lockFile) {
		return func() error { return nil }, nil // a copy that nobody has opened
	}
	lock, err := d.lock()
	switch {
	case err == nil:
		return lock.Close, nil
	case isHeld(err):
		holder, _ := d.readFile(holderFile)
		return nil, &HeldError{Dir: d.dir, Holder: strings.TrimSpace(holder)}
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return func() error { return nil }, nil
	}
	return nil, fmt.Errorf("%w: locking %s: %w", store.ErrUnavailable, d.dir, err)
}

// rescue reads what is left of a store.
type rescue struct {
	directory
	report func(store.Finding)
	tables []*tableFile
	list   []change // of the logs
	spans  []span
	names  map[uint32]string // of queues
	logs   map[string][]lostPart
}

// open opens all files that belong to the store, as far as that is known.
func (r *rescue) open() error {
	v, err := r.survey()
	if err != nil {
		return err
	}
	for _, f := range v.faults {
		r.report(faultFinding(f))
	}
	names, err := r.fs.List(r.dir)
	if err != nil {
		return r.reading(err)
	}
	slices.Sort(names)
	r.logs = map[string][]lostPart{}
	known := v.manifest != nil && v.manifest.damage == "" && !slices.ContainsFunc(v.faults, func(f fault) bool {
		return strings.HasPrefix(f.file, "MANIFEST-") || strings.HasPrefix(f.file, "marker.")
	})
	for _, name := range names {
		if number, ok := tableNumber(name); ok {
			if _, live := v.tables[number]; known && !live {
				continue
			}
			t, err := openTable(r.fs, r.dir, name)
			if err != nil {
				return r.reading(err)
			}
			r.tables = append(r.tables, t)
			r.spans = append(r.spans, t.spans...)
		}
		if number, ok := logNumber(name); ok && !(known && number < v.manifest.minLog) {
			changes, spans, lost, err := logChanges(r.fs, r.dir, name, number)
			if err != nil {
				return r.reading(err)
			}
			r.list, r.spans = append(r.list, changes...), append(r.spans, spans...)
			r.logs[name] = lost
		}
	}
	slices.SortFunc(r.list, func(a, b change) int { return a.before(&b) })
	return nil
}

func (r *rescue) close() (err error) {
	for _, t := range r.tables {
		err = errors.Join(err, t.close())
	}
	return err
}

// save writes all keys that have a value into a new store, and gives their number.
func (r *rescue) save(ctx context.Context, to directory) (keys int64, err error) {
	s, err := Open(to.dir, withFS(to.fs))
	if err != nil {
		return 0, err
	}
	sources := []source{&listSource{all: r.list}}
	for _, t := range r.tables {
		sources = append(sources, newTableSource(t))
	}
	r.names = map[uint32]string{}
	batch := s.db.NewBatch()
	flush := func(mode *pebble.WriteOptions) error {
		err := s.guarded(func() error { return s.db.Apply(batch, mode) })
		if err != nil {
			return fmt.Errorf("%w: writing to %s: %w", store.ErrUnavailable, to.dir, err)
		}
		batch = s.db.NewBatch()
		return nil
	}
	err = newMerge(sources, r.spans).each(ctx, func(key, value []byte) error {
		keys++
		if number, kind, ok := splitKey(key); ok && number == 0 && kind == kindName && len(value) == 4 {
			r.names[binary.BigEndian.Uint32(value)] = string(key[prefixLength:])
		}
		if err := batch.Set(key, value, nil); err != nil || batch.Len() < maxBatchSize {
			return err
		}
		return flush(pebble.NoSync)
	})
	if err == nil && !batch.Empty() {
		err = flush(pebble.Sync)
	}
	return keys, errors.Join(err, s.Close())
}

// tell reports what is lost.
func (r *rescue) tell(keys int64) {
	for _, t := range r.tables {
		for _, lost := range t.lost {
			r.report(r.lostFinding(t.name, lost))
		}
	}
	for name, parts := range r.logs {
		for _, lost := range parts {
			r.report(r.lostFinding(name, lost))
		}
	}
	r.report(store.Finding{Severity: store.SeverityOK, Check: "salvage", Count: keys,
		Text: fmt.Sprintf("keys saved: %d, from tables: %d, and logs: %d", keys, len(r.tables), len(r.logs))})
}

func (r *rescue) lostFinding(file string, lost lostPart) store.Finding {
	text := fmt.Sprintf("%s: %s at %v cannot be read", file, lost.what, lost.extent)
	if lost.at == lost.end {
		text = fmt.Sprintf("%s: %s cannot be read, so its blocks were looked for one by one", file, lost.what)
	}
	if lost.after != nil {
		text += "; it is behind " + r.describe(lost.after)
	}
	if lost.before != nil {
		text += "; it is before " + r.describe(lost.before)
	}
	return store.Finding{Severity: store.SeverityError, Check: "salvage", Text: text, Count: lost.end - lost.at}
}

// describe tells what a key is for.
func (r *rescue) describe(key []byte) string {
	number, kind, ok := splitKey(key)
	if !ok {
		return fmt.Sprintf("key %x", key)
	}
	if number == 0 {
		return fmt.Sprintf("the name of queue %q", key[prefixLength:])
	}
	queue := fmt.Sprintf("queue number %d", number)
	if name, ok := r.names[number]; ok {
		queue = fmt.Sprintf("queue %q", name)
	}
	what := map[byte]string{kindMessage: "message", kindRecord: "the record of message", kindDue: "the due time of message",
		kindDead: "the death of message", kindLease: "lease", kindRemembered: "the remembered id",
		kindForget: "the end of the remembered id"}[kind]
	switch kind {
	case kindDue, kindDead, kindForget:
		if e, err := parseEntry(key); err == nil {
			return fmt.Sprintf("%s %q of %s", what, e.id, queue)
		}
	case kindMeta:
		return "the counters of " + queue
	}
	return fmt.Sprintf("%s %q of %s", what, key[prefixLength:], queue)
}

// finish makes what was saved fit together, and tells what each queue has.
func (r *rescue) finish(ctx context.Context, to directory) error {
	s, err := Open(to.dir, withFS(to.fs))
	if err != nil {
		return err
	}
	err = s.Examine(ctx, store.Examination{Repair: true}, func(f store.Finding) {
		if f.Severity == store.SeverityWarning || f.Severity == store.SeverityError {
			r.report(f)
		}
	})
	for cursor, more := "", err == nil; more && err == nil; more = cursor != "" {
		var names []string
		if names, cursor, err = s.Queues(ctx, cursor); err == nil {
			err = r.tellQueues(ctx, s, names)
		}
	}
	return errors.Join(err, s.Close())
}

// tellQueues tells what queues of the new store have.
func (r *rescue) tellQueues(ctx context.Context, s *Store, names []string) error {
	for _, name := range names {
		stats, err := s.Stats(ctx, name)
		if err != nil {
			return err
		}
		n := stats.Scheduled + stats.Ready + stats.Leased + stats.Dead
		r.report(store.Finding{Severity: store.SeverityOK, Check: "salvage", Queue: name, Count: n,
			Text: fmt.Sprintf("messages saved: %d (%d scheduled, %d ready, %d leased, %d dead)",
				n, stats.Scheduled, stats.Ready, stats.Leased, stats.Dead)})
	}
	return nil
}
