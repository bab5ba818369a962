// Package chaos attacks Later: producers and workers in processes of their own send and handle messages through
// real Redis servers, while faults strike the servers, the network between and the processes themselves. Every
// call is journalled outside Redis before and after it is made; at the end an accountant checks the promises of
// docs/reliability.md, message by message.
//
//	run.go          one run: servers, load, faults by a seeded schedule, recovery, account
//	faults.go       what can strike, and what is right then; strike_*.go how
//	servers.go      Redis alone, under Sentinel, as a Cluster; proxy.go the network
//	child.go        the processes; producer.go and consumer.go what they do; load.go what they send
//	journal.go      what they write down; recorder.go at the store's own boundary
//	account.go      reads the journals; rules.go and rules_lease.go are what must hold for each message
//	recovery.go     how long it took until deliveries went on; targets.go how long it may
//	report.go       a run's result, as a line and as JSON; table.go of many, and docs/reliability.md
//	profile.go      what the attack itself costs
//
// The tests are the quick set; go run ./internal/chaos/cmd/chaos is the long one. Everything runs on one machine,
// so all processes have one clock. Nothing outside this package imports it.
package chaos
