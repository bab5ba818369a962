// Package e2e holds the end-to-end tests of Later: the public API on real Redis servers, with producers and
// consumers in processes of their own that are killed, stopped and drained. Each test states a promise that
// other delay queues are known to break.
//
// A child process is this test binary run again in a role (see main_test.go). It tells what it does as events,
// one JSON line each on its standard output, which the tests await; nothing here waits for time to pass, but
// where a promise is about time.
//
// The package has no code but its tests.
package e2e
