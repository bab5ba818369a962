// Package rawio reads and writes files that do not block, such as sockets of the runtime's poller, without package
// syscall. That tells the runtime of each call, which then wakes a thread that looks for calls that block: in a process
// that does little else, this takes longer than the call. The package is for Linux, and imports nothing of Later.
package rawio
