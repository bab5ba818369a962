// Package later is a reliable delay queue: a message is sent now and delivered when it falls due.
package later
