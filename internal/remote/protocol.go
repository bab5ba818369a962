// Package remote carries the store contract over HTTP and over sockets: Server serves a store, and Client is a store
// that calls one. The engines remotestore and diskstore use it. Of Later, it imports the store contract and the codec.
// Start reading at operation, which is one call of the contract for both sides.
//
// # Protocol
//
// A call is a POST to Path and the name of its operation. The bodies of request and reply are a codec's encoding of
// request and reply, of the type MediaType, which names the version (version.go). A reply with another status than 200
// comes from something else than the store. The reply to a call that may take long, such as a Wait, is a stream of
// frames, with a sign of life from the server each second (frames.go). A client that hears nothing gives the connection
// up and repeats the call on another one (watchdog.go). Watch and Check are answered by a stream of several replies.
//
// At a socket of the same machine, all calls but these two go without HTTP, with the same frames and beats
// (connection.go, serve.go).
//
// A call that changes something carries the session and number of a store.Request, and is repeated with the same when
// its reply is lost. The server remembers the last reply of each session (memory.go), so a repetition has no further
// effect. The server also passes the Request on to the store, which may remember it after the server has ended. A Claim
// is not executed if its caller has gone. It is undone if its reply cannot be delivered: the server releases its
// messages.
//
// The bytes of large calls that a server handles at a time are limited (budget.go).
package remote

import (
	"time"

	"github.com/laterq/later/store"
)

const (
	// Path is where a server is mounted.
	Path       = "/v1/store/"
	maxRequest = 16 << 20 // bytes; the largest call has two messages of a little more than MaxBatchBytes
	maxReply   = 64 << 20
	// maxWait is how long a Wait takes before the server answers and the client asks again. It limits how long a Wait
	// can take notifications after its client has disappeared.
	maxWait = 10 * time.Second
	// maxCall is how long a call can take that the server goes on with when its client is gone.
	maxCall = 2 * store.MaxConfirm
)

// request is the body of a call.
type request[A any] struct {
	// Session and Number come from a store.Request; both are zero for a call that changes nothing.
	Session string
	Number  int64
	// Timeout is how long the caller waits; 0 is without limit.
	Timeout time.Duration
	Patient bool // see store.Patient
	Args    A
}

// reply is the body of a call's reply, or a part of a stream.
type reply[R any] struct {
	Result R
	Err    error
}
