package delayqueue

import (
	"cmp"
	"log"
	"log/slog"
	"strings"
)

// log logs a message.
func (q *DelayQueue) log(format string, args ...any) {
	q.mu.Lock()
	logger := q.logger
	q.mu.Unlock()
	logger.Printf(format, args...)
}

// withStandardLogger sets a logger that may be a nil pointer.
func (q *DelayQueue) withStandardLogger(logger *log.Logger) {
	q.WithLogger(cmp.Or(logger, log.Default()))
}

// slogTo returns a logger that writes records of level info and above to a Logger, each in one line.
func slogTo(logger Logger) *slog.Logger {
	text := slog.NewTextHandler(lineWriter{logger}, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{} // the Logger adds its own
			}
			return a
		},
	})
	return slog.New(text)
}

type lineWriter struct{ logger Logger }

func (w lineWriter) Write(line []byte) (int, error) {
	w.logger.Printf("%s", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
