//go:build unix

package diskstore

import (
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestReserveTakesUpItsSpace(t *testing.T) {
	dir := t.TempDir()
	before, err := vfs.Default.GetDiskUsage(dir)
	if err != nil || before.AvailBytes < reserveOfFree*maxReserve {
		t.Skipf("%v, or too little room (%d bytes)", err, before.AvailBytes)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, err := os.Open(s.reserve.path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() != maxReserve {
		t.Fatalf("the reserve has %d bytes, %v, want %d", info.Size(), err, maxReserve)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Blocks*512 < maxReserve {
		t.Errorf("the reserve takes up %d bytes, want %d", stat.Blocks*512, maxReserve)
	}
	if _, err := io.Copy(io.Discard, f); err != nil {
		t.Error(err)
	}
}
