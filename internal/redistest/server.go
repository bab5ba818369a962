package redistest

import (
	"cmp"
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

// Server is a running server. Only Addr and URL are safe for concurrent use.
type Server struct {
	config  config
	host    string
	port    int
	busPort int // of the Cluster bus, for a Cluster node
	ports   []*claimedPort
	dir     string // holds the append-only file
	process *process
}

type config struct {
	binary   string // "" means the one in ServerVariable, or redis-server
	args     []string
	under    []string // the command that runs the binary, such as valgrind
	env      []string // in addition to this process's environment
	cluster  bool
	sentinel string // configuration file of a Sentinel, which requires one
	ownGroup bool   // runs in its own process group
	tls      *tlsFiles
}

// Option changes how Start runs a server.
type Option func(*config)

// Args adds arguments to the server's command line, for example Args("--maxmemory", "10mb"). They come last, so they
// override the arguments that Start sets.
func Args(args ...string) Option {
	return func(c *config) { c.args = append(c.args, args...) }
}

// Under has a command with these arguments run the server, such as valgrind.
func Under(command ...string) Option {
	return func(c *config) { c.under = command }
}

// ServerVariable is the environment variable with the program, such as a path of valkey-server, that all test servers
// run which are not started with Binary or Valkey: standalone servers, replicas, Sentinels and Clusters. The default is
// redis-server.
const ServerVariable = "LATER_REDIS_SERVER"

// Binary runs another program instead.
func Binary(path string) Option {
	return func(c *config) { c.binary = path }
}

// Valkey runs valkey-server. It skips the test if valkey-server is not installed.
func Valkey(t testing.TB) Option {
	t.Helper()
	path, err := exec.LookPath("valkey-server")
	if err != nil {
		t.Skip("valkey-server is not installed; make setup installs it if apt-get has it")
	}
	return Binary(path)
}

// Start starts a server for one test on a free port of 127.0.0.1, with DEBUG allowed and an append-only file in
// its own directory. It is killed when the test ends.
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
		c.binary = cmp.Or(os.Getenv(ServerVariable), "redis-server")
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
		s.releasePorts()
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// pickPorts claims a port, and in a Cluster another one for the bus.
func (s *Server) pickPorts() error {
	s.releasePorts()
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

func (s *Server) releasePorts() {
	for _, p := range s.ports {
		p.release()
	}
	s.ports = nil
}

func (s *Server) launch() error {
	args := s.arguments()
	if file := filepath.Join(s.dir, sentinelFile); s.config.sentinel != "" {
		if _, err := os.Stat(file); err != nil { // on a restart, the file has the Sentinel's knowledge
			if err := os.WriteFile(file, []byte(s.config.sentinel), 0o600); err != nil {
				return err
			}
		}
	}
	command := slices.Concat(s.config.under, []string{s.config.binary}, args)
	p, err := startProcess(command[0], s.dir, command[1:], s.config.env, s.config.ownGroup)
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
		"--repl-diskless-sync-delay", "0", // start full syncs without delay
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

// Addr returns the server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// URL returns the server's URL for later.Open, with database 0 and without credentials.
func (s *Server) URL() string {
	if s.config.tls != nil {
		return "rediss://" + s.Addr() + "/0?" + s.config.tls.query()
	}
	return "redis://" + s.Addr() + "/0"
}

// Dir returns the server's directory, which may hold a unix socket.
func (s *Server) Dir() string { return s.dir }

// Client returns a client that sends nothing by itself and does not retry. It is closed when the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	options := s.options()
	if s.config.tls != nil {
		options.TLSConfig = s.config.tls.config
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

// Kill kills the server with SIGKILL, as in a crash, and returns when it has exited.
func (s *Server) Kill() { s.process.end(syscall.SIGKILL) }

// Stop stops the server gracefully with SIGTERM and returns when it has exited.
func (s *Server) Stop() { s.process.end(syscall.SIGTERM) }

// Restart stops the server gracefully if it is running, and starts it again with the same port and data. It returns
// when the server serves.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	if err := s.launch(); err != nil {
		t.Fatal(err)
	}
}

// removeAfter kills the server and removes its directory when the test ends. If the test failed, it logs the last
// output of the server.
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
	s.releasePorts()
	os.RemoveAll(s.dir)
}
