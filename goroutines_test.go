package later

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Loops belong into packages under internal, which wait for them and can be tested without a client.
func TestOnlyWorkerAndClientStartGoroutines(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		may := []string{"worker.go", "worker_run.go", "client.go"}
		if strings.HasSuffix(name, "_test.go") || slices.Contains(may, name) {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			starts := false
			switch n := n.(type) {
			case *ast.GoStmt:
				starts = true
			case *ast.CallExpr: // of a sync.WaitGroup, or the like
				f, ok := n.Fun.(*ast.SelectorExpr)
				starts = ok && f.Sel.Name == "Go"
			}
			if starts {
				t.Errorf("%v starts a goroutine: leave it to worker.go, client.go or a package under internal",
					set.Position(n.Pos()))
			}
			return true
		})
	}
}
