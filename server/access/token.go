package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// NewToken returns a token with 130 random bits, and its SHA-256 in hexadecimal digits for the configuration file.
func NewToken() (token, hash string) {
	token = "later_" + rand.Text()
	digits := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(digits[:])
}
