// Package diskstore is Later's embedded durable engine: the whole store contract in one directory, in this
// process, on Pebble (ordered keys in a log-structured merge tree). It imports the store contract, the message
// envelope and Pebble, nothing else of Later. Import it for its URL scheme, file:///absolute/dir, or call Open.
//
// # Durability
//
// A call returns nil only after what it did, and all it was told, is fsynced. Calls that come at the same time
// share one fsync. WithSyncEvery (in the URL: sync=100ms) trades that for speed.
//
// # One writer
//
// One goroutine owns all state and does all calls of all queues, one after the other, in groups: what came
// while the last group was written is the next one. So a call is one atomic step without any lock, and a group
// is one write to the log (group.go). A second goroutine waits for the fsyncs and lets the callers go. Both are
// started by Open and ended by Close.
//
// # What is in memory
//
// Of each queue some counters, and what is leased. Everything else is read when it is needed, so the number of
// pending messages is bounded by the disk. keys.go is the layout.
package diskstore
