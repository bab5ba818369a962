package diskstore

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/laterq/later/store"
)

// stateFile tells how far the directory's last user came: what a log or manifest is missing at its end is damage
// where it was closed in good order, and may be a crash where it was not.
const stateFile = "STATE"

// The phases of a directory's use.
const (
	opening = "opening" // the log may not exist yet
	opened  = "open"    // there is a log
	closed  = "closed"  // and it, and the manifest, end in good order
)

// state is what stateFile says.
type state struct {
	phase string           // "" when there is no such file
	run   uint64           // of the marks in the log
	files map[string]int64 // closed: the manifest and the logs, with their sizes
}

func (st *state) String() string {
	b := fmt.Appendf(nil, "%s %016x\n", st.phase, st.run)
	for _, name := range slices.Sorted(maps.Keys(st.files)) {
		b = fmt.Appendf(b, "%s %d\n", name, st.files[name])
	}
	return string(b)
}

func parseState(text string) (st state, err error) {
	first, rest, _ := strings.Cut(text, "\n")
	phase, run, _ := strings.Cut(first, " ")
	if st.run, err = strconv.ParseUint(run, 16, 64); err != nil || !slices.Contains([]string{opening, opened, closed}, phase) {
		return state{}, corrupt("%s says %q, which is none of this format", stateFile, text)
	}
	st.phase, st.files = phase, map[string]int64{}
	for line := range strings.Lines(rest) {
		name, size, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if st.files[name], err = strconv.ParseInt(size, 10, 64); err != nil {
			return state{}, corrupt("%s says %q, which is none of this format", stateFile, line)
		}
	}
	return st, nil
}

func (d *directory) readState() (state, error) {
	text, err := d.readFile(stateFile)
	if errors.Is(err, os.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("%w: reading %s: %w", store.ErrUnavailable, d.dir, err)
	}
	return parseState(text)
}

func (d *directory) writeState(st state) error {
	if err := d.writeFile(stateFile, st.String()); err != nil {
		return fmt.Errorf("%w: writing to %s: %w", store.ErrUnavailable, d.dir, err)
	}
	return nil
}

// noteClosed notes that the store was closed in good order.
func (s *Store) noteClosed() error {
	st, err := s.closedState(s.run)
	if err != nil {
		return s.reading(err)
	}
	return s.writeState(st)
}

// closedState takes down the files of a store that was closed in good order.
func (d *directory) closedState(run uint64) (state, error) {
	st := state{closed, run, map[string]int64{}}
	names, err := d.fs.List(d.dir)
	if err != nil {
		return state{}, err
	}
	current, err := d.currentManifest(names)
	if err != nil {
		return state{}, err
	}
	for _, name := range names {
		if _, log := logNumber(name); !log && name != current {
			continue
		}
		info, err := d.fs.Stat(d.fs.PathJoin(d.dir, name))
		if err != nil {
			return state{}, err
		}
		st.files[name] = info.Size()
	}
	return st, nil
}
