package redisstore

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Scripts are found in lua/ by name, so a wrong name is noticed only when the call is made.
func TestScriptsHaveFileAndUse(t *testing.T) {
	used := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`(?:new(?:Server|Whole)?Call\(|` +
		`(?:bulk|query|request)\((?:ctx|partFrom\(.+\)), |(?:One|Few): +\{)"(\w+)"`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllSubmatch(text, -1) {
			used[string(m[1])] = true
		}
	}
	got, want := slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(production()))
	if !slices.Equal(got, want) {
		t.Errorf("the Go code calls the scripts %v, and lua/ has %v", got, want)
	}
}

// An include has no effect where it stands: it only defines functions, and they take their data as parameters. The keys
// are the only constants. Scripts for the common case save the time of making functions: they include the code itself,
// and functions only where they need them.
func TestIncludesOnlyDefineFunctions(t *testing.T) {
	files, err := filepath.Glob("lua/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	// A block of functions that no other file uses begins with the names that are used, and may have includes of its own.
	inFunction := regexp.MustCompile(`^(local function .*|local [a-z_, ]+|do|function .*|end|  .*|)$`)
	include := regexp.MustCompile(`^` + includeMark + `\w+$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		included := strings.HasPrefix(name, "_") && !slices.Contains([]string{"_keys.lua", "_now.lua",
			"_common_session.lua"}, name)
		code := false // set once a line of code was seen
		for i, line := range strings.Split(string(text), "\n") {
			switch {
			case strings.Contains(line, "--@include"):
				if code && keysOfCommon(strings.TrimSuffix(name, ".lua")) == "" || !include.MatchString(line) {
					t.Errorf("%s:%d: include is not at the top", file, i+1)
				}
				continue
			case line == "" || strings.HasPrefix(line, "--") || strings.HasPrefix(line, "#!"):
				continue
			}
			code = line != "do"
			if included && !inFunction.MatchString(line) {
				t.Errorf("%s:%d: include has code outside of a function: %s", file, i+1, line)
			}
		}
	}
}
