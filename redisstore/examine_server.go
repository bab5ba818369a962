package redisstore

import (
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
	pings          = 10
	slowPing       = 20 * time.Millisecond
	bigClockGap    = time.Second
	lateReplica    = 10 // seconds since a replica last acknowledged
	nearlyFull     = 0.9
	slowlogEntries = 128 // Redis' own default keeps as many
)

// server examines one server.
func (x *examination) server(ctx context.Context, n *redis.Client) error {
	v := &serverExamination{examination: x, n: n}
	if _, several := x.s.rdb.(*redis.ClusterClient); several {
		v.name = n.Options().Addr + ": "
	}
	if err := v.readInfo(ctx); err != nil {
		return err
	}
	for _, check := range []func(context.Context) error{v.version, v.persistence, v.memory, v.replicas, v.clock, v.slowlog} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

type serverExamination struct {
	*examination
	n    *redis.Client
	name string            // begins the texts of a Cluster's node
	info map[string]string // of INFO; nil when it is forbidden
}

func (v *serverExamination) say(severity store.Severity, check, advice, format string, args ...any) {
	v.report(store.Finding{Severity: severity, Check: check, Text: v.name + fmt.Sprintf(format, args...), Advice: advice})
}

func (v *serverExamination) readInfo(ctx context.Context) error {
	text, err := v.n.Info(ctx).Result()
	if err != nil {
		if forbidden(err) {
			v.say(store.SeverityNote, "server", "allow INFO to examine the server's settings", "INFO is forbidden, so version, persistence, memory and replicas are unknown")
			return nil
		}
		return err
	}
	v.info = map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if key, value, ok := strings.Cut(line, ":"); ok {
			v.info[key] = value
		}
	}
	return nil
}

func (v *serverExamination) number(key string) int64 {
	n, _ := strconv.ParseInt(v.info[key], 10, 64)
	return n
}

// setting gives a setting, "" when CONFIG is forbidden.
func (v *serverExamination) setting(ctx context.Context, name string) (string, error) {
	values, err := v.n.ConfigGet(ctx, name).Result()
	if err != nil && forbidden(err) {
		return "", nil
	}
	return values[name], err
}

func (v *serverExamination) version(context.Context) error {
	if v.info == nil {
		return nil
	}
	program, version := "Redis", v.info["redis_version"]
	if v.info["valkey_version"] != "" {
		program, version = "Valkey", v.info["valkey_version"]
	}
	v.say(store.SeverityOK, "server", "", "%s %s, %s, up for %v", program, version, v.info["redis_mode"],
		time.Duration(v.number("uptime_in_seconds"))*time.Second)
	return nil
}

func (v *serverExamination) persistence(ctx context.Context) error {
	if v.info == nil {
		return nil
	}
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
		v.say(store.SeverityWarning, "persistence", "wait until it has", "the server is still loading its data")
	case aof && v.info["aof_last_write_status"] == "err":
		v.say(store.SeverityError, "persistence", "look at the server's log and its disk; until then sends are refused", "the last write to the append-only file failed")
	case aof && fsync == "no":
		v.say(store.SeverityWarning, "persistence", "CONFIG SET appendfsync everysec, or always",
			"append-only file without fsyncs: what a power cut loses is up to the operating system")
	case aof:
		v.say(store.SeverityOK, "persistence", "", "append-only file, appendfsync %s", fsync)
	case save != "":
		v.say(store.SeverityWarning, "persistence", "CONFIG SET appendonly yes (and set it in its configuration)",
			"snapshots only (save %s): a restart loses what came after the last one, %v ago, %d changes",
			save, time.Since(time.Unix(v.number("rdb_last_save_time"), 0)).Round(time.Second), v.number("rdb_changes_since_last_save"))
	default:
		v.say(store.SeverityWarning, "persistence", "CONFIG SET appendonly yes (and set it in its configuration)",
			"nothing is written to disk: a restart loses every message")
	}
	if aof && v.info["aof_last_bgrewrite_status"] == "err" {
		v.say(store.SeverityWarning, "persistence", "look at the server's log: often there is no memory to fork, or no disk", "the last rewrite of the append-only file failed")
	}
	if v.info["rdb_last_bgsave_status"] == "err" {
		v.say(store.SeverityWarning, "persistence", "look at the server's log; with stop-writes-on-bgsave-error the server refuses sends", "the last snapshot failed")
	}
	return nil
}

