package openapitest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// describedIn is the description, which TestDescriptionInTheRepositoryIsCurrent keeps as a server has it.
const describedIn = "../openapi.json"

// run runs a program and returns what it prints. It fails the test if the program fails.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir = dir
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, text)
	}
	return string(text)
}

// TestGoClientsAreGeneratedAndCompile checks the types of the generated code, as a compiler does first. To make machine
// code of 300,000 lines takes half a minute, and finds nothing else.
func TestGoClientsAreGeneratedAndCompile(t *testing.T) {
	for name, generate := range map[string]func(t *testing.T, to string){
		"oapi-codegen": func(t *testing.T, to string) {
			run(t, ".", "go", "tool", "oapi-codegen", "-package", "api", "-o", filepath.Join(to, "api.go"), describedIn)
		},
		"ogen": func(t *testing.T, to string) {
			run(t, ".", "go", "tool", "ogen", "-package", "api", "-target", to, describedIn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			module := newModule(t)
			api := filepath.Join(module, "api")
			if err := os.Mkdir(api, 0o755); err != nil {
				t.Fatal(err)
			}
			generate(t, api)
			run(t, module, "go", "vet", "-directive", "./api")
		})
	}
}

// newModule returns a directory that is a module with the dependencies of this one.
func newModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "go", "mod", "edit", "-replace", "github.com/laterq/later="+root)
	return dir
}

// TestTypeScriptClientsAreGeneratedAndCompile also runs the linter Spectral, which comes from npm as well.
func TestTypeScriptClientsAreGeneratedAndCompile(t *testing.T) {
	dir := installed(t)
	description, err := filepath.Abs(describedIn)
	if err != nil {
		t.Fatal(err)
	}
	bin := func(t *testing.T, program string, args ...string) string {
		t.Helper()
		return run(t, dir, filepath.Join(dir, "node_modules", ".bin", program), args...)
	}
	compile := []string{"--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "esnext",
		"--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable"}
	t.Run("openapi-typescript", func(t *testing.T) {
		bin(t, "openapi-typescript", description, "-o", "types/api.ts")
		bin(t, "tsc", append(compile, "types/api.ts")...)
	})
	t.Run("hey-api", func(t *testing.T) {
		bin(t, "openapi-ts", "-i", description, "-o", "hey-api")
		bin(t, "tsc", append(compile, "hey-api/index.ts")...)
	})
	t.Run("spectral", func(t *testing.T) {
		bin(t, "spectral", "lint", "--ruleset", "spectral.yaml", "--fail-severity", "hint", description)
	})
}

// installed returns a directory with the programs of typescript/package.json. Without npm, or its registry, the test is
// skipped.
func installed(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed here: TypeScript clients are not generated")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("typescript")); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if text, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm cannot install what generates TypeScript clients here: %v\n%s", err, text)
	}
	return dir
}
