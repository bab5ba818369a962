package diskstore

import "fmt"

// pebbleLogger passes on what Pebble says.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.s.logger.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.logger.Warn("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf is Pebble's way out: it expects the process to end, and would do harm if it went on, such as removing
// files that the manifest it could not write makes obsolete. So the store stops, and Pebble's goroutine with it.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.stuck.Store(true)
	l.s.fail(fmt.Errorf(format, args...))
	select {}
}
