package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later/store"
)

// A Redis user has no channels unless ACL SETUSER gives it some. A process that may not listen claims often. A process
// that may not publish cannot notify others, so it leaves a mark beside their beats, which tells them to claim often
// too.
const (
	mutedMember  = "muted" // in the key of the processes; its score is when the mark ends, in ms
	muteAgain    = mutedFor / 2
	channelsHelp = "allow the channels with ACL SETUSER <user> &"
)

// probeChannel checks on a server whether this process may notify others.
func (s *Store) probeChannel(ctx context.Context, rdb redis.Cmdable, at serverAddr) error {
	err := rdb.Publish(ctx, s.channelPrefix()+"probe", "").Err()
	if err == nil {
		return nil
	}
	if !forbidden(err) {
		return err
	}
	if s.mute.Swap(time.Now().Add(muteAgain).UnixNano()) == 0 {
		s.log.Warn("later: the Redis user may not publish to channels, so its messages can be 0.1 s late, or more, "+
			"and its events cannot be watched: "+channelsHelp+s.keys.prefix+"*", "error", err)
	}
	return s.markMuted(ctx, at)
}

// markMuted leaves the mark on a server.
func (s *Store) markMuted(ctx context.Context, at serverAddr) error {
	key := s.processesKey(ctx, at)
	_, err := s.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, key, redis.Z{Score: float64(time.Now().Add(mutedFor).UnixMilli()), Member: mutedMember})
		p.PExpire(ctx, key, listedFor)
		return nil
	})
	return err
}

// remark renews the marks when half of their time has passed.
func (s *Store) remark(ctx context.Context) {
	now := time.Now()
	again := s.mute.Load()
	if again == 0 || now.UnixNano() < again || !s.mute.CompareAndSwap(again, now.Add(muteAgain).UnixNano()) {
		return
	}
	if rdb, ok := s.rdb.(*redis.ClusterClient); ok {
		rdb.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return s.markMuted(ctx, serverAddr{node.Options().Addr, node})
		})
		return
	}
	s.markMuted(ctx, serverAddr{})
}

// channels checks whether workers can listen and be notified.
func (v *serverCheck) channels(ctx context.Context) error {
	channel := v.s.channelPrefix() + "probe"
	publishing := v.n.Publish(ctx, channel, "").Err()
	sub := v.n.Subscribe(ctx, channel)
	defer sub.Close()
	_, listening := sub.Receive(ctx)
	for _, c := range []struct {
		err  error
		verb string
	}{{publishing, "publish to"}, {listening, "listen to"}} {
		switch {
		case c.err == nil:
		case forbidden(c.err):
			v.reportf(store.SeverityWarning, "channels", channelsHelp+v.s.keys.prefix+"*",
				"this user may not %s channels, so messages can be 0.1 s late, or more with many queues", c.verb)
		default:
			return c.err
		}
	}
	return nil
}
