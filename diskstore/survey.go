package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/laterq/later/store"
)

// survey is what a look at a directory found before anything in it is changed.
type survey struct {
	state    state
	manifest *manifest         // nil when there is none yet
	tables   map[uint64]uint64 // the tables that the manifest lists, by number, and their sizes
	logs     []logFile         // those that are not in tables yet, by number
	faults   []fault           // what must stop an open
	tears    []tear
}

// fault is damage to a file.
type fault struct{ file, text string }

// tear is the end of a file that a crash left behind unfinished. Nothing that was acknowledged is in it.
type tear struct {
	file     string
	at, size int64
}

func (v *survey) fault(file, format string, args ...any) {
	v.faults = append(v.faults, fault{file, fmt.Sprintf(format, args...)})
}

// survey reads the manifest and the logs, and sees that the files are there. An error is one of reading the
// disk; damage is in the result.
func (d *directory) survey() (*survey, error) {
	v := &survey{}
	names, err := d.fs.List(d.dir)
	if err != nil {
		return nil, d.reading(err)
	}
	slices.Sort(names)
	if v.state, err = d.readState(); errors.Is(err, store.ErrCorrupt) {
		v.fault(stateFile, "%v", err)
	} else if err != nil {
		return nil, err
	}
	if err := d.surveyManifest(v, names); err != nil {
		return nil, err
	}
	if v.manifest == nil || v.manifest.damage != "" {
		return v, nil // nobody knows which files there should be
	}
	if err := d.surveyTables(v); err != nil {
		return nil, err
	}
	if err := d.surveyLogs(v, names); err != nil {
		return nil, err
	}
	v.connect(names)
	for name, size := range v.state.files {
		if info, err := d.fs.Stat(d.fs.PathJoin(d.dir, name)); errors.Is(err, fs.ErrNotExist) {
			v.fault(name, "it is missing, and was there when the store was closed")
		} else if err != nil {
			return nil, d.reading(err)
		} else if info.Size() != size {
			v.fault(name, "it has %d bytes, and had %d when the store was closed", info.Size(), size)
		}
	}
	return v, nil
}

func (d *directory) surveyManifest(v *survey, names []string) error {
	current, err := d.currentManifest(names)
	if err != nil {
		v.fault("marker.manifest", "%v", err)
		return nil
	}
	if current == "" {
		// The store was never made, or not to its end; unless there is what only a made one has.
		if v.state.phase == opened || v.state.phase == closed {
			v.fault("marker.manifest", "it is missing, and was there when the store was used")
		}
		for _, name := range names {
			if _, ok := tableNumber(name); ok {
				v.fault("marker.manifest", "it is missing, and there are tables such as %s", name)
				break
			}
		}
		return nil
	}
	v.manifest, err = readManifest(d.fs, d.dir, current)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.fault(current, "it is missing")
		return nil
	case err != nil:
		return d.reading(err)
	case v.manifest.damage != "":
		v.fault(current, "%s", v.manifest.damage)
	case v.manifest.torn > 0:
		v.tears = append(v.tears, tear{current, v.manifest.size - v.manifest.torn, v.manifest.torn})
	}
	if value, err := atomicfs.ReadMarker(d.fs, d.dir, "format-version"); err != nil || value == "" {
		v.fault("marker.format-version", "it is missing or cannot be read (%v)", err)
	}
	return d.surveyOptions(v, names)
}

// surveyOptions sees that Pebble can read its last options, which it compares with ours.
func (d *directory) surveyOptions(v *survey, names []string) error {
	last := ""
	for _, name := range names { // in order: the numbers have as many digits
		if strings.HasPrefix(name, "OPTIONS-") {
			last = name
		}
	}
	if last == "" {
		return nil
	}
	text, err := d.readFile(last)
	if err != nil {
		return d.reading(err)
	}
	options := &pebble.Options{FS: d.fs}
	options.EnsureDefaults()
	if err := options.CheckCompatibility(d.dir, text); err != nil || !strings.Contains(text, "[Options]") {
		v.fault(last, "it cannot be read (%v)", err)
	}
	return nil
}

