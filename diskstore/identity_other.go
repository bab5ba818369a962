//go:build !unix

package diskstore

// identity is empty: on Windows no open file can be moved or removed, nor a directory with one in it.
type identity struct{}

func identify(string) (identity, error) { return identity{}, nil }

// ownerOf returns false: users are no numbers here.
func ownerOf(string) (uid int, ok bool) { return 0, false }
