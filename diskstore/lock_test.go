package diskstore

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lockDir in the environment makes the test binary a second process that tries to open a directory.
const lockDir = "LATER_DISKSTORE_LOCK"

// TestLockChild is not a test but that second process. It says how its Open ended.
func TestLockChild(t *testing.T) {
	dir := os.Getenv(lockDir)
	if dir == "" {
		t.Skip("runs only as a child")
	}
	s, err := Open(dir)
	_, held := errors.AsType[*HeldError](err)
	switch {
	case err == nil:
		fmt.Println("outcome: opened")
		s.Close()
	case held:
		fmt.Println("outcome: held")
	default:
		fmt.Println("outcome:", err)
	}
}

// openElsewhere opens a directory in a second process and returns how that ended.
func openElsewhere(t *testing.T, dir string) (outcome string) {
	t.Helper()
	out, err := childProcess(t, "TestLockChild", lockDir, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "outcome: "); ok {
			return text
		}
	}
	t.Fatalf("the second process said %s", out)
	return ""
}

func TestLockOutlivesReadersOfItsFile(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	send(t, s, "m")
	if outcome := openElsewhere(t, dir); outcome != "held" {
		t.Errorf("a second process: %s, want held", outcome)
	}
	// As a backup does that walks the directory in the same process.
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) < 5 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if outcome := openElsewhere(t, dir); outcome != "held" {
		t.Errorf("a second process, after the files were read: %s, want held", outcome)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if outcome := openElsewhere(t, dir); outcome != "opened" {
		t.Errorf("a second process, after Close: %s, want opened", outcome)
	}
}

func TestLockOfAFileThatIsReplacedIsTakenAnew(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := os.Remove(filepath.Join(dir, lockFile)); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if outcome := openElsewhere(t, dir); outcome != "held" {
		t.Errorf("a second process: %s, want held", outcome)
	}
}
