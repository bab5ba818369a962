package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// startLimit limits how long a database server may take to start.
const startLimit = 2 * time.Minute

// kind is a kind of database that the tests run with.
type kind struct {
	name    string
	dialect Dialect
	driver  string
	server  *server // nil for SQLite
}

// server is a database server of this test binary. It serves on a Unix socket in its own directory only, so it needs no
// port and does not meet a server that is already running.
type server struct {
	name    string
	user    string // which the server runs as if this process is root, because servers refuse to be root
	program string
	setup   func(dir string) *exec.Cmd
	run     func(s *server) *exec.Cmd
	crash   syscall.Signal
	driver  string
	dsn     func(dir, database string) string
	first   string // a database that always exists

	once   sync.Once
	err    error
	dir    string
	cmd    *exec.Cmd
	exited chan struct{}
}

var postgres = &server{
	name: "PostgreSQL", user: "postgres", program: findProgram("initdb"), crash: syscall.SIGQUIT,
	setup: func(dir string) *exec.Cmd {
		return exec.Command(findProgram("initdb"), "-D", dir+"/data", "-A", "trust", "-U", "postgres", "--no-sync",
			"-E", "UTF8")
	},
	run: func(s *server) *exec.Cmd {
		return exec.Command(findProgram("postgres"), "-D", s.dir+"/data", "-k", s.dir, "-c", "listen_addresses=")
	},
	driver: "pgx", first: "postgres",
	dsn: func(dir, database string) string {
		return fmt.Sprintf("host=%s user=postgres dbname=%s", dir, database)
	},
}

var mariadb = &server{
	name: "MariaDB", user: "mysql", program: findProgram("mariadb-install-db"), crash: syscall.SIGKILL,
	setup: func(dir string) *exec.Cmd {
		return exec.Command(findProgram("mariadb-install-db"), "--no-defaults", "--datadir="+dir+"/data",
			"--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=16M")
	},
	run: func(s *server) *exec.Cmd {
		return exec.Command(findProgram("mariadbd"), "--no-defaults", "--datadir="+s.dir+"/data", "--socket="+s.dir+"/socket",
			"--pid-file="+s.dir+"/pid", "--skip-networking", "--innodb-log-file-size=16M")
	},
	driver: "mysql", first: "mysql",
	dsn: func(dir, database string) string { return fmt.Sprintf("root@unix(%s/socket)/%s", dir, database) },
}

var kinds = []*kind{
	{"PostgreSQL", PostgreSQL, "pgx", postgres},
	{"MariaDB", MySQL, "mysql", mariadb},
	{"SQLite", SQLite, "sqlite", nil},
}

// findProgram returns the path of a program of a database server, or "" if it is not installed.
func findProgram(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/" + name, "/usr/sbin/" + name} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}

// need starts the server on first use. It skips the test if the server is not installed, except in CI.
func (s *server) need(t testing.TB) {
	t.Helper()
	if s.program == "" && os.Getenv("CI") == "" {
		t.Skipf("%s is not installed; internal/tools/setup.sh modules installs it where apt-get can", s.name)
	}
	s.once.Do(func() { s.err = s.create() })
	if s.err != nil {
		t.Fatal(s.err)
	}
}

func (s *server) create() (err error) {
	if s.program == "" {
		return fmt.Errorf("%s is not installed, and CI needs it: internal/tools/setup.sh modules installs it", s.name)
	}
	// The path of a Unix socket is limited to about 100 bytes, and the user of the server has to reach it.
	if s.dir, err = os.MkdirTemp("/tmp", "later-outbox-"); err != nil {
		return err
	}
	if err := giveTo(s.dir, s.user); err != nil {
		return err
	}
	setup := s.setup(s.dir)
	setup.Dir = s.dir
	if err := runAs(setup, s.user); err != nil {
		return err
	}
	if out, err := setup.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", setup, err, out)
	}
	return s.start()
}

// start starts the server and returns when it serves.
func (s *server) start() error {
	s.cmd = s.run(s)
	s.cmd.Dir = s.dir
	log, err := os.OpenFile(s.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := runAs(s.cmd, s.user); err != nil {
		return err
	}
	exited, started := make(chan struct{}), make(chan error, 1)
	s.exited = exited
	go func() {
		// Linux kills the server when the thread that started it exits, so keep that thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(exited)
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.cmd.Wait() // most servers are killed, so the status does not matter
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	db, err := sql.Open(s.driver, s.dsn(s.dir, s.first))
	if err != nil {
		return err
	}
	defer db.Close()
	return s.awaitService(db)
}

func (s *server) awaitService(db *sql.DB) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.exited:
			log, _ := os.ReadFile(s.dir + "/log")
			return fmt.Errorf("%s exited: %w\n%s", s.cmd, err, log)
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve within %v: %w", s.name, startLimit, err)
		}
	}
}

// restart kills the server, as in a crash, calls while it is down, and starts it again.
func (s *server) restart(t *testing.T, down func()) {
	t.Helper()
	s.end()
	down()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// end kills the server and returns when it has exited.
func (s *server) end() {
	if s.exited == nil {
		return
	}
	s.cmd.Process.Signal(s.crash)
	select {
	case <-s.exited:
	case <-time.After(startLimit):
		s.cmd.Process.Kill()
		<-s.exited
	}
	s.exited = nil
}

// remove ends the server and removes its directory.
func (s *server) remove() {
	s.end()
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

var databaseNumber atomic.Int64

// newDSN returns the data source name of an empty database of the kind.
func (k *kind) newDSN(t testing.TB) string {
	t.Helper()
	if k.server == nil {
		dsn := "file:" + filepath.Join(t.TempDir(), "db") + "?_pragma=busy_timeout(30000)"
		// The file keeps this mode. Connections that race to set it do not wait for each other: SQLite refuses one.
		if _, err := k.open(t, dsn).ExecContext(t.Context(), "PRAGMA journal_mode = WAL"); err != nil {
			t.Fatal(err)
		}
		return dsn
	}
	k.server.need(t)
	admin, err := sql.Open(k.driver, k.server.dsn(k.server.dir, k.server.first))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	name := fmt.Sprintf("test%d", databaseNumber.Add(1))
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return k.server.dsn(k.server.dir, name)
}

func (k *kind) open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(k.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// newBox returns an empty outbox in a database of its own.
func (k *kind) newBox(t testing.TB, opts ...Option) (*Outbox, *sql.DB) {
	t.Helper()
	db, box := k.open(t, k.newDSN(t)), New(k.dialect, opts...)
	if err := box.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return box, db
}

// eachKind runs a test with each database.
func eachKind(t *testing.T, f func(t *testing.T, k *kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { f(t, k) })
	}
}

// TestServersAreAsInstalled logs the versions of the tested databases.
func TestServersAreAsInstalled(t *testing.T) {
	eachKind(t, func(t *testing.T, k *kind) {
		db, query := k.open(t, k.newDSN(t)), "SELECT version()"
		if k.dialect == SQLite {
			query = "SELECT sqlite_version()"
		}
		var version string
		if err := db.QueryRowContext(t.Context(), query).Scan(&version); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(`\d+\.\d+`).MatchString(version) {
			t.Errorf("version is %q", version)
		}
		t.Log(k.name, strings.SplitN(version, "(", 2)[0])
	})
}
