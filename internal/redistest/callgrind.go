package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// Callgrind is a command for Under with which Instructions counts. Its files are relative to the directory of the
// server.
var Callgrind = []string{"valgrind", "--tool=callgrind", "--callgrind-out-file=callgrind.out", "--vgdb-prefix=vgdb"}

// CannotCount returns why instructions cannot be counted here, nil if they can.
func CannotCount() error {
	if _, err := exec.LookPath("callgrind_control"); err != nil {
		return errors.New("valgrind is missing: apt-get install valgrind")
	}
	return nil
}

var totals = regexp.MustCompile(`(?m)^totals: (\d+)$`)

// Instructions returns how many thousand instructions the server executes during calls. It hardly depends on the
// machine and its load, unlike the time.
func (s *Server) Instructions(ctx context.Context, calls func() error) (float64, error) {
	if err := s.callgrind(ctx, "--zero"); err != nil {
		return 0, err
	}
	before, err := s.dumps()
	if err = errors.Join(err, calls()); err != nil {
		return 0, err
	}
	if err := s.callgrind(ctx, "--dump"); err != nil {
		return 0, err
	}
	after, err := s.dumps()
	if err != nil {
		return 0, err
	}
	if len(after) != len(before)+1 {
		return 0, fmt.Errorf("callgrind wrote %d files, want 1", len(after)-len(before))
	}
	text, err := os.ReadFile(filepath.Join(s.Dir(), fmt.Sprint("callgrind.out.", len(after))))
	found := totals.FindSubmatch(text)
	if err != nil || found == nil {
		return 0, fmt.Errorf("callgrind wrote no totals: %w", err)
	}
	sum, err := strconv.ParseFloat(string(found[1]), 64)
	return sum / 1000, err
}

// dumps returns the files that callgrind has written.
func (s *Server) dumps() ([]string, error) {
	return filepath.Glob(filepath.Join(s.Dir(), "callgrind.out.*"))
}

// callgrind gives callgrind a command.
func (s *Server) callgrind(ctx context.Context, command string) error {
	cmd := exec.CommandContext(ctx, "callgrind_control", "--vgdb-prefix=vgdb", command, strconv.Itoa(s.PID()))
	cmd.Dir = s.Dir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("callgrind_control %s: %w: %s", command, err, out)
	}
	return nil
}
