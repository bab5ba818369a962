// Package report reports the events of this process to the store, and receives the events of all processes.
//
// A Reporter counts the events of each queue, and collects their details while a watcher is there. A Watch receives
// them. The package works on the types of package store; it also imports internal/event for the kinds of events and
// internal/wire for their encoding. Start reading at Reporter.next, which decides when events are reported.
package report
