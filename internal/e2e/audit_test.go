package e2e

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
)

// audit checks that a queue's keys agree and gives where each message is, by id.
func audit(t *testing.T, rdb redis.UniversalClient, queue string) map[string]string {
	t.Helper()
	places, err := redistest.Locations(bounded(t), rdb, queue, func(id, text string) { t.Errorf("message %s: %s", id, text) })
	if err != nil {
		t.Fatal(err)
	}
	return places
}
