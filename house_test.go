package later

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The root package is what users import and nothing else. Its limits are those of the design of the code: machinery
// belongs to the packages that it calls.
const (
	maxRootFiles = 35
	maxRootLines = 6500
	maxRootNames = 400 // exported ones, with methods
)

// goroutineFiles are the only files of the root package that may start goroutines.
var goroutineFiles = map[string]bool{"client.go": true, "worker_run.go": true}

func TestRootPackageIsThin(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files, lines, names := 0, 0, 0
	fset := token.NewFileSet()
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files++
		lines += fset.File(parsed.Pos()).LineCount() - 1 // the last one ends at the end of the file
		for _, d := range parsed.Decls {
			names += exportedBy(d)
		}
		if starts := startsGoroutines(parsed); starts && !goroutineFiles[name] {
			t.Errorf("%s starts a goroutine: move it to the package that needs it", name)
		}
	}
	if files > maxRootFiles || lines > maxRootLines || names > maxRootNames {
		t.Errorf("the root package has %d files, %d lines and %d exported names: the limits are %d, %d and %d", files, lines,
			names, maxRootFiles, maxRootLines, maxRootNames)
	}
}

// exportedBy returns how many exported names a declaration adds: types, functions, constants, variables and methods of
// exported types.
func exportedBy(d ast.Decl) (n int) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || isOfExportedType(d.Recv.List[0].Type)) {
			n++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					n++
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() {
						n++
					}
				}
			}
		}
	}
	return n
}

func isOfExportedType(receiver ast.Expr) bool {
	exported := false
	ast.Inspect(receiver, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok {
			exported = name.IsExported()
			return false
		}
		return true
	})
	return exported
}

func startsGoroutines(f *ast.File) (starts bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			starts = true
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			starts = starts || ok && s.Sel.Name == "Go"
		}
		return true
	})
	return starts
}

// TestNoProgramIsInTheRepository looks for files that a build left and that were added by mistake: a clone keeps them
// for ever.
func TestNoProgramIsInTheRepository(t *testing.T) {
	tracked, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("this is not a clone:", err)
	}
	const most = 1 << 20
	for name := range strings.SplitSeq(strings.TrimSuffix(string(tracked), "\x00"), "\x00") {
		if info, err := os.Stat(name); err == nil && info.Size() > most {
			t.Errorf("%s has %d bytes: the limit is %d", name, info.Size(), most)
		}
	}
}
