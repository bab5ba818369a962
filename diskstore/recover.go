package diskstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/sstable/block/blockkind"
	"github.com/cockroachdb/pebble/v2/sstable/colblk"

	"github.com/laterq/later/store"
)

// Recover copies all that can still be read of the damaged store in dir, where it changes nothing, to a new store in
// target, which must be missing or empty. It calls report for each lost part of a file, for each change that it had to
// make, and for each queue.
//
// It reads tables block by block and logs record by record, and continues past the damage. In a damaged log, the rest
// of the same block of 32 KiB is lost too. A table is lost whole when its index or footer cannot be read. All writes
// that it finds are done again in their order. So a message may come back that was acked, or in an older state, where
// the damage hit the newer write; a readable message is never lost. When the manifest is damaged or a table is missing,
// all files are read, also old ones that were left over. Then the indexes and counters are derived from the messages:
//
//   - messages that were leased are due again, and the attempt is not counted;
//   - a message that cannot be read goes to dead as unreadable, with its bytes;
//   - a message with an unreadable record is due as it was sent, and its attempts are counted from 0 again;
//   - a queue with lost settings is paused;
//   - a queue with a lost name is called recovered-N;
//   - what was on its way to another sub-queue stays so, or is back in its queue if a part of it cannot be read.
//
// The new store is made in target+".recovering", with two copies of all that is read, and renamed when it is complete.
//
// Damage is not an error. Errors: ErrInvalid for an unsuitable target; ErrUnavailable when dir is open, as a HeldError,
// or reading or writing fails; ErrUnsupported when dir does not contain a store; the cause of ctx.
func Recover(ctx context.Context, dir, target string, report func(store.CheckResult)) error {
	return recoverStore(ctx, directory{dir, defaultFS}, directory{target, defaultFS}, report)
}

func recoverStore(ctx context.Context, from, to directory, report func(store.CheckResult)) error {
	if err := to.checkTarget(from.dir); err != nil {
		return err
	}
	return from.withFiles(report, func(files files) (err error) {
		partial := directory{to.dir + ".recovering", to.fs}
		if err := partial.removeAll(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, partial.removeAll()) }()
		made := directory{to.fs.PathJoin(partial.dir, "store"), to.fs}
		s, err := Open(made.dir, withFS(to.fs))
		if err != nil {
			return err
		}
		r := &recovery{directory: from, ctx: ctx, report: report, s: s}
		err = s.guarded(func() error { return r.copyFiles(files, partial) })
		if err == nil {
			err = s.Check(ctx, store.CheckOptions{}, func(f store.CheckResult) {
				if f.Severity == store.SeverityError || f.Check == "queue" {
					report(f)
				}
			})
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return err
		}
		return to.writeError(to.replace(&made))
	})
}

// recovery copies the readable messages of a damaged store to a new one.
type recovery struct {
	directory
	ctx    context.Context
	report func(store.CheckResult)
	s      *Store // the new one
	failed error  // a file cannot be reached, and may be intact, or writing failed
	// ordered has all writes of the damaged store in order, because each of its tables and logs may hold writes of any
	// time. Keys are the sequence number of a write and its key; values are its kind and its value. A write that is in
	// several files is there once.
	ordered *pebble.DB
	batch   *pebble.Batch
	leased  map[string]string // keys of the messages of a queue that were leased with a key and counted
	sent    map[string]int64  // the highest number of the parcels that have arrived, by where they came from
}

// copyFiles copies all that can be read of files. The writes are put in order in one database and done again in
// another. Logs come first: where a table that was left over has the same write merged with others, that counts.
func (r *recovery) copyFiles(files files, partial directory) error {
	var err error
	if r.ordered, err = r.scratch(partial, "writes"); err != nil {
		return err
	}
	defer r.ordered.Close()
	again, err := r.scratch(partial, "keys")
	if err != nil {
		return err
	}
	defer again.Close()
	r.batch = r.ordered.NewBatch()
	for i, log := range files.logs {
		r.readLog(log, files.mayBeTorn(i))
	}
	for _, name := range files.tables {
		r.part("table "+name, func() error { return r.readTable(name) })
	}
	if r.failed == nil {
		r.failed = r.apply(r.ordered, r.batch)
	}
	if r.failed != nil {
		return r.failed
	}
	n, err := r.replay(again)
	if err != nil {
		return err
	}
	r.report(store.CheckResult{Severity: store.SeverityOK, Check: "recover", Count: n,
		Text: fmt.Sprintf("writes recovered: %d, from %d tables and %d logs", n, len(files.tables), len(files.logs))})
	return r.copyQueues(&reader{s: r.s, src: again})
}

