package shard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/laterq/later/store"
)

// A shard is down while its server does not answer. Claims, and sends of messages that any shard may take, go to the
// other shards until it does. An engine may repeat a call for some seconds before it returns an error. So a shard that
// lets a call wait is asked whether it answers, and left out until it does.
const (
	usualPatience = 250 * time.Millisecond // for a call, before its shard is asked
	askAgain      = time.Second            // between questions, and for each
)

// heat marks a shard as one that may have something, and that answers.
func (c *consumer) heat(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of(name)
	k.hot = true
	if k.up != nil {
		close(k.up)
		k.up, k.down = nil, nil
	}
}

// warm marks a shard as one that may have something.
func (c *consumer) warm(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(name).hot = true
}

// isUp returns a channel that is closed when a shard answers again, nil if it does, and one that is closed when it is
// certain that it does not.
func (c *consumer) isUp(name string) (up, down <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.of(name)
	return k.up, k.down
}

// isClosed reports whether a channel is closed. One that is nil is not.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// allDown reports whether all shards that messages are claimed from are certainly down.
func (c *consumer) allDown(r *route) bool {
	return !slices.ContainsFunc(r.open(), func(i int) bool {
		_, down := c.isUp(r.names[i])
		return !isClosed(down)
	})
}

// mayBeDown reports whether a shard is down, or lets calls wait.
func (s *Store) mayBeDown(r *route, shard int) bool {
	up, _ := s.consumer(r.queue).isUp(r.names[shard])
	return up != nil
}

// loseIfDown loses a shard if the error of a call says that it does not answer.
func (s *Store) loseIfDown(ctx context.Context, r *route, shard int, err error) {
	if errors.Is(err, store.ErrUnavailable) && !isMoved(err) && ctx.Err() == nil {
		s.lose(r, shard, err)
	}
}

// lose leaves out a shard that does not answer until it does. Then it closes the channel.
func (s *Store) lose(r *route, shard int, err error) <-chan struct{} {
	c, name := s.consumer(r.queue), r.names[shard]
	up := s.doubt(r, shard)
	c.mu.Lock()
	k := c.of(name)
	first := k.down != nil && !isClosed(k.down)
	if first {
		close(k.down)
	}
	c.mu.Unlock()
	if first {
		s.log.Warn("later: a shard does not answer; its messages wait", "queue", r.queue, "shard", shard, "error", err)
	}
	return up
}

// doubt asks a shard whether it answers, and leaves it out until it does. Then it closes the channel.
func (s *Store) doubt(r *route, shard int) <-chan struct{} {
	c, name := s.consumer(r.queue), r.names[shard]
	c.mu.Lock()
	up := c.of(name).up
	known := up != nil
	if !known {
		up = make(chan struct{})
		c.of(name).up, c.of(name).down = up, make(chan struct{})
	}
	c.mu.Unlock()
	if known {
		return up
	}
	asks := s.loop(func() {
		for {
			asking, cancel := context.WithTimeout(s.ending, askAgain)
			_, err := s.engine.Stats(asking, name)
			cancel()
			if err == nil || isMoved(err) {
				if _, down := c.isUp(name); isClosed(down) {
					s.log.Info("later: a shard answers again", "queue", r.queue, "shard", shard)
				}
				c.heat(name)
				return
			}
			s.lose(r, shard, err)
			if pause(s.ending, askAgain) != nil {
				return
			}
		}
	})
	if !asks {
		c.heat(name)
	}
	return up
}

// doubtSoon doubts a shard if a call takes long. The caller stops that when the call is over.
func (s *Store) doubtSoon(r *route, shard int) (stop func() bool) {
	return time.AfterFunc(s.patience, func() { s.doubt(r, shard) }).Stop
}
