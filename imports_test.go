package later

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
)

const module = "github.com/laterq/later"

// importLine is a line of the diagram in docs/design.md.
type importLine struct {
	number   int
	siblings bool // its packages may import each other
}

// importLines reads the diagram. The result returns the line of a package; ok is false if it is on none.
func importLines(t *testing.T) func(pkg string) (line importLine, ok bool) {
	t.Helper()
	text, err := os.ReadFile("docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	diagram := regexp.MustCompile("(?s)## Packages\n\n```\n(.*?)```").FindSubmatch(text)
	if diagram == nil {
		t.Fatal("docs/design.md has no diagram under Packages")
	}
	exact, patterns := map[string]importLine{}, map[string]importLine{}
	for i, line := range strings.Split(string(diagram[1]), "\n") {
		for _, name := range strings.Fields(line) {
			of := exact
			if strings.Contains(name, "*") {
				of = patterns
			}
			of[name] = importLine{i, strings.Contains(line, "internal/*")}
		}
	}
	return func(pkg string) (importLine, bool) {
		if line, ok := exact[pkg]; ok {
			return line, true
		}
		for pattern, line := range patterns {
			if matches, _ := path.Match(pattern, pkg); matches {
				return line, true
			}
		}
		return importLine{}, false
	}
}

// nameInDiagram returns the name of a package of the module, or "" for any other package.
func nameInDiagram(importPath string) string {
	if importPath == module {
		return "later"
	}
	name, ok := strings.CutPrefix(importPath, module+"/")
	if !ok || strings.HasPrefix(name, "examples") {
		return ""
	}
	return name
}

func TestImportsAreAsTheDesignDrawsThem(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	lineOf, compared := importLines(t), 0
	for _, text := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Fields(text)
		pkg := nameInDiagram(fields[0])
		for _, imported := range fields[1:] {
			imported = nameInDiagram(imported)
			if pkg == "" || imported == "" {
				continue
			}
			from, ok := lineOf(pkg)
			to, known := lineOf(imported)
			if path.Dir(pkg) == "internal/wire" { // test equipment of one package
				continue
			}
			compared++
			switch {
			case !ok || !known:
				t.Errorf("%s imports %s, and the diagram in docs/design.md does not have both", pkg, imported)
			case to.number < from.number, to.number == from.number && !to.siblings:
				t.Errorf("%s imports %s, which is not below it in docs/design.md", pkg, imported)
			}
		}
	}
	if compared < 50 {
		t.Errorf("only %d imports were compared", compared)
	}
}
