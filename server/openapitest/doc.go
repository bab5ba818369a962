// Package openapitest has no code. Its tests check the description of the HTTP API, and requests and replies of every
// operation against it, with a library that knows nothing of Later, and that generators of clients for Go and
// TypeScript make code from it that compiles. It is a module of its own because nothing else needs these.
package openapitest
