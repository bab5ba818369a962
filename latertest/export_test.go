package latertest

import "testing"

// SetMaxResults changes the limit of the results of an instant until the end of the test.
func SetMaxResults(t *testing.T, n int) {
	before := maxResults
	maxResults = n
	t.Cleanup(func() { maxResults = before })
}
