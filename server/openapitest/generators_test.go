package openapitest

import (
	"encoding/json"
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
			to := t.TempDir()
			generate(t, to)
			run(t, ".", "go", "build", "-overlay", overlay(t, to, name), "./generated/"+name)
		})
	}
}

// overlay returns a file that lets go build find generated files in this module, under generated.
func overlay(t *testing.T, dir, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatal("nothing was generated", err)
	}
	module, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, file := range files {
		replace[filepath.Join(module, "generated", name, filepath.Base(file))] = file
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
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
