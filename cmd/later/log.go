package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/laterq/later/internal/durations"
)

// logger returns a logger to standard error, which writes lines of text, or JSON with --json.
func (m *Main) logger() *slog.Logger {
	if m.json {
		return slog.New(slog.NewJSONHandler(m.Stderr, nil))
	}
	return slog.New(&lineHandler{to: m.Stderr})
}

// lineHandler writes each record as "15:04:05 error: message key=value".
type lineHandler struct {
	to    io.Writer
	attrs string
}

func (h *lineHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Time.Format(time.TimeOnly) + " ")
	if r.Level >= slog.LevelWarn {
		b.WriteString(strings.ToLower(r.Level.String()) + ": ")
	}
	b.WriteString(strings.TrimPrefix(r.Message, "later: ") + h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(formatAttr(a))
		return true
	})
	b.WriteByte('\n')
	_, err := io.WriteString(h.to, b.String())
	return err
}

func formatAttr(a slog.Attr) string {
	resolved := a.Value.Resolve()
	value := resolved.String()
	if resolved.Kind() == slog.KindDuration {
		value = durations.Format(resolved.Duration())
	}
	if value == "" || strings.ContainsAny(value, " \"\n\t=") || value != printable(value) {
		value = fmt.Sprintf("%q", value)
	}
	return " " + a.Key + "=" + value
}

func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := *h
	for _, a := range attrs {
		with.attrs += formatAttr(a)
	}
	return &with
}

// WithGroup ignores the group: neither Later nor this program uses groups.
func (h *lineHandler) WithGroup(string) slog.Handler { return h }
