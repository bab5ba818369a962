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
//
// # Damage
//
// Open looks at the manifest and the logs before Pebble does (survey.go), and refuses what is damaged with
// ErrCorrupt: where Pebble reads a log or its list of files up to what it cannot read, this reads on behind it
// (chunk.go), and finds in the logs what had been fsynced (mark.go) and in the file STATE how the directory was
// left. A torn end of the last log or of the manifest is what a crash leaves; it is cut off and told. A block of a
// table is compared with its checksum when it is read: the call that needs it gets ErrCorrupt, and all others go on.
// Examine checks everything and repairs what contradicts itself, Inspect the files of a store that cannot be opened,
// and Salvage makes a new store of what can still be read.
//
// # A full disk
//
// Send leaves 256 MiB. Since others write to the disk too, 64 MiB more are in the file BALLAST, which goes when the
// log, or a table made of it, finds no room (reserve.go). When there is none any more the store stops.
package diskstore