// scratch opens a database that is removed at the end.
func (r *recovery) scratch(partial directory, name string) (*pebble.DB, error) {
	db, err := pebble.Open(r.s.fs.PathJoin(partial.dir, name), &pebble.Options{FS: r.s.reserve, DisableWAL: true,
		FormatMajorVersion: pebbleFormat, MemTableSize: r.s.memTable, Merger: merger, Logger: pebbleLogger{r.s}})
	return db, r.s.writeError(err)
}

// part reads a part of a file, and reports it if that fails. It does nothing after the end of the context, which
// apply reports.
func (r *recovery) part(what string, read func() error) {
	if r.ctx.Err() != nil {
		return
	}
	err := func() (err error) {
		defer recovered(&err)
		return read()
	}()
	if err != nil {
		r.lost(what, err)
	}
}

// lost reports an unreadable part of a file.
func (r *recovery) lost(what string, err error) {
	if isNoAccess(err) {
		r.failed = r.readError(err)
		return
	}
	r.report(store.CheckResult{Severity: store.SeverityError, Check: "recover", Count: 1,
		Text: fmt.Sprintf("%s cannot be read: %v", what, err)})
}

// add puts a write in order, unless something has failed.
func (r *recovery) add(sequence uint64, kind pebble.InternalKeyKind, key, value []byte) {
	if r.failed != nil {
		return
	}
	key = append(binary.BigEndian.AppendUint64(nil, sequence), key...)
	r.failed = r.batch.Set(key, append([]byte{byte(kind)}, value...), nil)
	if r.failed == nil && r.batch.Len() >= maxGroupBytes {
		r.failed = r.apply(r.ordered, r.batch)
	}
}

// apply writes a batch and empties it.
func (r *recovery) apply(db *pebble.DB, batch *pebble.Batch) error {
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	defer batch.Reset()
	return r.s.writeError(db.Apply(batch, pebble.NoSync))
}

// replay does all writes again in another database, and returns their number.
func (r *recovery) replay(db *pebble.DB) (n int64, err error) {
	from := &reader{s: r.s, src: r.ordered}
	it, err := from.iterate(nil, nil)
	if err != nil {
		return 0, err
	}
	batch := db.NewBatch()
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		n++
		if err = replayOne(batch, it.Key()[8:], it.Value()); err == nil && batch.Len() >= maxGroupBytes {
			err = r.apply(db, batch)
		}
	}
	if err = from.end(it, err); err == nil {
		err = r.apply(db, batch)
	}
	return n, err
}

func replayOne(batch *pebble.Batch, key, value []byte) error {
	switch kind, value := pebble.InternalKeyKind(value[0]), value[1:]; kind {
	case pebble.InternalKeyKindSet, pebble.InternalKeyKindSetWithDelete:
		return batch.Set(key, value, nil)
	case pebble.InternalKeyKindMerge:
		return batch.Merge(key, value, nil)
	case pebble.InternalKeyKindRangeDelete:
		return batch.DeleteRange(key, value, nil)
	default:
		return batch.Delete(key, nil)
	}
}

// copyQueues copies the queues that a reader reads to the new store. Their messages and records are right, and
// everything else is derived from them. Leases and sessions are of processes that have ended.
func (r *recovery) copyQueues(from *reader) error {
	n, err := from.names()
	if err != nil {
		return err
	}
	if err := r.copySigns(n.signs); err != nil {
		return err
	}
	numbers := slices.Sorted(maps.Keys(n.queues))
	if err := r.findSent(from, numbers); err != nil {
		return err
	}
	used := slices.Collect(maps.Values(n.queues))
	for _, number := range numbers {
		name := n.queues[number]
		if name == "" {
			for name = recoveredName(number); slices.Contains(used, name); {
				name += "-again"
			}
			n.note("names", 1, fmt.Sprintf("the name of queue number %d is lost: it is called %s", number, name))
		}
		if err := r.copyQueue(from, name, number); err != nil {
			return err
		}
	}
	n.issues.report("", "", r.report)
	return nil
}

