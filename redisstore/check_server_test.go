package redisstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func TestCheckReportsServerSettings(t *testing.T) {
	results := func(s *Store) map[string]store.CheckResult {
		t.Helper()
		all := map[string]store.CheckResult{}
		err := s.Check(t.Context(), store.CheckOptions{}, func(f store.CheckResult) {
			if old, ok := all[f.Check]; !ok || old.Severity == store.SeverityOK {
				all[f.Check] = f
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	primary := redistest.Start(t)
	rdb := primary.Client(t)
	s := newStore(t, rdb)
	want := func(all map[string]store.CheckResult, check string, severity store.Severity, words ...string) {
		t.Helper()
		f := all[check]
		for _, w := range words {
			if f.Severity != severity || !strings.Contains(f.Text+" "+f.Advice, w) {
				t.Errorf("%s: %+v; want %s with %q", check, f, severity, w)
			}
		}
		if severity == store.SeverityWarning && f.Advice == "" {
			t.Errorf("%s: no advice in %+v", check, f)
		}
	}
	all := results(s)
	want(all, "server", store.SeverityOK, "standalone")
	want(all, "persistence", store.SeverityOK, "everysec")
	want(all, "memory", store.SeverityOK, "no maxmemory", "noeviction")
	want(all, "replicas", store.SeverityNote, "no replica")
	want(all, "clock", store.SeverityOK, "off this machine's")
	want(all, "latency", store.SeverityOK, "PING takes")

	for _, kv := range [][2]string{{"appendonly", "no"}, {"maxmemory", "1"}, {"slowlog-log-slower-than", "0"}} {
		if err := rdb.ConfigSet(t.Context(), kv[0], kv[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Stats(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	claim(t, s, "q", 1, time.Second)
	all = results(s)
	want(all, "persistence", store.SeverityWarning, "nothing is written to disk", "appendonly yes")
	want(all, "memory", store.SeverityWarning, "nearly full")
	want(all, "slowlog", store.SeverityNote, "slow log")
	for _, kv := range [][2]string{{"maxmemory", "0"}, {"save", "3600 1"}, {"maxmemory-policy", "allkeys-lru"}} {
		if err := rdb.ConfigSet(t.Context(), kv[0], kv[1]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	replica := redistest.StartReplica(t, primary)
	all = results(s)
	want(all, "persistence", store.SeverityWarning, "snapshots only", "3600 1")
	want(all, "memory", store.SeverityError, "may evict")
	want(all, "replicas", store.SeverityNote, "min-replicas-to-write is 0")
	err := newStore(t, replica.Client(t)).Check(t.Context(), store.CheckOptions{}, func(store.CheckResult) {})
	if !errors.Is(err, store.ErrMisconfigured) || !strings.Contains(err.Error(), "is a replica of "+primary.Addr()) {
		t.Errorf("check of a replica: %v", err)
	}
}
