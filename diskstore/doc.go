// Package diskstore is Later's embedded durable engine: the whole store contract in one directory, inside the process,
// on Pebble (ordered keys in a log-structured merge tree). Of Later, it imports the store contract, the message
// envelope, rates, the turns of keys, precise timers, and the contract over sockets. Import it for its URL scheme,
// file:///absolute/dir (processes share the directory, share.go), or call Open. Start reading with open.go, store.go
// and keys.go, which is the layout.
//
// # Durability
//
// A call returns nil only after its changes, and everything that it was shown, are fsynced. Calls that come at the
// same time share one fsync. SyncEvery (in the URL: sync=100ms) trades that for speed. A claim in which nothing died
// returns when it is written to the log, before the fsync: a killed process does not undo it, a power failure may,
// and then its messages are ready again (sync.go).
//
// # One writer
//
// One goroutine owns all state and executes all changes, one after the other, in groups: one write to the log each
// (writer.go). So a call is one atomic step without any lock. Short calls go first when leases and due times depend on
// them, and queues take turns (request.go), so that a flood of messages to one queue delays others by two groups at
// most. A second goroutine waits for the fsyncs and lets the callers go. Open starts both goroutines, and Close ends
// them.
//
// # Reads
//
// Get, List, Queues, Histogram and the counting for Stats read snapshots while the writer goes on (reader.go). Removed
// entries leave tombstones, and a scan has to step over each of them; the indexes learn which ranges are empty, and
// scans skip them (index.go).
//
// # Memory
//
// The memory holds some counters, the limits and the leases of each queue. Everything else is read when it is needed,
// so the disk bounds the number of pending messages, except in a Fair queue: the ids of its ready messages that claims
// have sorted by key are in memory (lanes.go). The numbers of messages that fall due in each part of the time are
// stored (counts.go).
//
// # Sub-queues
//
// A queue with shards is several queues here. They are renamed, and messages move between them, as store.SubQueues says
// (subqueue.go, parcel.go).
//
// # Damage
//
// Pebble checks every block of a table and every record of a log against a checksum. Open refuses a damaged directory
// with ErrCorrupt, naming the file: a missing or cut table, a manifest that is damaged before its last record, and, if
// the store was closed in good order, any file that does not end cleanly (log_files.go). After a crash the end of the
// last log may be torn; Pebble cuts it, and nothing that was acknowledged is in it. A damaged block of a table is found
// when it is read: the call that needs it returns ErrCorrupt, and all others go on. A queue that contradicts itself is
// refused. Check checks everything, Inspect checks a store that cannot be opened, and Recover copies all readable
// messages to a new store and rebuilds its indexes (recover.go).
//
// # A full disk
//
// Send leaves room for claims and acks (room.go). Since others write to the disk too, more is reserved in the file
// RESERVE, which is freed when the log, or a table made of it, finds no room (reserve.go). When that is used up, too,
// all changes are refused until there is room; changes that make room are refused last (room.go).
//
// # One owner
//
// A process locks the directory and the file LOCK in it, and stops when either of them, or HOLDER, is replaced or
// removed (owner.go). A store that stopped lets nothing pass to the disk any more, and then gives up its
// locks, so that another process can open the directory.
//
// # Formats
//
// A change of the stored keys or values raises the format, and Open refuses others (keys.go).
package diskstore
