package redisstore

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// oldestMajor is the first version of Redis and Valkey with script flags, and with ZRANGE BYSCORE as used here.
const oldestMajor = 7

// ready runs the preflight check once, before the first call.
func (s *Store) ready(ctx context.Context) error {
	if s.closing.Err() != nil {
		return store.ErrClosed
	}
	if s.preflightDone.Load() && (s.mute.Load() == 0 || !isPrompt(ctx)) {
		s.remark(ctx)
		return nil
	}
	select {
	case s.preflightLock <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err := inTime(ctx, func(ctx context.Context) (any, error) {
		defer func() { <-s.preflightLock }()
		if s.preflightDone.Load() {
			s.remark(ctx)
			return nil, nil
		}
		return s.retry(ctx, func(ctx context.Context) (any, error) { return nil, s.tryPreflight(ctx) })
	})
	return err
}

// preflight checks the server once, without retrying.
func (s *Store) preflight(ctx context.Context) error {
	if err := s.tryPreflight(ctx); err != nil {
		kind, _ := classify(err)
		return wrap(kind, err)
	}
	return nil
}

// ConfigError implements store.Configured: it returns an error if New was called with a nil client, a *redis.Ring, a
// nil option or a prefix that is not allowed.
func (s *Store) ConfigError() error {
	if s.rdb == nil {
		return store.Invalid("Redis client is nil: give one, such as redis.NewClient returns")
	}
	if _, ok := s.rdb.(*redis.Ring); ok {
		return fmt.Errorf("a redis.Ring moves queues to other servers when one is away: use one server, Sentinel or a "+
			"Cluster: %w", store.ErrUnsupported)
	}
	if s.nilOption {
		return store.Invalid("an option of redisstore.New is nil: leave it out")
	}
	return checkPrefix(s.keys.prefix)
}

// tryPreflight refuses a server that is too old, may evict keys or is a replica, and a Cluster's node without a
// Cluster's client. In a Cluster it checks every primary that answers.
func (s *Store) tryPreflight(ctx context.Context) error {
	err := s.ConfigError()
	if err != nil {
		return err
	}
	switch rdb := s.rdb.(type) {
	case *redis.ClusterClient:
		var answered atomic.Bool
		err = rdb.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			err := s.preflightServer(ctx, node, serverAddr{node.Options().Addr, node})
			if kind, outageLogged := classify(err); err != nil && outageLogged && kind == store.ErrUnavailable {
				s.log.Warn("later: a node of the Cluster was not checked", "error", err)
				return nil
			}
			answered.Store(true)
			return err
		})
		if err == nil && !answered.Load() {
			err = fmt.Errorf("no primary of the Cluster answers: %w", store.ErrUnavailable)
		}
	default:
		err = s.preflightServer(ctx, rdb, serverAddr{})
	}
	if err == nil {
		s.preflightDone.Store(true)
	}
	return err
}

func (s *Store) preflightServer(ctx context.Context, rdb redis.Cmdable, at serverAddr) error {
	info, err := rdb.Info(ctx, "server").Result()
	switch {
	case err == nil:
		if err := checkVersion(info); err != nil {
			return err
		}
		if err := s.checkMode(info); err != nil {
			return err
		}
		if err := s.checkRole(ctx, rdb); err != nil {
			return err
		}
	case forbidden(err):
		if err := rdb.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("reach Redis: %w", err)
		}
		s.log.Warn("later: INFO is forbidden, so the server's version is unknown; it must be Redis or Valkey " +
			"7.0 or later")
	default:
		return fmt.Errorf("reach Redis: %w", err)
	}
	policy, err := rdb.ConfigGet(ctx, "maxmemory-policy").Result()
	switch {
	case err == nil:
		if err := s.checkPolicy(policy["maxmemory-policy"]); err != nil {
			return err
		}
	case forbidden(err):
		s.log.Warn("later: CONFIG is forbidden, so the eviction policy is unknown; it must be noeviction, " +
			"or messages can vanish")
	default:
		return fmt.Errorf("read Redis's eviction policy: %w", err)
	}
	if err := s.probeChannel(ctx, rdb, at); err != nil {
		s.log.Debug("later: cannot tell whether messages can be announced", "error", err)
	}
	return nil
}

