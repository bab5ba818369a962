package access

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/laterq/later/store"
)

// reader reads the file that a value names.
type reader func(value) ([]byte, error)

// files are the configuration file and the files that it names.
type files struct {
	dir  string // of the configuration file
	read []string
	sums []sum
}

type sum = [sha256.Size]byte

// open reads a file.
func (f *files) open(name string) ([]byte, error) {
	text, err := readFile(name)
	f.read, f.sums = append(f.read, name), append(f.sums, sumOf(text, err))
	return text, err
}

// named reads a file that the configuration file names, relative to its own directory.
func (f *files) named(v value) ([]byte, error) {
	name, err := v.text()
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(f.dir, name)
	}
	text, err := f.open(name)
	if err != nil {
		return nil, v.errorf("cannot be read: %v", err)
	}
	return text, nil
}

// changed reports whether a file has changed since it was read.
func (f *files) changed() bool {
	for i, name := range f.read {
		if sumOf(readFile(name)) != f.sums[i] {
			return true
		}
	}
	return false
}

// sumOf returns a hash of a file's content, or of the error of reading it.
func sumOf(text []byte, err error) sum {
	if err != nil {
		text = fmt.Append(nil, "error: ", err)
	}
	return sha256.Sum256(text)
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		return nil, store.TooLarge("%s has more than %d bytes", name, maxFile)
	}
	return text, err
}

// load reads the configuration file.
func load(name string) (*settings, *files, error) {
	f := &files{dir: filepath.Dir(name)}
	text, err := f.open(name)
	if err != nil {
		return nil, f, store.Invalid("access control: %v", err)
	}
	s, err := parseSettings(text, f.named)
	if err != nil {
		return nil, f, fmt.Errorf("%s: %w", name, err)
	}
	return s, f, nil
}