func recoveredName(number uint32) string { return fmt.Sprintf("recovered-%d", number) }

func (r *recovery) copyQueue(from *reader, name string, number uint32) error {
	r.leased = map[string]string{}
	var found issues
	m, lost := meta{Paused: true}, true // it may have been paused
	_, err := from.view(appendKey(nil, number, kindMeta), func(value []byte) error {
		if stored, bad := parseMeta(value); bad == nil {
			m, lost = stored, false
		}
		return nil
	})
	if err != nil {
		return err
	}
	if lost {
		found.note("counters", 1, "the settings of the queue are lost: it is paused")
	}
	it, err := from.iterate(numberKey(number), numberKey(number+1))
	if err != nil {
		return err
	}
	it.First()
	for begin := true; err == nil && (begin || it.Valid()); begin = false {
		var failed error
		err = r.s.do(r.ctx, name, inOrder, func(t *tx) {
			q, bad := t.create(name)
			if failed = cmp.Or(bad, t.checkRoom()); failed != nil {
				return
			}
			if begin {
				q.restore(meta{Paused: m.Paused, Retention: m.Retention, Dropped: m.Dropped, Swept: q.swept, Flow: m.Flow})
				t.touch(q)
				if sent := r.sent[name]; sent > 0 {
					t.putOutbox(q, &outbox{parcelHead: parcelHead{Number: sent}})
				}
			}
			for ; it.Valid() && failed == nil && t.batch.Len() < maxGroupBytes; it.Next() {
				failed = r.copyKey(t, q, from, &found, it.Key(), it.Value())
			}
		})
		err = cmp.Or(err, failed)
	}
	found.report(name, "", r.report)
	return from.end(it, err)
}

func (r *recovery) copyKey(t *tx, q *queue, from *reader, found *issues, key, value []byte) error {
	number, kind, _ := splitKey(key)
	id := string(key[min(prefixLength, len(key)):])
	switch kind {
	case kindMessage:
		p, err := from.parsePlace(number, id, value, t.now)
		if err != nil {
			return err
		}
		if p.damaged {
			found.add("unreadable", id)
		}
		p.record.rank, err = from.rankOf(number, entry{p.record.due, id})
		t.landMessage(q, id, value, p.group, &p.record)
		if key := r.leased[id]; key != "" && q.lanes != nil && p.record.deadReason == "" {
			q.lanes.order.Keep(t.micros, key, id)
		}
		return err
	case kindLease:
		r.noteLease(q, id, value)
	case kindKeyFlow, kindKeyState:
		failed, err := t.copyKeyState(q, from, kind, key, value)
		if failed != "" {
			found.add(failed, id)
		}
		return err
	case kindProperty, kindActivity, kindArrived:
		if isSound(kind, []byte(id), value) {
			t.set(appendIDKey(t.key[:0], q.number, kind, id), value)
		} else if kind == kindArrived {
			found.add("outbox", id)
		}
	case kindOutbox:
		return r.copyOutbox(t, q, found, value)
	case kindRemembered:
		if isRemembered([]byte(id), value) {
			t.value = append(t.value[:0], value...)
			t.rememberValue(q, id, readTime(value))
		}
	}
	return nil
}

// noteLease notes the messages of a lease that hold their keys when they are due again.
func (r *recovery) noteLease(q *queue, id string, value []byte) {
	l, err := parseLease(id, value)
	if err != nil || !q.countsKeys(l) {
		return
	}
	for _, m := range l.members {
		if m != nil && m.key != "" && !m.follows {
			r.leased[m.id] = m.key
		}
	}
}

