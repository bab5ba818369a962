// Package e2e holds Later's end-to-end tests. They use the public API with real Redis servers, and producers and
// consumers in their own processes, which are killed, stopped and drained. Each test states a guarantee that other
// delay queues are known to break.
//
// A child process is this test binary, run again with a role (see main_test.go). It writes its events to standard
// output, one JSON line each, and the tests wait for them. Tests do not sleep, except where a guarantee is about time.
//
// The package contains only tests.
package e2e
