//go:build unix

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
)

// form is the kind of Redis deployment.
type form string

// The forms. Standalone and Sentinel servers each have a proxy, and clients, Sentinels and replicas know them by its
// address. Cluster nodes are reached directly.
const (
	alone    form = "alone"
	sentinel form = "sentinel" // a primary, two replicas, three Sentinels
	cluster  form = "cluster"  // three primaries, each with a replica
	shared   form = "shared"   // no server: the processes share a directory
	remote   form = "remote"   // a process that serves a directory, behind a proxy
	served   form = "served"   // a process that serves a Redis, behind a proxy
)

const primaryName = "mymaster"

// clusterNodeTimeout is when the nodes of a Cluster replace one that does not answer, unless a setting says otherwise.
const clusterNodeTimeout = 1500 * time.Millisecond

// servers are the servers of one run.
type servers struct {
	form      form
	nodes     []*redistest.Server // the first is the primary at the start
	sentinels []*redistest.Server
	proxies   []*proxy // by node
	url       string   // for clients
	clock     *clock   // of a standalone server with a clock that can be stepped, else nil
	admin     []*redis.Client
	process   *child // that serves the directory or the Redis; nil for other forms
	mounted   string // directory of a file system of its own, or ""
	second    *child // that serves the same Redis; see useOtherServer
}

// setting is the configuration of a run's servers.
type setting struct {
	form        form
	args        []string
	nodeTimeout time.Duration // of a Cluster; 0 means short
	clock       bool          // whether the clock can be stepped
	memory      bool          // whether the process serves a store in memory instead
	disk        bool          // whether the directory is on a small file system of its own
}

func startServers(ctx context.Context, s setting, dir string, seed uint64) (_ *servers, err error) {
	v := &servers{form: s.form}
	defer func() {
		if err != nil {
			v.remove()
		}
	}()
	switch s.form {
	case shared:
		v.url = directoryURL(dir)
		if s.disk {
			v.mounted = directoryOf(dir)
			return v, errors.Join(os.Mkdir(v.mounted, 0o700), mountDisk(v.mounted))
		}
		return v, nil
	case remote:
		url := directoryURL(dir) + "?share=no"
		if s.memory {
			url = "mem://"
		}
		return v, v.startRemote(ctx, dir, url, seed)
	}
	args := append([]string{"--loglevel", "notice"}, s.args...)
	switch s.form {
	case cluster:
		nodeTimeout := cmp.Or(s.nodeTimeout, clusterNodeTimeout)
		args = append(args, "--cluster-node-timeout", fmt.Sprint(nodeTimeout.Milliseconds()),
			"--cluster-replica-validity-factor", "0")
		c, err := redistest.RunCluster(1, args...)
		if err != nil {
			return nil, err
		}
		v.nodes, v.url = c.Nodes, c.URL()
	case sentinel:
		if err := v.startPrimaryAndReplicas(args, seed); err != nil {
			return nil, err
		}
		if err := v.startSentinels(ctx); err != nil {
			return nil, err
		}
	case served:
		n, err := redistest.Run(redistest.Args(args...))
		if err != nil {
			return nil, err
		}
		v.nodes = append(v.nodes, n)
		if err := v.startRemote(ctx, dir, n.URL(), seed); err != nil {
			return nil, err
		}
	default:
		opts := []redistest.Option{redistest.Args(args...)}
		if s.clock {
			if v.clock, err = newClock(dir); err != nil {
				return nil, err
			}
			opts = append(opts, redistest.Env(v.clock.env()...))
		}
		if err := v.startBehindProxy(seed, opts...); err != nil {
			return nil, err
		}
		v.url = "redis://" + v.proxies[0].addr() + "/0"
	}
	for _, n := range v.nodes {
		v.admin = append(v.admin, redis.NewClient(n.Options()))
	}
	return v, nil
}

// startBehindProxy starts one server that announces its proxy's port.
func (v *servers) startBehindProxy(seed uint64, opts ...redistest.Option) error {
	p, err := newProxy(seed + uint64(len(v.proxies)))
	if err != nil {
		return err
	}
	v.proxies = append(v.proxies, p)
	opts = append(opts, redistest.Args(
		"--replica-announce-ip", "127.0.0.1", "--replica-announce-port", strconv.Itoa(p.port())))
	n, err := redistest.Run(opts...)
	if err != nil {
		return err
	}
	p.setTarget(n.Addr())
	v.nodes = append(v.nodes, n)
	return nil
}

const replicas = 2

func (v *servers) startPrimaryAndReplicas(args []string, seed uint64) error {
	if err := v.startBehindProxy(seed, redistest.Args(args...)); err != nil {
		return err
	}
	for range replicas {
		primary := []string{"--replicaof", "127.0.0.1 " + strconv.Itoa(v.proxies[0].port())}
		if err := v.startBehindProxy(seed, redistest.Args(append(primary, args...)...)); err != nil {
			return err
		}
	}
	return nil
}

