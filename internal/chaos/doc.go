// Package chaos tests Later under faults. Producers and workers in their own processes send and handle messages
// through real Redis servers while faults are injected into the servers, the network and the processes.
//
// Every call is journalled outside Redis, before and after it is made. When the load has ended, a checker verifies
// the guarantees of docs/reliability.md for each message.
//
//	run.go          one run: start.go starts servers and load, schedule.go injects faults, drain.go ends the load, and
//	                then the outcome is verified
//	faults.go       the faults and their permitted effects; inject_*.go injects them
//	servers.go      a standalone Redis, Sentinel or Cluster; proxy.go the network; embedded.go a directory that the
//	                processes share, or that one of them serves
//	child.go        the processes; producer.go, consumer.go and laggard.go their roles; load.go the messages
//	forward.go      a forwarder between the producers and the consumers, and the list and stream that it fills
//	topic.go        topics between them; their messages reach the list too; subscriptions.go queues that subscribe to
//	                a topic for a while
//	follow.go       messages that are sent in several versions, while a worker has one of them
//	watcher.go      processes that watch the queues; locks.go handlers with locks; fleet.go workers that are told to
//	                restart, drain, pause and resume; groups.go groups that are cancelled and rescheduled;
//	                flow.go limits of queues that change
//	reshard.go      queues whose numbers of shards change
//	journal.go      their records; recorder.go records calls at the store interface
//	verify.go       reads the journals; rules*.go check each message, and watchers, locks, workers, groups and
//	                limits of queues
//	recovery.go     how soon deliveries resumed; targets.go how soon they should
//	report.go       the result of a run, as a line and as JSON; table*.go summarize runs for docs/reliability.md
//	profile.go      CPU profiles of a run
//
// The tests run each fault for a few seconds; go run ./internal/chaos/cmd/chaos runs them for longer. All processes
// run on one machine and share its clock. Only its own command imports this package.
package chaos