func (v *serverExamination) memory(ctx context.Context) error {
	if v.info == nil {
		return nil
	}
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
		v.say(store.SeverityError, "memory", "CONFIG SET maxmemory-policy noeviction (and set it in its configuration)",
			"%s: the server may evict messages", text)
	case limit > 0 && float64(used) > nearlyFull*float64(limit):
		v.say(store.SeverityWarning, "memory", "raise maxmemory, or make room: purge dead messages, or add workers; when it is full, sends are refused and work goes on",
			"%s: nearly full", text)
	default:
		v.say(store.SeverityOK, "memory", "", "%s", text)
	}
	return nil
}

func (v *serverExamination) replicas(ctx context.Context) error {
	if v.info == nil {
		return nil
	}
	if role := v.info["role"]; role != "master" {
		v.say(store.SeverityError, "replicas", "connect to the primary, by Sentinel or Cluster where there is one", "the server is a %s of %s", role, v.info["master_host"])
		return nil
	}
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
		if fields["state"] != "online" || lag > lateReplica {
			severity, advice = store.SeverityWarning, "look at that server and the network between; a failover to it now would lose messages"
		}
		v.say(severity, "replicas", advice, "replica %s:%s is %s, %d bytes behind, heard of %d s ago",
			fields["ip"], fields["port"], fields["state"], max(0, written-offset), lag)
	}
	least, err := v.setting(ctx, "min-replicas-to-write")
	if err != nil {
		return err
	}
	switch {
	case count == 0 && least != "" && least != "0":
		v.say(store.SeverityError, "replicas", "start the replicas, or lower min-replicas-to-write", "no replica, and min-replicas-to-write is %s: sends and claims are refused", least)
	case count == 0:
		v.say(store.SeverityNote, "replicas", "", "no replica: what this server loses is lost")
	case least == "0":
		v.say(store.SeverityNote, "replicas", "CONFIG SET min-replicas-to-write 1 with a small min-replicas-max-lag bounds it, later.Durable excludes it for the sends that ask for it",
			"min-replicas-to-write is 0: a failover may lose the last writes")
	}
	return nil
}

// clock compares the clocks and measures the way to the server.
func (v *serverExamination) clock(ctx context.Context) error {
	var took []time.Duration
	for range pings {
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
		severity, advice = store.SeverityNote, "each claim and settle takes at least as long: run workers near the server, or raise their Concurrency"
	}
	v.say(severity, "latency", advice, "PING takes %v, at most %v of %d", median.Round(time.Microsecond), longest.Round(time.Microsecond), pings)

	began := time.Now()
	now, err := v.n.Time(ctx).Result()
	if err != nil {
		return err
	}
	way := time.Since(began)
	gap := now.Sub(began.Add(way / 2)).Round(time.Millisecond)
	if gap.Abs() > bigClockGap {
		v.say(store.SeverityWarning, "clock", "set both by NTP: times given with At are the server's, delays given with In are not touched",
			"the server's clock is %v off this machine's", gap)
	} else {
		v.say(store.SeverityOK, "clock", "", "the server's clock is %v off this machine's, as far as a call of %v can tell", gap, way.Round(time.Microsecond))
	}
	return nil
}

// slowlog looks for this store's scripts among the server's slow commands.
func (v *serverExamination) slowlog(ctx context.Context) error {
	entries, err := v.n.SlowLogGet(ctx, slowlogEntries).Result()
	if err != nil {
		if forbidden(err) {
			return nil
		}
		return err
	}
	names := map[string]string{}
	for _, x := range v.s.scripts.all() {
		names[x.script.sha] = x.name
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
		v.report(store.Finding{Severity: store.SeverityNote, Check: "slowlog", Count: int64(count),
			Text:   v.name + fmt.Sprintf("%d of Later's calls are in the slow log, the slowest took %v (%s)", count, slowest, name),
			Advice: "large payloads and a busy server do that; see SLOWLOG GET for when they were"})
	}
	return nil
}
