package redisstore

import "github.com/redis/go-redis/v9"

// Client returns the client that the store uses: the one passed to New, or the one created from a URL, which the
// store's Close closes. It is meant for observing the server directly, as `later bench` does.
func (s *Store) Client() redis.UniversalClient { return s.rdb }
