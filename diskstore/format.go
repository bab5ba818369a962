package diskstore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/laterq/later/store"
)

// formatFile identifies the directory, in up to three lines: the format of the keys, Pebble's format, and
// unfinishedLine while the store is being created.
const formatFile = "LATER"

const (
	// formatVersion is the version of the keys and values in keys.go and record.go. A change of them raises it.
	formatVersion = 9
	// pebbleFormat is the format of Pebble's files. It is pinned, so that a program that selects a newer Pebble for
	// another reason still writes directories that this version reads.
	pebbleFormat = pebble.FormatTableFormatV6

	unfinishedLine = "unfinished\n"
)

// formatText is the content of formatFile.
var formatText = fmt.Sprintf("later diskstore %d\npebble format %d\n", formatVersion, pebbleFormat)

// readFormat reports whether the directory is new: it holds nothing but files of an interrupted first open. A directory
// of another format, or with any other content, is refused with ErrUnsupported.
func (d *directory) readFormat() (isNew bool, err error) {
	text, err := d.readFile(formatFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, d.checkEmpty()
	case err != nil:
		return false, d.readError(err)
	}
	var keys, files int
	n, _ := fmt.Sscanf(text, "later diskstore %d\npebble format %d\n", &keys, &files)
	switch {
	case n == 0 || n == 1 && keys == formatVersion:
		return false, corrupt("%s of %s is %q, which names no format: restore the directory from a backup",
			formatFile, d.dir, text)
	case keys > formatVersion || files > int(pebbleFormat):
		return false, fmt.Errorf("%w: %s has the format %q and this version of Later reads %q: use the version "+
			"that wrote it, or a later one", store.ErrUnsupported, d.dir, oneLine(text), oneLine(formatText))
	case keys < formatVersion:
		return false, fmt.Errorf("%w: %s has the format %q and this version of Later reads %q: export its messages with "+
			"the version that wrote it, later export --store %s --file FILE, and give them to a new directory with this "+
			"one, later import --store NEWDIR < FILE", store.ErrUnsupported, d.dir, oneLine(text), oneLine(formatText),
			d.url())
	}
	return strings.HasSuffix(text, unfinishedLine), nil
}

func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", ", ") }

// checkEmpty refuses a directory that holds other people's files.
func (d *directory) checkEmpty() error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return d.readError(err)
	}
	for _, name := range names {
		switch name {
		case lockFile, holderFile, holderFile + newSuffix, formatFile + newSuffix, socketFile, socketFile + newSuffix:
			continue
		case formatFile: // another process has created the store since
			return nil
		}
		return fmt.Errorf("%w: %s holds %s and is not a store of Later: give an empty or a new directory",
			store.ErrUnsupported, d.dir, name)
	}
	return nil
}

// beginCreation marks the directory as unfinished and removes the files of an interrupted creation. Nothing was
// acknowledged in a store that is unfinished.
func (d *directory) beginCreation() error {
	if err := d.writeFile(formatFile, formatText+unfinishedLine); err != nil {
		return d.writeError(err)
	}
	names, err := d.fs.List(d.dir)
	if err != nil {
		return d.readError(err)
	}
	for _, name := range names {
		if name == lockFile || name == holderFile || name == formatFile {
			continue
		}
		if err := d.fs.Remove(d.fs.PathJoin(d.dir, name)); err != nil {
			return d.writeError(err)
		}
	}
	return nil
}

// endCreation marks the store as complete.
func (d *directory) endCreation() error {
	if err := d.writeFile(formatFile, formatText); err != nil {
		return d.writeError(err)
	}
	return nil
}
