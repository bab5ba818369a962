package delayqueue_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testdata/api.txt lists the exported API of the original v1.1.2, in the format of the function exported.
func TestExportedAPIIsThatOfTheOriginal(t *testing.T) {
	golden, err := os.ReadFile("testdata/api.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(golden)), "\n")
	got := exported(t, ".")
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("not in the original: %s", line)
		}
	}
}

// exported lists the exported functions, methods, types, fields, constants and variables of the package in dir, without
// the names of parameters, in alphabetical order.
func exported(t *testing.T, dir string) (lines []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				lines = append(lines, exportedFunc(d)...)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					lines = append(lines, exportedSpec(d.Tok, spec)...)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func exportedFunc(d *ast.FuncDecl) []string {
	if !d.Name.IsExported() {
		return nil
	}
	receiver := ""
	if d.Recv != nil {
		of := types.ExprString(d.Recv.List[0].Type)
		if !ast.IsExported(strings.TrimPrefix(of, "*")) {
			return nil
		}
		receiver = "(" + of + ") "
	}
	return []string{"func " + receiver + d.Name.Name + signature(d.Type)}
}

func exportedSpec(tok token.Token, spec ast.Spec) (lines []string) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() {
				lines = append(lines, tok.String()+" "+name.Name)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return nil
		}
		name := "type " + s.Name.Name
		switch of := s.Type.(type) {
		case *ast.StructType:
			lines = append(lines, name+" struct")
			for _, f := range of.Fields.List {
				for _, field := range f.Names {
					if field.IsExported() {
						lines = append(lines, name+"."+field.Name+" "+types.ExprString(f.Type))
					}
				}
			}
		case *ast.InterfaceType:
			lines = append(lines, name+" interface")
			for _, m := range of.Methods.List {
				lines = append(lines, name+"."+m.Names[0].Name+signature(m.Type.(*ast.FuncType)))
			}
		case *ast.FuncType:
			equals := ""
			if s.Assign.IsValid() {
				equals = " ="
			}
			lines = append(lines, name+equals+" func"+signature(of))
		default:
			lines = append(lines, name+" "+types.ExprString(of))
		}
	}
	return lines
}

// signature returns the types of parameters and results.
func signature(f *ast.FuncType) string {
	list := func(fields *ast.FieldList) string {
		var all []string
		if fields != nil {
			for _, f := range fields.List {
				for range max(1, len(f.Names)) {
					all = append(all, strings.ReplaceAll(types.ExprString(f.Type), "interface{}", "any"))
				}
			}
		}
		return strings.Join(all, ", ")
	}
	return strings.TrimSpace(fmt.Sprintf("(%s) (%s)", list(f.Params), list(f.Results)))
}
