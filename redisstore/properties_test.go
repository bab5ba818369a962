package redisstore

import (
	"errors"
	"maps"
	"testing"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

func TestCheckAndRepairKeepProperties(t *testing.T) {
	d := newDamaged(t, redistest.Start(t).Client(t))
	set := map[string]string{"a": "1"}
	for _, queue := range []string{"q", "only properties"} {
		if err := d.s.SetProperties(d.Context(), queue, set, nil); err != nil {
			t.Fatal(err)
		}
	}
	if found := findIssues(t, d.s, false); len(found) > 0 {
		t.Errorf("issues of a sound store: %+v", found)
	}
	d.do("DEL", d.key("meta"), DefaultPrefix+"queues")
	d.do("ZADD", d.key("due"), 1, "ghost")
	findIssues(t, d.s, true)
	if left := findIssues(t, d.s, false); len(left) > 0 {
		t.Errorf("after the repair, issues remain: %+v", left)
	}
	for _, queue := range []string{"q", "only properties"} {
		if got, err := d.s.Properties(d.Context(), queue); err != nil || !maps.Equal(got, set) {
			t.Errorf("queue %q has the properties %v, %v; want %v", queue, got, err, set)
		}
	}
	if names, _, err := d.s.Queues(d.Context(), ""); err != nil || len(names) != 2 {
		t.Errorf("queues are %v, %v; want both", names, err)
	}
	d.do("SET", d.key("properties"), "text")
	if _, err := d.s.Properties(d.Context(), "q"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("properties of a wrong type: %v, want ErrCorrupt", err)
	}
	wantChecks(t, findIssues(t, d.s, false), []string{"types"}, false)
	if err := d.s.Delete(d.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	if n, err := d.rdb.Exists(d.Context(), d.key("properties")).Result(); err != nil || n != 0 {
		t.Errorf("delete left the properties: %d, %v", n, err)
	}
}
