package pagetest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// ofBrowsers are the names that modules use without importing them. A name that only window has, such as open, is none
// of them: it is that of a module, and its import is missing.
var ofBrowsers = strings.Fields(`
	AbortController Array Blob Boolean BroadcastChannel Date Error EventSource FormData Infinity Intl JSON Map Math
	Number Object Promise ResizeObserver Set String TextDecoderStream TextEncoder URL URLSearchParams Uint32Array
	Uint8Array WeakSet addEventListener atob clearInterval clearTimeout crypto document encodeURIComponent fetch
	getComputedStyle history localStorage location matchMedia navigator performance removeEventListener setInterval
	setTimeout undefined window`)

// ofTests are exports that only tests import.
var ofTests = []string{"app/when.js usualTimes"}

// jsModule has the names that a module of the page imports, exports and declares.
type jsModule struct {
	imports map[string][]string // names by the path of the module
	exports []string
	own     map[string]bool // the names that the imports have here, and whether they are used
	free    []string        // names that are neither declared nor imported
	unused  []string        // declared, and neither used nor exported
}

// onDemand is an import of a component that is loaded when it is needed.
var onDemand = regexp.MustCompile(`import\('([^']+)'\)\.then\(\(m\) => m\.(\w+)\)`)

func readModule(t *testing.T, files fs.FS, name string) *jsModule {
	t.Helper()
	text, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatal(err)
	}
	ast, err := js.Parse(parse.NewInputBytes(slices.Clone(text)), js.Options{})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	m := &jsModule{imports: map[string][]string{}, own: map[string]bool{}}
	for _, found := range onDemand.FindAllStringSubmatch(string(text), -1) {
		from := path.Join(path.Dir(name), found[1])
		m.imports[from] = append(m.imports[from], found[2])
	}
	for _, s := range ast.List {
		m.addStatement(s, path.Dir(name))
	}
	for _, v := range ast.Undeclared {
		if used := string(v.Data); !slices.Contains(ofBrowsers, used) {
			if _, ok := m.own[used]; !ok {
				m.free = append(m.free, used)
			}
			m.own[used] = true
		}
	}
	js.Walk(scopes(m.addScope), ast)
	return m
}

// addStatement adds the names of an import or export in a folder.
func (m *jsModule) addStatement(s js.IStmt, folder string) {
	switch s := s.(type) {
	case *js.ImportStmt:
		from := path.Join(folder, strings.Trim(string(s.Module), `'"`))
		for _, one := range s.List {
			if one.Binding == nil {
				continue // after the last comma
			}
			m.own[string(one.Binding)] = false
			m.imports[from] = append(m.imports[from], nameOf(one))
		}
	case *js.ExportStmt:
		for _, one := range s.List {
			m.exports = append(m.exports, string(one.Binding))
			if s.Module != nil {
				from := path.Join(folder, strings.Trim(string(s.Module), `'"`))
				m.imports[from] = append(m.imports[from], nameOf(one))
			}
		}
		switch d := s.Decl.(type) {
		case *js.FuncDecl:
			m.exports = append(m.exports, string(d.Name.Data))
		case *js.ClassDecl:
			m.exports = append(m.exports, string(d.Name.Data))
		case *js.VarDecl:
			for _, one := range d.List {
				m.exports = append(m.exports, one.Binding.(*js.Var).String())
			}
		}
	}
}

// nameOf returns the name that an import or export has in the other module.
func nameOf(one js.Alias) string {
	if one.Name != nil {
		return string(one.Name)
	}
	return string(one.Binding)
}

// addScope adds the names of a scope that are used nowhere. A parameter before others may be _.
func (m *jsModule) addScope(s *js.Scope) {
	for _, v := range s.Declared {
		if name := string(v.Data); v.Uses < 2 && v.Decl != js.ExprDecl && name != "_" &&
			!slices.Contains(m.exports, name) && !slices.Contains(m.unused, name) {
			m.unused = append(m.unused, name)
		}
	}
}

// scopes calls a function with each scope.
type scopes func(*js.Scope)

func (f scopes) Enter(n js.INode) js.IVisitor {
	switch n := n.(type) {
	case *js.BlockStmt:
		f(&n.Scope)
	case *js.SwitchStmt:
		f(&n.Scope)
	}
	return f
}

func (f scopes) Exit(js.INode) {}

// TestModulesHaveTheNamesThatTheyUse finds a name without its import or declaration, which would fail only when the
// line that has it runs, an import of a name that a module does not export, and names without a use.
func TestModulesHaveTheNamesThatTheyUse(t *testing.T) {
	files := os.DirFS("../page/static")
	modules := map[string]*jsModule{}
	for _, folder := range []string{"app/*.js", "app/views/*.js", "vendor/*.js"} {
		names, err := fs.Glob(files, folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			modules[name] = readModule(t, files, name)
		}
	}
	imported := map[string]bool{}
	for name, m := range modules {
		if strings.HasPrefix(name, "vendor/") {
			continue
		}
		for _, free := range m.free {
			t.Errorf("%s uses %s, which it does not declare or import", name, free)
		}
		for _, unused := range m.unused {
			t.Errorf("%s declares %s, and does not use it", name, unused)
		}
		for own, used := range m.own {
			if !used {
				t.Errorf("%s imports %s, and does not use it", name, own)
			}
		}
		for from, names := range m.imports {
			for _, one := range names {
				imported[from+" "+one] = true
				if modules[from] == nil || !slices.Contains(modules[from].exports, one) {
					t.Errorf("%s imports %s, which %s does not export", name, one, from)
				}
			}
		}
	}
	for name, m := range modules {
		for _, export := range m.exports {
			if one := name + " " + export; !imported[one] && !slices.Contains(ofTests, one) &&
				!strings.HasPrefix(name, "vendor/") {
				t.Errorf("%s exports %s, which no module imports", name, export)
			}
		}
	}
	if len(modules) < 50 {
		t.Errorf("%d modules", len(modules))
	}
}
