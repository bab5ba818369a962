// Package later is a reliable delay queue on Redis, Valkey or an embedded store.
//
// A message is sent now and delivered when it falls due: at least once, never early, and within about a
// millisecond. The embedded store keeps messages in a directory that the processes of one machine share.
//
//	client, err := later.Open(ctx, "redis://localhost:6379/0") // or file:///directory, or mem:// for tests
//	defer client.Close()
//
//	orders := client.Queue("orders")
//	id, err := orders.Send(ctx, []byte("order 1001"), later.In(30*time.Minute))
//
//	worker := later.NewWorker(client, later.WorkerConfig{})
//	worker.Handle("orders", func(ctx context.Context, m *later.Message) error {
//		return cancelIfUnpaid(ctx, m.Payload)
//	})
//	err = worker.Run(ctx) // blocks until ctx ends, then drains
//
// # Messages
//
// A message has a payload, headers, an id and a due time, and belongs to a queue. It is scheduled until it
// is due, then ready, then leased by the worker or receiver that claimed it. An ack removes it. After its
// last failed attempt (20 unless MaxAttempts is set), or after a Bury, it is dead: it is kept with the
// reason, and can be listed, replayed or purged. Messages without a delay go through the same states.
// Cancel, Reschedule, RunNow and Get work by id from any process.
//
// A Worker runs handlers. The result of a handler settles its message: nil is an ack, and an error, a panic
// or an exceeded time limit is a failed attempt, which is retried after the worker's Backoff. RetryIn,
// Snooze and Bury override that, even after the time limit. Then acks and sends follow-ups in one step. A Mux
// selects handlers by the kind of a message, and HandleBatch handles several messages at once. Use
// Queue.Receive to pull messages and settle them yourself, and Worker.Forward to move them to another queue, or
// to a Redis list, stream or channel.
//
// # Guarantees
//
//   - After its Send has returned nil, a message is delivered until it is acked, buried, cancelled, expired or out
//     of attempts. It may be delivered more than once, for example when a worker dies or stalls between its
//     work and its ack. Handlers should therefore tolerate running twice; Message.ID is the same each time.
//   - At most one lease can settle a message at any time. A holder that lost its lease finds out: its
//     settles are refused with ErrLeaseLost, and its handler's context ends with that cause.
//   - Time is measured in whole milliseconds of the store's clock. The store adds a delay to its own clock,
//     so no client's clock matters. No message is delivered before it is due.
//   - An id belongs to one live message of its queue. Sending a live id again changes nothing and returns
//     ErrDuplicate, so a Send can safely be repeated with the same id after a lost reply. OnDuplicate has it
//     replace or follow the message instead.
//   - No message vanishes. A message that cannot be delivered becomes dead and is kept until it is purged.
//     A message that kills its workers runs out of attempts too.
//   - A worker claims as much as its free handlers can take, and about 20 ms of work ahead when handlers are fast
//     (see WorkerConfig.MaxPrefetch). On shutdown it releases the rest at once.
//
// How durable an accepted message is depends on the store. The README describes Redis persistence and
// failover. In the embedded store the message is on disk, unless the URL says otherwise.
//
// # Stores
//
// Open supports redis://, rediss://, unix://, redis+sentinel:// and redis+cluster://, and mem:// for tests.
// To use file:///directory, import the embedded store:
//
//	import _ "github.com/laterq/later/diskstore"
//
// Processes that open the same directory share it; see docs/embedded.md. http:// and https:// are stores that
// later serve, or a remotestore.Handler, shares over the network. New takes a store that the program has created.
//
// # Limits
//
// Limits are constants of package store and are checked before anything is sent: payloads up to 1 MiB; 64
// headers with 16 KiB in all; ids, groups and queue names up to 128 bytes of UTF-8 without control characters (and
// without braces in queue names); delays up to 100 years; leases of 10 ms to 24 hours.
//
// # Errors
//
// Errors are of the kinds ErrInvalid, ErrTooLarge, ErrNotFound, ErrDuplicate, ErrLeased, ErrDead,
// ErrConflict, ErrLeaseLost, ErrFull, ErrNotDurable, ErrUnavailable, ErrMisconfigured, ErrUnauthenticated,
// ErrForbidden, ErrUnsupported, ErrCorrupt and ErrClosed. Test for them with errors.Is. CodeOf returns the stable code
// of a kind, such as "not_found"; the later command has an exit code for each.
//
// # Options
//
// An option is named after its effect: In, At, MaxAttempts, Timeout, Header, Kind, ExpireAfter, DedupWindow, Group,
// OnDuplicate, Once, Durable, Lease. It has the prefix With only where the bare name is a type or a function, or would
// read as something else: WithID, WithLogger, WithObserver. The engines' options follow the same rule.
//
// A wrong configuration is an error of the configured call: nothing panics, nothing is ignored, and nothing fails
// later. Two calls without a result report to the next one: a Queue with a name that is not allowed returns ErrInvalid
// from every method, and Worker.Run returns the errors of NewWorker, Handle and a Mux before it does anything.
//
// # Performance
//
// Concurrent sends, and the settles of a worker, are batched automatically. A call goes out at once while few are in
// flight; under load, calls wait for the ones in flight and travel together. The acks of a claim of 64 or more messages
// wait up to 2 ms for each other. For throughput, send from many goroutines or use SendBatch. One Client is enough for
// a process.
//
// This package imports package store and the engines with URLs that Open always supports.
package later
