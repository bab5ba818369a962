// Package later is a reliable delay queue: a message is sent now and delivered when it falls due, at least
// once, never early, and within about a millisecond. It lives in Redis or Valkey, or in an embedded store: a
// directory that this process has open.
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
//	err = worker.Run(ctx) // until ctx ends; then it drains
//
// # Messages
//
// A message is a payload, headers, an id and a due time, in a queue. Until it is due it is scheduled, then
// ready, then leased by whoever claimed it. An ack ends it. After its last failed attempt (20 unless
// MaxAttempts says otherwise), or by Bury, it is dead: set aside with the reason, to be listed, replayed or
// purged. Messages without a delay take the same road. Cancel, Reschedule, RunNow and Get work by id from any
// process.
//
// A Worker runs handlers. The result of a handler settles its message: nil is an ack; an error, a panic and a
// passed time limit are a failed attempt, tried again after the worker's Backoff; RetryIn, Snooze and Bury say
// otherwise. Queue.Receive is for those who would rather ask for messages and settle them themselves.
//
// # What is promised
//
//   - A message whose Send returned nil is delivered until it is acked, buried, cancelled, expired or out of
//     attempts. It may be delivered more than once: when a worker dies or stalls after its work and before its
//     ack. Handlers should therefore be able to run twice; Message.ID is the same each time.
//   - At any time at most one lease can settle a message. Who has lost the lease is told: settles are refused
//     with ErrLeaseLost, and a handler's context ends with that cause.
//   - Time is whole milliseconds of the store's clock. A delay is added to it inside the store, so no
//     client's clock matters. Nothing is delivered before it is due.
//   - An id is one living message of its queue. Sending it again changes nothing and says so, so a Send whose
//     reply was lost can be repeated with the same id.
//   - Nothing vanishes: what cannot be delivered is dead, and stays until it is purged. A message that kills
//     its workers runs out of attempts too.
//   - A worker claims what its free handlers can take, and about 20 ms of work ahead when handlers are fast
//     (see WorkerConfig.MaxPrefetch). When it shuts down it gives back the rest at once.
//
// How durable a message is that was accepted depends on the store: see the README for Redis persistence and
// failover. In the embedded store it is on the disk, unless the URL says otherwise.
//
// # Stores
//
// Open knows redis://, rediss://, unix://, redis+sentinel://, redis+cluster:// and mem://, which is memory for tests.
// The embedded store's file:///directory comes with an import:
//
//	import _ "github.com/laterq/later/diskstore"
//
// One process at a time has its directory open; see docs/embedded.md. New takes a store that the program made.
//
// # Limits
//
// They are constants of package store, and checked before anything is sent: payloads up to 1 MiB, 64 headers
// with 16 KiB in all, ids and queue names up to 128 bytes of UTF-8 without control characters (names without
// braces), delays up to 100 years, leases of 10 ms to 24 hours.
//
// # Errors
//
// Errors are of the kinds ErrInvalid, ErrTooLarge, ErrNotFound, ErrDuplicate, ErrLeased, ErrDead, ErrLeaseLost,
// ErrFull, ErrNotDurable, ErrUnavailable, ErrUnsupported, ErrCorrupt and ErrClosed: test with errors.Is. CodeOf
// gives each kind's stable code, the same in Go and in the exit of the later command.
//
// # Speed
//
// Sends from many goroutines, and the settles of a worker, travel together: one goes at once while few calls
// are on their way, and under load they gather by themselves; the acks of a claim of 64 messages or more wait up to 2 ms
// for each other. To be fast, send from many goroutines or by
// SendBatch. One Client serves a whole process.
//
// The package imports package store and the engines whose URLs Open always knows.
package later
