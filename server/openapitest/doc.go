// Package openapitest has no code. Its tests check the description of the HTTP API, and requests and replies of every
// operation against it, with a library that knows nothing of Later. It is a module of its own because nothing else
// needs that library.
package openapitest
