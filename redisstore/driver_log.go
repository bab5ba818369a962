package redisstore

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// driverLog passes on the log of go-redis, such as each failed attempt to connect. The store itself logs an outage
// once.
type driverLog struct{ log *slog.Logger }

// Printf implements the logger of go-redis.
func (d driverLog) Printf(ctx context.Context, format string, v ...any) {
	if d.log.Enabled(ctx, slog.LevelDebug) {
		d.log.DebugContext(ctx, "later: go-redis: "+fmt.Sprintf(format, v...))
	}
}

// setDriverLog makes go-redis, which has one logger for the whole process, log by log.
func setDriverLog(log *slog.Logger) { redis.SetLogger(driverLog{log}) }
