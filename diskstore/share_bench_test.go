//go:build unix

package diskstore

import (
	"testing"

	"github.com/laterq/later/store"
)

// BenchmarkCallThroughTheSocket measures the cost of the way to the holder, with a call that finds nothing.
func BenchmarkCallThroughTheSocket(b *testing.B) {
	dir := b.TempDir()
	holder, other := share(b, dir), share(b, dir)
	for name, s := range map[string]store.Store{"direct": holder, "socket": other} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Extend(b.Context(), "q", nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