func (d *directory) surveyTables(v *survey) error {
	v.tables = v.manifest.live()
	for number, size := range v.tables {
		name := tableName(number)
		info, err := d.fs.Stat(d.fs.PathJoin(d.dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			v.fault(name, "it is missing")
		case err != nil:
			return d.reading(err)
		case uint64(info.Size()) != size:
			v.fault(name, "it has %d bytes instead of %d", info.Size(), size)
		}
	}
	slices.SortFunc(v.faults, func(a, b fault) int { return strings.Compare(a.file, b.file) })
	return nil
}

func (d *directory) surveyLogs(v *survey, names []string) error {
	for _, name := range names {
		number, ok := logNumber(name)
		if !ok || number < v.manifest.minLog {
			continue
		}
		l, err := readLog(d.fs, d.dir, name, number, v.state.run)
		if err != nil {
			return d.reading(err)
		}
		v.logs = append(v.logs, l)
	}
	slices.SortFunc(v.logs, func(a, b logFile) int { return int(int64(a.number) - int64(b.number)) })
	for i := range v.logs {
		l := &v.logs[i]
		switch last := i == len(v.logs)-1; {
		case l.damage != "":
			v.fault(l.name, "%s", l.damage)
		case !l.clean && !last:
			v.fault(l.name, "it ends at byte %d, which is not its end: there is a later log", l.whole)
		case !l.clean && v.state.phase == closed:
			v.fault(l.name, "it ends at byte %d, which is not its end: the store was closed in good order", l.whole)
		case l.torn > 0:
			v.tears = append(v.tears, tear{l.name, l.whole, l.torn})
		}
	}
	return nil
}

// connect sees that nothing is missing between the manifest, the logs and the tables.
func (v *survey) connect(names []string) {
	next, records := max(v.manifest.lastSeq+1, firstSeq), 0
	for i := range v.logs {
		l := &v.logs[i]
		if records += l.records; l.first == 0 {
			continue
		}
		if l.first > next {
			v.fault(l.name, "the changes %d to %d are missing before it: an earlier log, or the end of %s, is lost",
				next, l.first-1, v.manifest.name)
		}
		next = max(next, l.next)
	}
	if v.state.phase == opened && len(v.logs) == 0 {
		v.fault("*.log", "there is no log, and there was one when the store was used")
	}
	if v.manifest.torn > 0 && records == 0 {
		// A crash while an edit is written leaves the log behind that the edit makes needless.
		for _, name := range names {
			if number, ok := tableNumber(name); ok && v.tables[number] == 0 && number > v.manifest.highest() {
				v.fault(v.manifest.name, "its last edit cannot be read, and %s is not in it while no log is left", name)
				return
			}
		}
	}
}

// damaged makes the error that stops an open, or nil.
func (d *directory) damaged(v *survey) error {
	if len(v.faults) == 0 {
		return nil
	}
	f, more := v.faults[0], ""
	if n := len(v.faults) - 1; n > 0 {
		more = fmt.Sprintf(" (and %d more)", n)
	}
	return corrupt("%s in %s is damaged: %s%s; %s", f.file, d.dir, f.text, more, d.advice())
}

// advice says what to do about a damaged file.
func (d *directory) advice() string {
	return fmt.Sprintf("see what is damaged with later doctor --store %s, and save what can still be read with "+
		"--salvage NEWDIR besides, or put back a copy of the directory", d.url())
}

// url is what names the directory as a store.
func (d *directory) url() string {
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		dir = d.dir
	}
	path := filepath.ToSlash(dir)
	if !strings.HasPrefix(path, "/") { // C:/later of Windows
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// reading makes an error of one of reading the disk.
func (d *directory) reading(err error) error {
	return fmt.Errorf("%w: reading %s: %w", store.ErrUnavailable, d.dir, err)
}

// The names of Pebble's files.

func (d *directory) currentManifest(names []string) (string, error) {
	name, err := atomicfs.ReadMarker(d.fs, d.dir, "manifest")
	if err == nil && name != "" && !strings.HasPrefix(name, "MANIFEST-") {
		err = fmt.Errorf("it names %q, which is no manifest", name)
	}
	return name, err
}

func tableName(number uint64) string { return fmt.Sprintf("%06d.sst", number) }

func logNumber(name string) (uint64, bool)   { return fileNumber(name, ".log") }
func tableNumber(name string) (uint64, bool) { return fileNumber(name, ".sst") }

func fileNumber(name, suffix string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil
}
