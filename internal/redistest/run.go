package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Run is like Start for a program that is not a test, which must call Remove. An interrupt at the terminal does not
// reach the server.
func Run(opts ...Option) (*Server, error) {
	c := config{ownGroup: true}
	for _, opt := range opts {
		opt(&c)
	}
	return start(c)
}

// Env adds variables of the form "NAME=value" to the server's environment.
func Env(variables ...string) Option {
	return func(c *config) { c.env = append(c.env, variables...) }
}

// AsSentinel makes the server a Sentinel with the given configuration file.
func AsSentinel(conf string) Option {
	return func(c *config) { c.sentinel = conf }
}

// Port returns the server's port.
func (s *Server) Port() int { return s.port }

// Options returns options for a client that sends nothing by itself and does not retry. The server must not use TLS.
func (s *Server) Options() *redis.Options { return s.options() }

// Signal sends the server a signal, such as SIGSTOP or SIGCONT, and does not wait for its effect.
func (s *Server) Signal(signal syscall.Signal) error { return s.process.cmd.Process.Signal(signal) }

// Relaunch is like Restart for a program that is not a test. A Sentinel keeps its knowledge.
func (s *Server) Relaunch() error {
	s.Stop()
	return s.launch()
}

// PID returns the server's process id.
func (s *Server) PID() int { return s.process.cmd.Process.Pid }

// Output returns the last lines that the server printed.
func (s *Server) Output() string { return s.process.output.lastLines(20) }

// Log returns the output of the server since its last start. If that is long, the beginning is missing.
func (s *Server) Log() string { return s.process.output.String() }

// Remove kills the server and removes its directory.
func (s *Server) Remove() { s.remove() }

// Remove kills the Cluster's nodes and removes their directories.
func (c *Cluster) Remove() { c.remove() }

// RunCluster starts a Cluster for a program that is not a test, which must call Remove. The Cluster has three
// primaries, which come first in Nodes, and the given number of replicas of each. All nodes get args.
func RunCluster(replicas int, args ...string) (*Cluster, error) {
	nodes := config{cluster: true, args: args, ownGroup: true}
	c, err := startCluster(nodes)
	if err != nil {
		return nil, err
	}
	for i := range replicas * clusterNodes {
		if err := c.addReplica(c.Nodes[i%clusterNodes], nodes); err != nil {
			c.remove()
			return nil, err
		}
	}
	return c, nil
}

// addReplica starts one more node and returns when it is in sync and all nodes know it.
func (c *Cluster) addReplica(primary *Server, node config) error {
	n, err := start(node)
	if err != nil {
		return err
	}
	c.Nodes = append(c.Nodes, n)
	replica, owner := redis.NewClient(n.options()), redis.NewClient(primary.options())
	defer replica.Close()
	defer owner.Close()
	return eventually("joining of a replica", func(ctx context.Context) error {
		id, err := owner.ClusterMyID(ctx).Result()
		if err != nil {
			return err
		}
		role, err := replica.Do(ctx, "ROLE").Slice()
		if err != nil {
			return err
		}
		if role[0] == "slave" && len(role) > 3 && role[3] == "connected" {
			return c.knowAll(ctx)
		}
		if err := replica.Do(ctx, "CLUSTER", "MEET", primary.host, primary.port, primary.busPort).Err(); err != nil {
			return err
		}
		if err := replica.ClusterReplicate(ctx, id).Err(); err != nil {
			return err
		}
		return errors.New("is not in sync yet")
	})
}

// knowAll returns nil if every node knows every other.
func (c *Cluster) knowAll(ctx context.Context) error {
	for _, n := range c.Nodes {
		rdb := redis.NewClient(n.options())
		info, err := rdb.ClusterInfo(ctx).Result()
		rdb.Close()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(c.Nodes))+"\r") {
			return fmt.Errorf("node %s does not know all %d", n.Addr(), len(c.Nodes))
		}
	}
	return nil
}
