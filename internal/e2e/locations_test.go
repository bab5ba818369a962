package e2e

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/internal/redistest"
)

// locations returns the location of each message of a queue by id, and fails the test if its keys are inconsistent.
func locations(t *testing.T, rdb redis.UniversalClient, queue string) map[string]string {
	t.Helper()
	found, err := redistest.Locations(bounded(t), rdb, queue, func(id, text string) {
		t.Errorf("message %s: %s", id, text)
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
