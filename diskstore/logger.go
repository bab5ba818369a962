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
// files that the manifest it could not write makes obsolete. So the store stops, and with it this goroutine of
// Pebble's, which holds its locks: nothing calls Pebble from then on.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.s.fail(fmt.Errorf(format, args...))
	l.s.giveUp()
	select {}
}

// giveUp notes that Pebble is not to be called any more.
func (s *Store) giveUp() { s.sticks.Do(func() { close(s.stuck) }) }

func (s *Store) isStuck() bool {
	select {
	case <-s.stuck:
		return true
	default:
		return false
	}
}

// guarded calls Pebble, and returns when Pebble gives up in the midst of it, or has before.
func (s *Store) guarded(f func() error) error {
	if s.isStuck() {
		return s.failure
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-s.stuck:
		return s.failure
	}
}
