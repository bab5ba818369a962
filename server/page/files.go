package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"
)

//go:embed static
var static embed.FS

// versionPrefix begins the folder that stands for a version of all files, as in assets/v-0a1b2c3d/style.css.
const versionPrefix = "v-"

// site has the files of the page in memory.
type site struct {
	files   map[string]*file // by their path in static/
	version string           // changes when a file does
}

type file struct {
	contentType string
	plain       []byte
	gzipped     []byte // nil if that is not shorter
	hash        string
}

var contentTypes = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".json": "application/json",
	".png":  "image/png",
	".svg":  "image/svg+xml",
}

// unneeded are comments and indentation, which are a tenth of the bytes that a browser would load. No text in these
// files has " // " or lines that look like a comment.
var unneeded = regexp.MustCompile(`(?m)^\s*//.*\n|^\s*/\*.*\*/\n|^\s+|[ \t]+// .*$`)

// aroundBraces is space that a style sheet does not need.
var aroundBraces = regexp.MustCompile(`\s*([{};])\s*`)

// load reads and compresses the files, once. The root page refers to the files of its version. Their imports are
// relative. So a browser keeps them for good, and gets all of another version or none.
var load = sync.OnceValue(func() *site {
	s := &site{files: map[string]*file{}}
	all := sha256.New()
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "static/")
		if !strings.HasPrefix(name, "vendor/") {
			content = unneeded.ReplaceAll(content, nil)
		}
		if path.Ext(name) == ".css" {
			content = aroundBraces.ReplaceAll(content, []byte("$1"))
		}
		f := newFile(name, content)
		s.files[name] = f
		fmt.Fprintln(all, name, f.hash)
		return nil
	})
	if err != nil {
		panic(err) // the program itself is damaged
	}
	s.version = versionPrefix + hex.EncodeToString(all.Sum(nil))[:12]
	index := s.files["index.html"].plain
	s.files["index.html"] = newFile("index.html",
		bytes.ReplaceAll(index, []byte(`="assets/`), []byte(`="assets/`+s.version+`/`)))
	return s
})

func newFile(name string, content []byte) *file {
	sum := sha256.Sum256(content)
	f := &file{contentType: contentTypes[path.Ext(name)], plain: content, hash: hex.EncodeToString(sum[:12])}
	if f.contentType == "" {
		f.contentType = "text/plain; charset=utf-8" // such as a licence
	}
	if short := compress(content); len(short) < len(content) {
		f.gzipped = short
	}
	return f
}

func compress(content []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // fails only for other levels
	w.Write(content)                                      // a buffer takes all
	w.Close()
	return b.Bytes()
}