// downAfter is when Sentinels consider a primary that does not reply to be down.
const downAfter = 3 * time.Second

// failoverTimeout limits a promotion. After an election without a winner, Sentinels wait twice as long plus up to a
// second before the next one (sentinelStartFailoverIfNeeded in Redis' sentinel.c).
const failoverTimeout = 5 * time.Second

func (v *servers) startSentinels(ctx context.Context) error {
	conf := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\nsentinel down-after-milliseconds %[1]s %[3]d\n"+
		"sentinel failover-timeout %[1]s %[4]d\nsentinel parallel-syncs %[1]s 2\n",
		primaryName, v.proxies[0].port(), downAfter.Milliseconds(), failoverTimeout.Milliseconds())
	var addrs []string
	for range 3 {
		s, err := redistest.Run(redistest.AsSentinel(conf))
		if err != nil {
			return err
		}
		v.sentinels = append(v.sentinels, s)
		addrs = append(addrs, s.Addr())
	}
	v.url = "redis+sentinel://" + strings.Join(addrs, ",") + "/" + primaryName + "/0"
	return within(ctx, time.Minute, "the Sentinels' agreement", func(ctx context.Context) error {
		for _, s := range v.sentinels {
			rdb := redis.NewSentinelClient(s.Options())
			defer rdb.Close()
			seen, err := rdb.Master(ctx, primaryName).Result()
			if err != nil {
				return err
			}
			if seen["num-other-sentinels"] != "2" || seen["num-slaves"] != strconv.Itoa(replicas) ||
				seen["flags"] != "master" {
				return fmt.Errorf("a Sentinel sees %s other Sentinels and %s replicas",
					seen["num-other-sentinels"], seen["num-slaves"])
			}
			list, err := rdb.Replicas(ctx, primaryName).Result()
			if err != nil {
				return err
			}
			for _, r := range list {
				if r["master-link-status"] != "ok" {
					return fmt.Errorf("replica %s is not in sync", r["name"])
				}
			}
		}
		return nil
	})
}

// primary returns the index of the node that reports to be a primary, except without (-1 excludes none).
func (v *servers) primary(ctx context.Context, without int) (int, error) {
	for i, rdb := range v.admin {
		if i == without {
			continue
		}
		if role, err := rdb.Do(ctx, "ROLE").Slice(); err == nil && role[0] == "master" {
			return i, nil
		}
	}
	return 0, errors.New("no node reports to be a primary")
}

// keepLogs writes the servers' output since their last start to files in dir.
func (v *servers) keepLogs(dir string) error {
	var errs []error
	keep := func(of []*redistest.Server, what string) {
		for i, s := range of {
			errs = append(errs, os.WriteFile(filepath.Join(dir, fmt.Sprint(what, i, ".log")), []byte(s.Log()), 0o600))
		}
	}
	keep(v.nodes, "node")
	keep(v.sentinels, "sentinel")
	return errors.Join(errs...)
}

func (v *servers) remove() {
	for _, rdb := range v.admin {
		rdb.Close()
	}
	for _, s := range append(v.sentinels, v.nodes...) {
		s.Remove()
	}
	for _, c := range []*child{v.process, v.second} {
		if c != nil && c.cmd != nil && c.alive() {
			c.kill()
		}
	}
	for _, p := range v.proxies {
		p.close()
	}
	if v.mounted != "" {
		unmountDisk(v.mounted)
	}
}

// within calls check until it returns nil. It returns an error if that takes longer than limit.
func within(ctx context.Context, limit time.Duration, what string, check func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check(limited)
		if err == nil {
			return nil
		}
		if !sleep(limited, 20*time.Millisecond) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%s did not happen within %v: %w", what, limit, err)
		}
	}
}

// clock is the clock of a running server that can be stepped: a library preloaded into the server adds the offset
// stored in a file.
type clock struct {
	library, file string
}

//go:embed testdata/clock.c
var clockSource []byte

// errNoClock is returned where a server's clock cannot be stepped.
var errNoClock = errors.New("a server's clock can be stepped on Linux with a C compiler only (make setup installs one)")

func newClock(dir string) (*clock, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return nil, errNoClock
	}
	c := &clock{library: filepath.Join(dir, "clock.so"), file: filepath.Join(dir, "clock")}
	source := filepath.Join(dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.file, make([]byte, 8), 0o600); err != nil {
		return nil, err
	}
	if text, err := exec.Command(cc, "-shared", "-fPIC", "-O2", "-o", c.library, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %v: %s", errNoClock, err, text)
	}
	return c, nil
}

func (c *clock) env() []string {
	return []string{"LD_PRELOAD=" + c.library, "CLOCK_OFFSET_FILE=" + c.file}
}

// step sets the offset of the clock, in whole seconds.
func (c *clock) step(offset time.Duration) error {
	file, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var b [8]byte
	n := uint64(int64(offset / time.Second))
	for i := range b {
		b[i] = byte(n >> (8 * i))
	}
	_, err = file.WriteAt(b[:], 0)
	return err
}
