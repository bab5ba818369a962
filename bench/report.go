package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// -report replaces the part of docs/benchmarks.md between these lines and keeps the rest.
const (
	beginMark = "<!-- begin: written by cd bench && go run . -report results.json -->"
	endMark   = "<!-- end -->"
)

// writeDocs writes the generated part of benchmarks.md and the plots in a documentation directory.
func writeDocs(r *results, docs string) error {
	page := filepath.Join(docs, "benchmarks.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(text), beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if !begun || !ended {
		return fmt.Errorf("%s lacks the lines %q and %q that enclose the results", page, beginMark, endMark)
	}
	if err := writePlots(r, filepath.Join(docs, "plots")); err != nil {
		return err
	}
	generated := before + beginMark + "\n\n" + strings.TrimSpace(markdown(r, "plots")) + "\n\n" + endMark + after
	return os.WriteFile(page, []byte(generated), 0o644)
}
