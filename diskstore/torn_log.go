package diskstore

import (
	"errors"
	"io/fs"
	"log/slog"
)

// relaxedFile exists while the log of a store may be torn by a power failure: with SyncEvery, the disk may keep later
// blocks of it and lose earlier ones. Pebble takes such a log for damaged, because it was told that each block was
// synced.
const relaxedFile = "RELAXED"

const relaxedText = "The log was written with SyncEvery. After a power failure it ends at its first hole.\n"

// cutTornLog cuts the last log at its first hole, if it was written with SyncEvery. Nothing behind the hole was synced.
// Earlier logs have no hole, since a log is synced when the next one begins.
func (d *directory) cutTornLog(logger *slog.Logger) error {
	if relaxed, err := d.isRelaxed(); !relaxed || err != nil {
		return err
	}
	logs, err := d.logFiles()
	if err != nil || len(logs) == 0 {
		return err
	}
	name := logs[len(logs)-1]
	lost, err := d.readLog(name, func(int64, []byte) {})
	if err != nil || len(lost) == 0 {
		return err
	}
	at := lost[0].from
	text, err := d.readFile(name)
	if err != nil {
		return d.readError(err)
	}
	if at >= int64(len(text)) {
		return nil // it only ends early, as after every crash
	}
	logger.Info("later: the log ends at its first hole; what was synced is before it", "dir", d.dir, "file", name,
		"byte", at, "of", len(text))
	if err := d.writeFile(name, text[:at]); err != nil {
		return d.writeError(err)
	}
	return nil
}

func (d *directory) isRelaxed() (bool, error) {
	_, err := d.readFile(relaxedFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, d.readError(err)
	}
	return true, nil
}

// setRelaxed creates or removes relaxedFile, durably.
func (d *directory) setRelaxed(relaxed bool) error {
	was, err := d.isRelaxed()
	if was == relaxed || err != nil {
		return err
	}
	if relaxed {
		err = d.writeFile(relaxedFile, relaxedText)
	} else {
		err = errors.Join(d.fs.Remove(d.fs.PathJoin(d.dir, relaxedFile)), d.syncDirectory(d.dir))
	}
	if err != nil {
		return d.writeError(err)
	}
	return nil
}
