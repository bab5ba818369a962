package store

import "context"

// Backuper is implemented by stores that can copy themselves while they are in use.
type Backuper interface {
	// Backup writes a consistent copy of the whole store to the new directory dir while calls go on, and verifies
	// it. The copy contains everything that was acknowledged before the call. The directory appears only when the
	// copy is complete and verified.
	//
	// Errors: ErrInvalid when dir is not a place for a copy, ErrFull when its disk has too little room, ErrCorrupt
	// when the copy does not verify, ErrUnavailable, ErrClosed, the cause of ctx. After an error there is no copy.
	Backup(ctx context.Context, dir string) error
}
