package redisstore

import "github.com/redis/go-redis/v9"

// Client returns the client that the store uses: the one passed to New, or the one created from a URL, which the
// store's Close closes. It is meant for observing the server directly, as `later bench` does. Its hooks do not see the
// sends, claims and acks of single messages of a store that was opened from a URL of one server.
func (s *Store) Client() redis.UniversalClient { return s.rdb }

// OpenClient returns the client that a store URL describes, for programs that read data of other programs. It uses
// neither the prefix nor the eviction of the URL, and does not connect. The caller closes the client. OpenClient
// returns ErrInvalid for a URL that is not allowed; the package comment describes the allowed ones.
func OpenClient(url string) (redis.UniversalClient, error) {
	u, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	return u.client()
}
