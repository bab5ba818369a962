// Package systems checks that the packages that users build have no type errors on systems that no test runs on.
package systems

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// userPackages are the packages that users build on any system.
var userPackages = strings.Fields(`. ./cmd/... ./diskstore ./compat/... ./doctor ./latertest ./memstore ./migrate
	./redisstore ./remotestore ./server/... ./store/...`)

// A compiler finds the same errors, but takes minutes for all packages that Later imports.
func TestOtherSystemsHaveNoTypeErrors(t *testing.T) {
	for _, system := range []string{"windows/amd64", "linux/386", "darwin/arm64"} {
		t.Run(system, func(t *testing.T) { checkSystem(t, system) })
	}
}

// listed is what go list says about a package.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	ImportMap  map[string]string
	Module     *struct{ Main bool }
}

func checkSystem(t *testing.T, system string) {
	goos, arch, _ := strings.Cut(system, "/")
	list := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module"},
		userPackages...)...)
	list.Dir = filepath.Join("..", "..")
	list.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0")
	var out, failed bytes.Buffer
	list.Stdout, list.Stderr = &out, &failed
	if err := list.Run(); err != nil {
		t.Fatalf("%v: %v: %s", list, err, failed.Bytes())
	}
	c := checker{map[string]*types.Package{"unsafe": types.Unsafe}, types.SizesFor("gc", arch)}
	own := 0
	for decoder := json.NewDecoder(&out); ; {
		var p listed // behind the packages that it imports
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		isOwn := p.Module != nil && p.Module.Main
		if isOwn {
			own++
		}
		if p.ImportPath != "unsafe" {
			c.check(t, &p, isOwn)
		}
	}
	if own < 20 {
		t.Errorf("checked %d packages of this module, want all", own)
	}
}

type checker struct {
	known map[string]*types.Package
	sizes types.Sizes
}

// check checks a package, of which the imported ones are known. Of a package of another module it needs the
// declarations alone.
func (c *checker) check(t *testing.T, p *listed, isOwn bool) {
	set, mode := token.NewFileSet(), parser.SkipObjectResolution
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, mode)
		if err != nil {
			t.Error(err)
			return
		}
		files = append(files, f)
	}
	config := types.Config{
		Sizes: c.sizes, IgnoreFuncBodies: !isOwn, FakeImportC: true,
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped, ok := p.ImportMap[path]; ok {
				path = mapped
			}
			if known := c.known[path]; known != nil {
				return known, nil
			}
			return nil, errors.New("was not checked: " + path)
		}),
		Error: func(err error) {
			if isOwn {
				t.Error(err)
			}
		},
	}
	c.known[p.ImportPath], _ = config.Check(p.ImportPath, set, files, nil) // errors are reported above
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }
