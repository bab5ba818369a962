package diskstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/laterq/later/internal/activity"
	"github.com/laterq/later/internal/remote"
	"github.com/laterq/later/store"
)

// Store is an engine in a directory. It implements store.Store.
type Store struct {
	directory
	clock     Clock
	logger    *slog.Logger
	syncEvery time.Duration
	inFlight  int64            // see MaxInFlight
	locked    func(dir string) // called when the directory is locked; may be nil
	memTable  uint64           // 0 to choose one that fits the disk

	reserveSize int64
	reserve     *reserve

	db    *pebble.DB
	owned *ownership

	mu      sync.Mutex
	closing bool
	backlog *backlog
	writing chan *group    // from the writer to the acknowledger
	calls   sync.WaitGroup // calls under way
	loops   sync.WaitGroup
	closes  sync.Once
	closed  chan struct{} // closed when Close begins
	guards  sync.WaitGroup
	// end ends everything but the watchers, and gives up the directory, so that another process can open it. It is called
	// when the store stops, too; a second call waits for the first.
	end     func() error
	log     atomic.Pointer[lazyLog] // that is written, with syncEvery
	written *written

	failing sync.Once
	failed  chan struct{} // closed when the store stopped for good
	failure error         // set before
	stuck   chan struct{} // closed when Pebble must not be called any more
	giveUp  func()        // closes it

	waitMu    sync.Mutex
	notifiers map[string]*notifier // by queue
	waiters   atomic.Int64         // in line; grows in the writer only

	hub activity.Hub // of watchers

	backups chan struct{} // has a token while a Backup is made

	steps atomic.Int64 // that scans of indexes took, for tests

	// The fields below belong to the writer.
	queues        map[string]*queue
	signs         map[string]string // by the name at which they stand; see subqueue.go
	lastNumber    uint32
	numbersReused bool  // the numbers of queues came to their end once
	lastNow       int64 // the engine's clock at the last call
	lastMicros    int64 // the same in microseconds
	requests      requestMemory
	corrected     []touchedLease // by load
	room          room
}

// Option changes a Store that Open returns.
type Option func(*Store)

// WithClock makes the store live by c. The default, also for nil, is the machine's clock.
func WithClock(c Clock) Option {
	return func(s *Store) {
		if c != nil {
			s.clock = c
		}
	}
}

// WithLogger makes the store log to l. The default, also for nil, is to be silent.
func WithLogger(l *slog.Logger) Option {
	return func(s *Store) {
		if l != nil {
			s.logger = l
		}
	}
}

// SyncEvery lets calls return when their changes are written, and fsyncs every d instead of before every reply. The end
// of the process undoes nothing. When the power fails, up to about the last d of acknowledged calls is undone, always
// the latest ones: sends are lost, acked messages come again. 0 is the default, an fsync before every reply; else d is
// a millisecond or more.
func SyncEvery(d time.Duration) Option { return func(s *Store) { s.syncEvery = d } }

// MaxInFlight limits the memory that large calls of other processes take in this one, while it has a shared directory
// open. A call that does not fit waits; settles and extends have a quarter of the limit for themselves. The default is
// 256 MiB, and less than 64 MiB is as much as that.
func MaxInFlight(bytes int64) Option { return func(s *Store) { s.inFlight = bytes } }

// whenLocked has Open call f when it has locked the directory, before it reads the store.
func whenLocked(f func(dir string)) Option { return func(s *Store) { s.locked = f } }

// withFS puts the files elsewhere, for tests.
func withFS(fs vfs.FS) Option { return func(s *Store) { s.fs = fs } }

// withReserve changes how much room is kept for a full disk, for tests.
func withReserve(size int64) Option { return func(s *Store) { s.reserveSize = size } }

// withMemTable changes how much is kept in memory and in one log before it goes to a table, for tests.
func withMemTable(size uint64) Option { return func(s *Store) { s.memTable = size } }

// minSyncEvery keeps the loop that syncs from taking a whole core.
const minSyncEvery = time.Millisecond

const cacheSize = 64 << 20

// Open opens the store in a directory, and creates it if the directory is missing or empty. One process has it open at
// a time; to share it with other processes, open its URL with later.Open. Errors: ErrUnavailable when another has it,
// as a HeldError; ErrUnsupported when the directory holds something else or a later format; ErrCorrupt when a file is
// damaged. After a crash, the torn end of the log is cut; nothing that was acknowledged is in it.
func Open(dir string, opts ...Option) (*Store, error) {
	s := &Store{
		directory: directory{dir, defaultFS}, clock: systemClock{}, logger: slog.New(slog.DiscardHandler),
		reserveSize: -1,
		inFlight:    remote.DefaultInFlight,
		backlog:     newBacklog(),
		writing:     make(chan *group, maxUnsynced),
		written:     newWritten(),
		closed:      make(chan struct{}),
		backups:     make(chan struct{}, 1),
		failed:      make(chan struct{}),
		stuck:       make(chan struct{}),
		queues:      map[string]*queue{},
		signs:       map[string]string{},
		notifiers:   map[string]*notifier{},
	}
	for i, opt := range opts {
		if opt == nil {
			return nil, store.Invalid("option %d is nil: leave it out", i)
		}
		opt(s)
	}
	if s.reserveSize < 0 {
		if s.reserveSize = 0; s.fs == defaultFS {
			s.reserveSize = maxReserve
		}
	}
	if s.syncEvery < 0 || s.syncEvery > 0 && s.syncEvery < minSyncEvery {
		return nil, store.Invalid("sync every %v: must be 0 (before every reply) or at least %v", s.syncEvery,
			minSyncEvery)
	}
	s.end, s.giveUp = sync.OnceValue(s.endAll), sync.OnceFunc(func() { close(s.stuck) })
	s.reserve = newReserve(s)
	if err := s.open(); err != nil {
		s.reserve.end()
		s.loops.Wait()
		return nil, err
	}
	s.reserve.begin()
	s.loops.Go(s.write)
	s.loops.Go(s.acknowledge)
	if s.syncEvery > 0 {
		s.loops.Go(s.sync)
	}
	s.guards.Go(s.guard)
	return s, nil
}

func (s *Store) open() error {
	isNew, wasClosed, err := s.claimDirectory()
	if err != nil {
		return err
	}
	if !isNew {
		if err := s.checkRecords(wasClosed); err != nil {
			return errors.Join(err, s.releaseDirectory(wasClosed)) // nothing was changed
		}
	}
	if err := s.openLogged(isNew, wasClosed); err != nil {
		return errors.Join(err, s.releaseDirectory(false))
	}
	return nil
}

// openLogged opens the database and sees to it that relaxedFile exists while the log may be torn.
func (s *Store) openLogged(isNew, wasClosed bool) error {
	if !isNew && !wasClosed {
		if err := s.reserve.try(func() error { return s.cutTornLog(s.logger) }); err != nil {
			return err
		}
	}
	if s.syncEvery > 0 {
		if err := s.reserve.try(func() error { return s.setRelaxed(true) }); err != nil {
			return err
		}
	}
	if err := s.openDatabase(isNew); err != nil || s.syncEvery > 0 {
		return err
	}
	if err := s.setRelaxed(false); err != nil { // earlier logs are in tables now
		return errors.Join(err, s.guarded(s.db.Close))
	}
	return nil
}

func (s *Store) openDatabase(isNew bool) error {
	open := func() (err error) {
		s.db, err = pebble.Open(s.dir, s.options(isNew))
		return err
	}
	err := s.guarded(open)
	if err == nil && isNew {
		// Pebble creates the first log before it raises the format, so that log could not record its syncs.
		if err = s.guarded(s.db.Close); err == nil {
			err = s.guarded(open)
		}
	}
	if err != nil {
		return s.openError(err)
	}
	if isNew {
		err = s.writeError(s.writeFile(formatFile, formatText)) // it is complete
	} else {
		err = s.load()
	}
	if err != nil {
		return errors.Join(err, s.guarded(s.db.Close))
	}
	return nil
}

func (s *Store) options(isNew bool) *pebble.Options {
	if s.memTable == 0 {
		s.memTable = s.fittingMemTable()
	}
	o := &pebble.Options{
		FS:                    s.reserve,
		Lock:                  s.owned.lock,
		ErrorIfNotExists:      !isNew,
		FormatMajorVersion:    pebbleFormat,
		CacheSize:             cacheSize,
		MemTableSize:          s.memTable,
		Merger:                merger,
		L0StopWritesThreshold: stopSublevels,
		Logger:                pebbleLogger{s},
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) { s.logger.Error("later: store in trouble", "dir", s.dir, "cause", err) },
			WriteStallBegin: func(pebble.WriteStallBeginInfo) { s.reserve.setStalled(true) },
			WriteStallEnd:   func() { s.reserve.setStalled(false) },
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				s.logger.Error("later: damaged file", "dir", s.dir, "file", info.Path, "cause", info.Details)
			},
		},
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // bits a key: 1 in 100 absent ids is looked for
	}
	return o
}

// enter begins a call.
func (s *Store) enter(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return store.ErrClosed
	case s.hasFailed():
		return s.failure
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case s.reserve.isWaiting():
		return s.fullError()
	}
	s.calls.Add(1)
	return nil
}

