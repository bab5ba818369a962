package redistest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Server is one running redis-server. Its methods are not to be called concurrently, but for Addr and URL.
type Server struct {
	config  config
	host    string
	port    int
	busPort int // used by a node of a Cluster
	ports   []*claimedPort
	dir     string // holds the append-only file
	process *process
}

type config struct {
	binary   string // "" means redis-server
	args     []string
	env      []string // added to this process's own
	cluster  bool
	sentinel string // the configuration file of a Sentinel, which must have one
	apart    bool   // in a process group of its own
	tls      *tlsFiles
}

// An Option changes how Start runs a server.
type Option func(*config)

// Args adds arguments to the server's command line, for example Args("--maxmemory", "10mb"). They come last
// and so win over what Start sets.
func Args(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// Binary runs another program instead of redis-server.
func Binary(path string) Option {
	return func(c *config) { c.binary = path }
}

// Valkey runs valkey-server instead of redis-server. It skips the test where it is not installed.
func Valkey(t testing.TB) Option {
	t.Helper()
	path, err := exec.LookPath("valkey-server")
	if err != nil {
		t.Skip("valkey-server is not installed; make setup installs it where apt-get has it")
	}
	return Binary(path)
}

// Start runs a redis-server of the test's own on a free port of 127.0.0.1, with an append-only file in a
// directory of its own and DEBUG allowed. It is killed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	var c config
	for _, opt := range opts {
		opt(&c)
	}
	s, err := start(c)
	if err != nil {
		t.Fatal(err)
	}
	s.removeAfter(t)
	return s
}

func start(c config) (*Server, error) {
	if c.binary == "" {
		c.binary = "redis-server"
	}
	dir, err := os.MkdirTemp("", "later-redis-")
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, host: "127.0.0.1", dir: dir}
	for range portTries {
		if err = s.pickPorts(); err != nil {
			break
		}
		if err = s.launch(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		s.giveUpPorts()
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// pickPorts claims a port, and in a Cluster one for its bus.
func (s *Server) pickPorts() error {
	s.giveUpPorts()
	for _, port := range []*int{&s.port, &s.busPort} {
		p, err := claimPort(s.host)
		if err != nil {
			return err
		}
		s.ports = append(s.ports, p)
		*port = p.number
	}
	return nil
}

func (s *Server) giveUpPorts() {
	for _, p := range s.ports {
		p.giveUp()
	}
	s.ports = nil
}

func (s *Server) launch() error {
	args := s.arguments()
	if file := filepath.Join(s.dir, sentinelFile); s.config.sentinel != "" {
		if _, err := os.Stat(file); err != nil { // else it is started again, and has written there what it knows
			if err := os.WriteFile(file, []byte(s.config.sentinel), 0o600); err != nil {
				return err
			}
		}
	}
	p, err := startProcess(s.config.binary, s.dir, args, s.config.env, s.config.apart)
	if err != nil {
		return err
	}
	s.process = p
	return nil
}

const sentinelFile = "sentinel.conf"

func (s *Server) arguments() []string {
	args := []string{"--port", strconv.Itoa(s.port), "--bind", s.host, "--dir", s.dir}
	if s.config.sentinel != "" {
		return slices.Concat([]string{sentinelFile, "--sentinel"}, args, s.config.args)
	}
	args = append(args, "--appendonly", "yes", "--appendfsync", "everysec", "--save", "",
		"--repl-diskless-sync-delay", "0", // a replica is fed at once
		"--enable-debug-command", "yes")
	if s.config.cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(s.busPort),
			"--cluster-node-timeout", clusterNodeTimeoutMillis)
	}
	if s.config.tls != nil {
		args = append(args, s.config.tls.arguments(strconv.Itoa(s.port))...)
	}
	return append(args, s.config.args...)
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// URL is the server's address for later.Open, database 0, without credentials.
func (s *Server) URL() string {
	if s.config.tls != nil {
		return "rediss://" + s.Addr() + "/0?" + s.config.tls.query()
	}
	return "redis://" + s.Addr() + "/0"
}

// Dir is the server's directory; a unix socket may be put there.
func (s *Server) Dir() string { return s.dir }

// Client gives a client of the server that sends nothing by itself and retries nothing. It is closed when
// the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	options := s.options()
	if s.config.tls != nil {
		var err error
		if options.TLSConfig, err = s.config.tls.config(); err != nil {
			t.Fatal(err)
		}
	}
	rdb := redis.NewClient(options)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func (s *Server) options() *redis.Options {
	return &redis.Options{
		Addr:                     s.Addr(),
		MaxRetries:               -1,
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Kill ends the server as a crash does, with SIGKILL, and returns when it is gone.
func (s *Server) Kill() { s.process.end(syscall.SIGKILL) }

// Stop ends the server in good order, with SIGTERM, and returns when it is gone.
func (s *Server) Stop() { s.process.end(syscall.SIGTERM) }

// Restart ends the server in good order if it still runs, and starts it again on the same port with the same
// data. It returns when the server serves.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
}

// removeAfter has the server killed and its directory removed when the test ends. A failed test shows what
// the server printed last.
func (s *Server) removeAfter(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("redis at %s printed:\n%s", s.Addr(), s.process.output.lastLines(20))
		}
		s.remove()
	})
}

func (s *Server) remove() {
	s.Kill()
	s.giveUpPorts()
	os.RemoveAll(s.dir)
}
