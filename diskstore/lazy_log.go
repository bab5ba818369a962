package diskstore

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lazyLogs are the open logs of a store with SyncEvery. Pebble asks for an fsync of each group, because otherwise it
// keeps the group in memory, where it would end with the process. That fsync is only noted here, and made by sync.
type lazyLogs struct {
	mu   sync.Mutex
	open map[*lazyLog]struct{}
}

// add returns a log in place of f.
func (l *lazyLogs) add(f vfs.File) vfs.File {
	log := &lazyLog{File: f, logs: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*lazyLog]struct{}{}
	}
	l.open[log] = struct{}{}
	return log
}

// sync fsyncs everything that was written so far.
func (l *lazyLogs) sync() error {
	l.mu.Lock()
	open := make([]*lazyLog, 0, len(l.open))
	for log := range l.open {
		open = append(open, log)
	}
	l.mu.Unlock()
	var err error
	for _, log := range open {
		err = errors.Join(err, log.syncNow())
	}
	return err
}

// lazyLog is a log with fsyncs that are postponed until lazyLogs.sync, or until Pebble closes it.
type lazyLog struct {
	vfs.File
	logs   *lazyLogs
	dirty  atomic.Bool // an fsync is postponed
	mu     sync.Mutex  // held during an fsync and the close
	closed bool
}

// Sync implements vfs.File.
func (f *lazyLog) Sync() error {
	f.dirty.Store(true)
	return nil
}

// SyncData implements vfs.File.
func (f *lazyLog) SyncData() error { return f.Sync() }

func (f *lazyLog) syncNow() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || !f.dirty.Swap(false) { // before the fsync: writes during it wait for the next one
		return nil
	}
	return f.File.SyncData()
}

// Close implements vfs.File.
func (f *lazyLog) Close() error {
	err := f.syncNow()
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.logs.mu.Lock()
	delete(f.logs.open, f)
	f.logs.mu.Unlock()
	return errors.Join(err, f.File.Close())
}
