package access

import (
	"context"
	"log/slog"
)

// Log logs that whoever sent the request of ctx changed something, at level Info: what was done, such as "purge", and
// attributes that say to what, such as queue, filter and count.
func Log(ctx context.Context, log *slog.Logger, what string, attrs ...slog.Attr) {
	log.LogAttrs(ctx, slog.LevelInfo, "changed",
		append([]slog.Attr{slog.String("who", NameOf(ctx)), slog.String("what", what)}, attrs...)...)
}

// NameOf returns what logs call whoever sent the request of ctx.
func NameOf(ctx context.Context) string {
	who, controlled := FromContext(ctx)
	if !controlled {
		return "anyone"
	}
	return who.Name
}
