// Package peertest migrates from real queues of asynq, which the main module does not depend on, and makes the fixture
// for the tests of package migrate:
//
//	cd migrate/peertest && go test -run Fixture -update
package peertest
