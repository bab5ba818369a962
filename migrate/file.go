package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/laterq/later"
	"github.com/laterq/later/store"
)

// ExportFile exports to a file, which only its owner can read, and returns when it is on disk. A file that exists is
// refused with ErrInvalid, unless resume is set: then an incomplete last line is cut off and the export goes on after
// the last complete one, and one that is complete is left alone. A file that is not an export of Later is ErrInvalid
// and left alone. Otherwise it is Export; cfg.Resume is not used, and with a Filter nothing can be resumed.
func ExportFile(
	ctx context.Context, client *later.Client, path string, resume bool, cfg ExportConfig,
) (result ExportResult, err error) {
	if err := cfg.checkFilter(resume); err != nil {
		return result, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	made := err == nil
	if errors.Is(err, fs.ErrExist) {
		if !resume {
			return result, store.Invalid("file %s exists: give another name, or resume the export that it holds", path)
		}
		f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		return result, err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	cfg.Resume = nil
	if !made {
		if cfg.Resume, err = ReadPosition(f); err != nil {
			return result, fmt.Errorf("resuming the export in %s: %w", path, err)
		}
		if cfg.Resume.Complete {
			return Export(ctx, client, io.Discard, cfg)
		}
		if err := f.Truncate(cfg.Resume.Size); err != nil {
			return result, err
		}
		if _, err := f.Seek(cfg.Resume.Size, io.SeekStart); err != nil {
			return result, err
		}
	}
	result, err = Export(ctx, client, f, cfg)
	if info, statErr := f.Stat(); made && statErr == nil && info.Size() == 0 { // as with a queue that does not exist
		return result, errors.Join(err, os.Remove(path))
	}
	if synced := f.Sync(); synced != nil {
		result.Complete = false
		err = errors.Join(err, writing(synced))
	}
	return result, err
}
