// Package batch has sends and settles of one process travel together.
//
// A call to a store costs as much as several messages do, so items of many goroutines share one. Batcher decides which
// items travel together and when they go. Sends is what a queue sends with: batchers for the kinds of sends that cannot
// share a call. The package works on the types of package store and imports nothing else of the module. Start reading
// at Sends.Do.
package batch
