package diskstore

import (
	"fmt"
	"math/bits"
)

// formatBytes formats a size for people.
func formatBytes(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	unit := (bits.Len64(n) - 1) / 10
	return fmt.Sprintf("%.1f %ciB", float64(n)/float64(uint64(1)<<(10*unit)), "KMGTPE"[unit-1])
}