// Close waits for the calls under way, ends every Wait and Watcher with ErrClosed, and closes the directory. A second
// call waits for the first.
func (s *Store) Close() (err error) {
	s.closes.Do(func() {
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		close(s.closed)
		s.guards.Wait()
		err = s.end()
	})
	return err
}

func (s *Store) endAll() error {
	s.mu.Lock()
	failed := s.hasFailed() // or is closing: no call begins any more
	s.mu.Unlock()
	s.reserve.end()
	if failed {
		s.reserve.fence.raise()
	}
	idle := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(s.backlog.wake)
		close(idle)
	}()
	select {
	case <-idle:
	case <-s.stuck: // one of them may be in Pebble for good
	}
	err := s.guarded(func() error {
		s.loops.Wait()
		s.storeActivity()
		return s.db.Close()
	})
	inOrder := err == nil && !s.hasFailed()
	if s.hasFailed() {
		err = nil // every call was told
	}
	return errors.Join(err, s.releaseDirectory(inOrder))
}

func init() {
	store.Register("file", open)
}

// open opens the store of file:///absolute/directory or file:relative/directory. Parameters are sync=always (the
// default) or a duration such as sync=100ms, see SyncEvery, share=yes (the default, except where processes cannot share
// a directory) or share=no, and inflight=256MiB (the default), see MaxInFlight.
func open(ctx context.Context, text string, cfg store.OpenConfig) (store.Store, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	opts := []Option{WithLogger(cfg.Logger), SyncEvery(u.every), MaxInFlight(u.inFlight)}
	if !u.share {
		return Open(u.dir, opts...)
	}
	return openShared(ctx, u.dir, cfg.Logger, opts...)
}

// storeURL is a URL that was read.
type storeURL struct {
	dir      string
	every    time.Duration
	share    bool
	inFlight int64 // bytes
}

const knownParameters = "known are sync=always or sync=100ms, share=no, and inflight=256MiB"

func parseURL(text string) (parsed storeURL, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return parsed, store.Invalid("store URL cannot be read: an example that can is file:///var/lib/later")
	}
	path := u.Path
	if u.Opaque != "" { // file:relative/directory
		if path, err = url.PathUnescape(u.Opaque); err != nil {
			return parsed, store.Invalid("store URL cannot be read: a %% must be written as %%25")
		}
	}
	dir := filepath.FromSlash(path)
	if drive := strings.TrimPrefix(dir, `\`); filepath.VolumeName(drive) != "" { // Windows: file:///C:/later
		dir = drive
	}
	if u.Host != "" || u.User != nil || u.Fragment != "" || dir == "" {
		return parsed, store.Invalid("store URL %s names no directory: give file:///DIRECTORY, with three slashes, or "+
			"file:DIRECTORY for one in the working directory", store.RedactURL(text))
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return parsed, fmt.Errorf("directory of the store URL %s: %w", store.RedactURL(text), err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return parsed, store.Invalid("store URL has parameters that cannot be read: %s", knownParameters)
	}
	parsed = storeURL{dir: filepath.Clean(dir), share: sharable,
		inFlight: remote.DefaultInFlight}
	for name, values := range query {
		if len(values) > 1 {
			return parsed, store.Invalid("store URL gives %s twice: give it once", name)
		}
		if err := parsed.set(name, values[0]); err != nil {
			return parsed, err
		}
	}
	return parsed, nil
}

const mebibytes = "MiB"

// set sets a parameter.
func (u *storeURL) set(name, value string) (err error) {
	switch {
	case name == "share" && value == "no":
		u.share = false
	case name == "share" && value == "yes":
		if !sharable {
			return fmt.Errorf("%w: processes on %s cannot share an embedded store: leave out share=yes",
				store.ErrUnsupported, runtime.GOOS)
		}
	case name == "share":
		return store.Invalid("store URL has share=%s: must be yes or no", value)
	case name == "inflight":
		n, err := strconv.ParseInt(strings.TrimSuffix(value, mebibytes), 10, 32)
		if u.inFlight = n << 20; err != nil || !strings.HasSuffix(value, mebibytes) || u.inFlight < remote.MinInFlight {
			return store.Invalid("store URL has inflight=%s: must be a number of mebibytes such as 256MiB, %d at least",
				value, remote.MinInFlight>>20)
		}
	case name == "sync" && value == "always":
	case name == "sync":
		if u.every, err = time.ParseDuration(value); err != nil || u.every < minSyncEvery {
			return store.Invalid("store URL has sync=%s: must be always or a duration such as 100ms, %v at least",
				value, minSyncEvery)
		}
	default:
		return store.Invalid("store URL has the unknown parameter %q: %s", name, knownParameters)
	}
	return nil
}
