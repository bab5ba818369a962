package access

import (
	"context"
	"log/slog"
)

// Log logs, at level Info, that the sender of the request of ctx changed something: the action, such as "purge", and
// attributes that name its object, such as queue, filter and count.
func Log(ctx context.Context, log *slog.Logger, what string, attrs ...slog.Attr) {
	log.LogAttrs(ctx, slog.LevelInfo, "changed",
		append([]slog.Attr{slog.String("who", NameOf(ctx)), slog.String("what", what)}, attrs...)...)
}

// NameOf returns the sender of the request of ctx, as logs name it.
func NameOf(ctx context.Context) string {
	who, controlled := FromContext(ctx)
	if !controlled {
		return "anyone"
	}
	return who.Name
}
