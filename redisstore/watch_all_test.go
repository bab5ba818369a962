package redisstore

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/store"
)

// A pattern is for the channels of one prefix and database.
func TestWatcherOfAllQueuesHearsOnlyItsOwn(t *testing.T) {
	srv := redistest.Start(t)
	opt := *srv.Options()
	opt.DB = 3
	third := redis.NewClient(&opt)
	t.Cleanup(func() { third.Close() })
	const prefix = `a[b]*\?:`
	s := newStore(t, third, Prefix(prefix))
	w := watch(t, newStore(t, third, Prefix(prefix)), store.AllQueues)
	for _, other := range []*Store{newStore(t, srv.Client(t), Prefix(prefix)), newStore(t, third),
		newStore(t, third, Prefix(`ab*\?:`))} {
		if n := report(t, other, anEvent); n != 0 {
			t.Errorf("%d watchers of a store with another prefix or database", n)
		}
	}
	for _, queue := range []string{"q", "*", "late:events"} {
		if n := report(t, s, store.Report{Queue: queue, Events: []byte(queue), Number: 1}); n != 1 {
			t.Errorf("%d watchers of queue %q", n, queue)
		}
		if r := nextEvents(t, w); r.Queue != queue || string(r.Events) != queue {
			t.Errorf("got %+v, want an event of queue %q", r, queue)
		}
	}
	killListeners(t, srv.Client(t))
	if r := nextEvents(t, w); !r.Gap {
		t.Errorf("got %+v, want a gap", r)
	}
	eventually(t, func() bool { return report(t, s, anEvent) == 1 })
}

func TestWatchOfAllQueuesNeedsThePattern(t *testing.T) {
	srv := redistest.Start(t)
	all := []string{store.AllQueues}
	s := newStore(t, limitedUser(t, srv, "&later:*"), WithLogger(slog.New(slog.DiscardHandler)))
	_, err := s.Watch(t.Context(), all)
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "ACL SETUSER <user> &later:{*}:events") {
		t.Errorf("Watch returned %v", err)
	}
	s = newStore(t, limitedUser(t, srv, "&later:*", "&later:{*}:events"))
	watch(t, s, all...)
}

func TestWatchOfAllQueuesOfAClusterIsUnsupported(t *testing.T) {
	s := newStore(t, redistest.StartCluster(t).Client(t))
	if _, err := s.Watch(t.Context(), []string{store.AllQueues}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Watch returned %v", err)
	}
}
