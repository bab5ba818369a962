package diskstore

import "fmt"

// pebbleLogger logs Pebble's messages.
type pebbleLogger struct{ s *Store }

func (l pebbleLogger) Infof(format string, args ...any) {
	l.s.logger.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.s.logger.Warn("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf is Pebble's way out: it expects the process to end, and would do harm if it went on, such as removing files
// that are obsolete by the manifest it could not write. So the store stops, and with it this goroutine of Pebble's,
// which holds its locks: nothing calls Pebble from then on.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.fail(fmt.Errorf(format, args...))
	l.s.giveUp()
	select {}
}
