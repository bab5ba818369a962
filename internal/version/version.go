// Package version makes changes on the condition that the changed thing still has the version that the caller has read.
// It imports package store only.
package version

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/laterq/later/store"
)

// Of returns the version of a thing from its text: a short text that differs for another text.
func Of(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// ErrOther ends a change that its condition does not allow. It is not an ErrConflict, because Replace repeats a change
// after one.
var ErrOther = errors.New("another version")

// Conflict returns the ErrConflict for ErrOther.
func Conflict(what, name string) error {
	return &conflict{fmt.Sprintf("%s %q is not the version that is to be replaced: read it again", what, name)}
}

type conflict struct{ text string }

func (c *conflict) Error() string { return c.text }
func (c *conflict) Unwrap() error { return store.ErrConflict }

// Replace calls try until no other client changes the named thing between the reading and the change.
func Replace(what, name string, try func() error) error {
	for {
		err := try()
		if errors.Is(err, ErrOther) {
			return Conflict(what, name)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
