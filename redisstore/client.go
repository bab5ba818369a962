package redisstore

import "github.com/redis/go-redis/v9"

// Client gives the client over which the store works: that of New, or the one made by opening a URL, which the
// store's Close closes. It is for looking at the server from beside, as `later bench` does.
func (s *Store) Client() redis.UniversalClient { return s.rdb }