func (s *Store) checkPolicy(policy string) error {
	if policy == "" || policy == "noeviction" {
		return nil
	}
	if s.allowEviction {
		s.log.Warn("later: the server may evict keys, and messages with them", "maxmemory-policy", policy)
		return nil
	}
	return fmt.Errorf("the server's maxmemory-policy is %s, which may evict messages: run CONFIG SET "+
		"maxmemory-policy noeviction (and set it in its configuration), or accept the loss with "+
		"redisstore.AllowEviction() or eviction=allow in the URL: %w",
		policy, store.ErrUnsupported)
}

// checkMode refuses a Cluster's node if the client is for a single server: calls on a queue with keys on another node,
// or on two queues, would fail.
func (s *Store) checkMode(info string) error {
	if s.isCluster() {
		return nil
	}
	fields := infoFields(info)
	if fields["redis_mode"] != "cluster" && fields["server_mode"] != "cluster" { // Valkey 8 has the second
		return nil
	}
	return fmt.Errorf("the server is a node of a Cluster, and the client is a %T, which does not follow a Cluster: open "+
		"redis+cluster://, or give a client that redis.NewClusterClient returns: %w", s.rdb, store.ErrMisconfigured)
}

// checkRole refuses a replica, unless the client follows the primary: it takes no writes, and if it does, they vanish.
func (s *Store) checkRole(ctx context.Context, rdb redis.Cmdable) error {
	if s.followsPrimary() {
		return nil
	}
	info, err := rdb.Info(ctx, "replication").Result()
	if err != nil {
		return fmt.Errorf("read the server's role: %w", err)
	}
	fields := infoFields(info)
	if fields["role"] != "slave" {
		return nil
	}
	return fmt.Errorf("the server is a replica of %s, which takes no writes: open the primary instead; %s: %w",
		net.JoinHostPort(fields["master_host"], fields["master_port"]), followingClients, store.ErrMisconfigured)
}

// followingClients says how a client finds the primary by itself.
const followingClients = "redis+sentinel:// and redis+cluster:// follow it after a failover"

// followsPrimary reports whether the client looks for the primary itself, as a client of a Cluster or of Sentinel does.
// go-redis gives a client of Sentinel this address.
func (s *Store) followsPrimary() bool {
	switch rdb := s.rdb.(type) {
	case *redis.ClusterClient:
		return true
	case *redis.Client:
		return rdb.Options().Addr == "FailoverClient"
	}
	return false
}

// infoFields returns the fields of a reply to INFO.
func infoFields(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.SplitSeq(info, "\r\n") {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[key] = value
		}
	}
	return fields
}

func checkVersion(info string) error {
	version := infoFields(info)["redis_version"] // Valkey reports it too, as 7.2.4
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	switch {
	case version == "":
		return fmt.Errorf("the server reports no version: use Redis or Valkey %d.0 or later: %w", oldestMajor,
			store.ErrUnsupported)
	case err != nil || n < oldestMajor:
		return fmt.Errorf("the server is Redis %s: use Redis or Valkey %d.0 or later: %w", version, oldestMajor,
			store.ErrUnsupported)
	}
	return nil
}

// forbidden reports whether the server itself, not a proxy, refuses a command, as managed services do.
func forbidden(err error) bool {
	if _, ok := err.(redis.Error); !ok {
		return false
	}
	text := err.Error()
	return strings.HasPrefix(text, "NOPERM") || strings.HasPrefix(text, "ERR unknown command") ||
		strings.HasPrefix(text, "ERR") && strings.Contains(text, "not allowed")
}
