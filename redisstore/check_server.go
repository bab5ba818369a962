package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

const (
	pingCount       = 10
	slowPing        = 20 * time.Millisecond
	maxClockGap     = time.Second
	maxReplicaLag   = 10 // seconds since the last acknowledgement
	nearlyFullRatio = 0.9
	slowlogEntries  = 128 // Redis' default length
)

// server checks one server.
func (x *checkRun) server(ctx context.Context, n *redis.Client) error {
	v := &serverCheck{checkRun: x, n: n}
	if x.s.isCluster() {
		v.name = n.Options().Addr + ": "
	}
	if err := v.readInfo(ctx); err != nil {
		return err
	}
	checks := []func(context.Context) error{v.clock, v.channels, v.slowlog}
	if v.info != nil {
		checks = append([]func(context.Context) error{v.version, v.persistence, v.memory, v.replicas}, checks...)
	}
	for _, check := range checks {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

type serverCheck struct {
	*checkRun
	n    *redis.Client
	name string            // prefix of the texts about a Cluster node
	info map[string]string // from INFO; nil if it is forbidden
}

func (v *serverCheck) reportf(severity store.Severity, check, advice, format string, args ...any) {
	v.report(
		store.CheckResult{Severity: severity, Check: check, Text: v.name + fmt.Sprintf(format, args...),
			Advice: advice})
}

func (v *serverCheck) readInfo(ctx context.Context) error {
	text, err := v.n.Info(ctx).Result()
	if err != nil {
		if forbidden(err) {
			v.reportf(store.SeverityNote, "server", "allow INFO to have the server's settings checked",
				"INFO is forbidden, so version, persistence, memory and replicas are unknown")
			return nil
		}
		return err
	}
	v.info = infoFields(text)
	return nil
}

func (v *serverCheck) number(key string) int64 {
	n, _ := strconv.ParseInt(v.info[key], 10, 64)
	return n
}

// setting returns a setting, or "" if CONFIG is forbidden.
func (v *serverCheck) setting(ctx context.Context, name string) (string, error) {
	values, err := v.n.ConfigGet(ctx, name).Result()
	if err != nil && forbidden(err) {
		return "", nil
	}
	return values[name], err
}

func (v *serverCheck) version(context.Context) error {
	program, version := "Redis", v.info["redis_version"]
	if v.info["valkey_version"] != "" {
		program, version = "Valkey", v.info["valkey_version"]
	}
	mode := cmp.Or(v.info["redis_mode"], v.info["server_mode"]) // Valkey 8 has the second
	v.reportf(store.SeverityOK, "server", "", "%s %s, %s, up for %v", program, version, mode,
		time.Duration(v.number("uptime_in_seconds"))*time.Second)
	return nil
}

func (v *serverCheck) persistence(ctx context.Context) error {
	save, err := v.setting(ctx, "save")
	if err != nil {
		return err
	}
	fsync, err := v.setting(ctx, "appendfsync")
	if err != nil {
		return err
	}
	aof := v.info["aof_enabled"] == "1"
	switch {
	case v.info["loading"] == "1":
		v.reportf(store.SeverityWarning, "persistence", "wait until it is done", "the server is still loading its data")
	case aof && v.info["aof_last_write_status"] == "err":
		v.reportf(store.SeverityError, "persistence",
			"check the server's log and its disk; sends are refused until this is fixed",
			"the last write to the append-only file failed")
	case aof && fsync == "no":
		v.reportf(store.SeverityWarning, "persistence", "CONFIG SET appendfsync everysec, or always",
			"append-only file without fsyncs: the operating system decides how much a power failure loses")
	case aof:
		v.reportf(store.SeverityOK, "persistence", "", "append-only file, appendfsync %s", fsync)
	case save != "":
		v.reportf(store.SeverityWarning, "persistence", "CONFIG SET appendonly yes (and set it in its configuration)",
			"snapshots only (save %s): a restart loses everything after the last one, %v ago, %d changes",
			save, time.Since(time.Unix(v.number("rdb_last_save_time"), 0)).Round(time.Second),
			v.number("rdb_changes_since_last_save"))
	default:
		v.reportf(store.SeverityWarning, "persistence", "CONFIG SET appendonly yes (and set it in its configuration)",
			"nothing is written to disk: a restart loses every message")
	}
	if aof && v.info["aof_last_bgrewrite_status"] == "err" {
		v.reportf(store.SeverityWarning, "persistence",
			"check the server's log; often there is too little memory to fork, or too little disk space",
			"the last rewrite of the append-only file failed")
	}
	if v.info["rdb_last_bgsave_status"] == "err" {
		v.reportf(store.SeverityWarning, "persistence",
			"check the server's log; with stop-writes-on-bgsave-error the server refuses sends",
			"the last snapshot failed")
	}
	return nil
}

func (v *serverCheck) memory(ctx context.Context) error {
	policy, used, limit := v.info["maxmemory_policy"], v.number("used_memory"), v.number("maxmemory")
	text := fmt.Sprintf("%s used", v.info["used_memory_human"])
	if limit > 0 {
		text += fmt.Sprintf(" of %s (%.0f%%)", v.info["maxmemory_human"], 100*float64(used)/float64(limit))
	} else {
		text += ", no maxmemory"
	}
	text += ", maxmemory-policy " + policy
	switch {
	case policy != "noeviction" && policy != "":
		v.reportf(store.SeverityError, "memory", "CONFIG SET maxmemory-policy noeviction (and set it in its "+
			"configuration)", "%s: the server may evict messages", text)
	case limit > 0 && float64(used) > nearlyFullRatio*float64(limit):
		v.reportf(store.SeverityWarning, "memory",
			"raise maxmemory, or make room: purge dead messages or add workers; a full server refuses sends but "+
				"serves workers", "%s: nearly full", text)
	default:
		v.reportf(store.SeverityOK, "memory", "", "%s", text)
	}
	return nil
}

func (v *serverCheck) replicas(ctx context.Context) error {
	count := int(v.number("connected_slaves"))
	written := v.number("master_repl_offset")
	for i := range count {
		fields := map[string]string{}
		for pair := range strings.SplitSeq(v.info["slave"+strconv.Itoa(i)], ",") {
			key, value, _ := strings.Cut(pair, "=")
			fields[key] = value
		}
		offset, _ := strconv.ParseInt(fields["offset"], 10, 64)
		lag, _ := strconv.Atoi(fields["lag"])
		severity, advice := store.SeverityOK, ""
		if fields["state"] != "online" || lag > maxReplicaLag {
			severity = store.SeverityWarning
			advice = "check that server and the network between; a failover to it now would lose messages"
		}
		v.reportf(severity, "replicas", advice, "replica %s:%s is %s, %d bytes behind, last acknowledged %d s ago",
			fields["ip"], fields["port"], fields["state"], max(0, written-offset), lag)
	}
	least, err := v.setting(ctx, "min-replicas-to-write")
	if err != nil {
		return err
	}
	switch {
	case count == 0 && least != "" && least != "0":
		v.reportf(store.SeverityError, "replicas", "start the replicas, or lower min-replicas-to-write",
			"no replica, and min-replicas-to-write is %s: sends and claims are refused", least)
	case count == 0:
		v.reportf(store.SeverityNote, "replicas", "", "no replica: there is no other copy of the messages")
	case least == "0":
		v.reportf(store.SeverityNote, "replicas",
			"CONFIG SET min-replicas-to-write 1 with a small "+
				"min-replicas-max-lag limits the loss; sends with later.Durable avoid it",
			"min-replicas-to-write is 0: a failover may lose the last writes")
	}
	return nil
}

// clock compares the clocks and measures the latency of the server.
func (v *serverCheck) clock(ctx context.Context) error {
	var took []time.Duration
	for range pingCount {
		began := time.Now()
		if err := v.n.Ping(ctx).Err(); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	median, longest := took[len(took)/2], took[len(took)-1]
	severity, advice := store.SeverityOK, ""
	if median > slowPing {
		severity = store.SeverityNote
		advice = "each claim and settle takes at least this long: run workers near the server, or raise their " +
			"Concurrency"
	}
	v.reportf(severity, "latency", advice, "PING takes %v, at most %v of %d", median.Round(time.Microsecond),
		longest.Round(time.Microsecond), pingCount)

	began := time.Now()
	now, err := v.n.Time(ctx).Result()
	if err != nil {
		return err
	}
	way := time.Since(began)
	gap := now.Sub(began.Add(way / 2)).Round(time.Millisecond)
	if gap.Abs() > maxClockGap {
		v.reportf(store.SeverityWarning, "clock",
			"synchronize both with NTP: times passed to At are the server's; delays passed to In are unaffected",
			"the server's clock is %v off this machine's", gap)
	} else {
		v.reportf(store.SeverityOK, "clock", "", "the server's clock is %v off this machine's, measured within %v", gap,
			way.Round(time.Microsecond))
	}
	return nil
}

// slowlog looks for this store's scripts in the server's slow log.
func (v *serverCheck) slowlog(ctx context.Context) error {
	entries, err := v.n.SlowLogGet(ctx, slowlogEntries).Result()
	if err != nil {
		if forbidden(err) {
			return nil
		}
		return err
	}
	names := map[string]string{}
	for name, sc := range v.s.scripts {
		names[sc.sha] = name
	}
	count, slowest, name := 0, time.Duration(0), ""
	for _, e := range entries {
		if len(e.Args) < 2 || !strings.EqualFold(e.Args[0], "evalsha") || names[e.Args[1]] == "" {
			continue
		}
		count++
		if e.Duration > slowest {
			slowest, name = e.Duration, names[e.Args[1]]
		}
	}
	if count > 0 {
		v.report(store.CheckResult{Severity: store.SeverityNote, Check: "slowlog", Count: int64(count),
			Text: v.name + fmt.Sprintf("%d of Later's calls are in the slow log, the slowest took %v (%s)",
				count, slowest, name),
			Advice: "large payloads or a busy server cause this; SLOWLOG GET shows when they ran"})
	}
	return nil
}
