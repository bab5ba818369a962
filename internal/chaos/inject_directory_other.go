//go:build unix && !linux

package chaos

import "errors"

func exchange(a, b string) error { return errors.New("directories can be exchanged on Linux only") }

func mountDisk(string) error { return errNoDisk }

func unmountDisk(string) error { return nil }