// readTable reads all writes in a table, block by block.
func (r *recovery) readTable(name string) error {
	t, err := r.openTable(name)
	if err != nil {
		return err
	}
	defer t.Close()
	r.part(name+": its range deletions", func() error { return r.readRangeDeletions(t) })
	return eachBlock(t, func(h block.Handle, from, to []byte) {
		part := fmt.Sprintf("%s: the block at byte %d", name, h.Offset)
		r.part(part, func() error { return r.readWrites(t, h, from, to) })
	})
}

// eachBlock calls f for each data block of a table with the range [from, to) of the keys that are in it.
func eachBlock(t *sstable.Reader, f func(h block.Handle, from, to []byte)) error {
	layout, err := t.Layout()
	if err != nil {
		return err
	}
	var from []byte
	for _, h := range layout.Index {
		index, err := readBlock(t, h, blockkind.SSTableIndex)
		if err != nil {
			return err
		}
		var it colblk.IndexIter
		if err := it.Init(t.Comparer, index, block.NoTransforms); err != nil {
			return err
		}
		for valid := it.First(); valid; valid = it.Next() {
			data, err := it.BlockHandleWithProperties()
			if err != nil {
				return err
			}
			to := append(slices.Clone(it.Separator()), 0) // not before it is the last key of the block
			f(data.Handle, from, to)
			from = to
		}
	}
	return nil
}

// readBlock returns a block after comparing it with its checksum.
func readBlock(t *sstable.Reader, h block.Handle, kind block.Kind) ([]byte, error) {
	handle := objstorage.MakeNoopReadHandle(t.BlockReader().Readable())
	b, err := t.BlockReader().Read(context.Background(), block.NoReadEnv, &handle, h, kind,
		func(*block.Metadata, []byte) error { return nil })
	if err != nil {
		return nil, err
	}
	defer b.Release()
	return slices.Clone(b.BlockData()), nil
}

// readWrites reads the writes to the keys in [from, to), which are in a data block.
func (r *recovery) readWrites(t *sstable.Reader, h block.Handle, from, to []byte) error {
	if _, err := readBlock(t, h, blockkind.SSTableData); err != nil {
		return err
	}
	it, err := t.NewIter(sstable.NoTransforms, nil, to, sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	defer it.Close() // an error is of the next block, into which it looked
	var failed error
	for kv := it.SeekGE(from, 0); kv != nil; kv = it.Next() {
		value, _, err := kv.Value(nil) // which may be in yet another block
		if err != nil {
			failed = err
			continue
		}
		r.add(uint64(kv.SeqNum()), kv.Kind(), kv.K.UserKey, value)
	}
	return failed
}

func (r *recovery) readRangeDeletions(t *sstable.Reader) error {
	it, err := t.NewRawRangeDelIter(context.Background(), sstable.NoFragmentTransforms, sstable.NoReadEnv)
	if it == nil || err != nil {
		return err
	}
	defer it.Close()
	span, err := it.First()
	for ; span != nil && err == nil; span, err = it.Next() {
		for _, key := range span.Keys {
			r.add(uint64(key.SeqNum()), pebble.InternalKeyKindRangeDelete, span.Start, span.End)
		}
	}
	return err
}

// readLog reads all batches of a log. Its end may be torn where a crash left it.
func (r *recovery) readLog(name string, mayBeTorn bool) {
	lost, err := r.directory.readLog(name, func(at int64, batch []byte) {
		r.part(fmt.Sprintf("%s: the record at byte %d", name, at), func() error { return r.readBatch(batch) })
	})
	if err != nil {
		r.lost("log "+name, err)
	}
	for _, p := range lost {
		if !(mayBeTorn && p.torn) {
			r.lost(fmt.Sprintf("%s: from byte %d to %d", name, p.from, p.to), p.cause)
		}
	}
}

// readBatch reads the writes in a batch, which have consecutive sequence numbers.
func (r *recovery) readBatch(b []byte) error {
	header, ok := batchrepr.ReadHeader(b)
	if !ok {
		return corrupt("it has %d bytes", len(b))
	}
	sequence := uint64(header.SeqNum)
	for entries := batchrepr.Read(b); ; {
		kind, key, value, ok, err := entries.Next()
		if !ok {
			return err
		}
		if kind != pebble.InternalKeyKindLogData {
			r.add(sequence, kind, key, value)
			sequence++
		}
	}
}
