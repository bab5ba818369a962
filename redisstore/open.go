package redisstore

import (
	"context"

	"github.com/laterq/later/store"
)

func init() {
	for scheme := range schemes {
		store.Register(scheme, open)
	}
}

// open connects to the server named by a URL and checks it, so that a wrong URL or server is reported immediately.
func open(ctx context.Context, url string, cfg store.OpenConfig) (store.Store, error) {
	u, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	rdb, err := u.client()
	if err != nil {
		return nil, err
	}
	s := New(rdb, Prefix(u.Prefix), WithLogger(cfg.Logger), RetryFor(u.RetryFor))
	s.ownsClient, s.shortOnLines = true, true
	s.allowEviction = u.AllowEviction
	if err := s.preflight(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}
