package later

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	link = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)|(?m:^\[[^\]]+\]:\s*(\S+))|(?:src|href)="([^"]+)"`)
)

// TestDocsLinkToExistingFiles checks links to files of this repository. It does not check links to the web.
func TestDocsLinkToExistingFiles(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages in docs, %v", len(pages), err)
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, groups := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			target := groups[1+slices.IndexFunc(groups[1:], func(g string) bool { return g != "" })]
			file, _, _ := strings.Cut(target, "#")
			if file == "" || strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), file)); err != nil {
				t.Errorf("%s links to %s: %v", page, target, err)
			}
		}
	}
}
