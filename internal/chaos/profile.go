//go:build unix

package chaos

import (
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profile writes a CPU profile of this process to dir until the returned function is called.
func profile(dir, actor string) (end func() error, err error) {
	file, err := os.Create(filepath.Join(dir, actor+".pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		file.Close()
		return nil, err
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}
