package later

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	block   = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	// namedFile matches names of files and folders, other than placeholders with capitals.
	namedFile = regexp.MustCompile("`((?:[a-z0-9_.-]+/)*[a-z0-9_]+\\.(?:go|lua)|[a-z]+/(?:[a-z0-9_-]+/)*)`")
	link      = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)|(?m:^\[[^\]]+\]:\s*(\S+))|(?:src|href)="([^"]+)"`)
)

// TestDocsLinkToExistingFiles checks links to files of this repository and to headings in them. It does not check
// links to the web.
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
			file, anchor, _ := strings.Cut(target, "#")
			if strings.Contains(file, "://") || strings.HasPrefix(file, "mailto:") {
				continue
			}
			linked := page
			if file != "" {
				linked = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(linked); err != nil {
				t.Errorf("%s links to %s: %v", page, target, err)
			} else if anchor != "" && filepath.Ext(linked) == ".md" && !slices.Contains(anchors(t, linked), anchor) {
				t.Errorf("%s links to %s, but there is no such heading", page, target)
			}
		}
	}
}

// TestDocsNameOnlyFilesThatExist checks the Go and Lua files, and the folders, that pages name in their text.
func TestDocsNameOnlyFilesThatExist(t *testing.T) {
	var files []string
	err := filepath.WalkDir(".", func(name string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && name != "." {
			return filepath.SkipDir
		}
		files = append(files, "/"+filepath.ToSlash(name))
		return err
	})
	pages, failed := filepath.Glob("docs/*.md")
	if err != nil || failed != nil || len(pages) == 0 {
		t.Fatalf("%d pages in docs, %v, %v", len(pages), err, failed)
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		if page == "docs/comparisons.md" { // it names files of other projects
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, groups := range namedFile.FindAllStringSubmatch(block.ReplaceAllString(string(text), ""), -1) {
			name := "/" + strings.TrimSuffix(groups[1], "/")
			if !slices.ContainsFunc(files, func(file string) bool { return strings.HasSuffix(file, name) }) {
				t.Errorf("%s names %s, which does not exist", page, groups[1])
			}
		}
	}
}

// anchors returns the link targets of the headings of a page.
func anchors(t *testing.T, page string) (all []string) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range heading.FindAllStringSubmatch(block.ReplaceAllString(string(text), ""), -1) {
		slug := notSlug.ReplaceAllString(strings.ToLower(h[1]), "")
		all = append(all, strings.ReplaceAll(slug, " ", "-"))
	}
	return all
}

// TestDocsAreListed checks that the index has every page, and the table in CONTRIBUTING.md every package.
func TestDocsAreListed(t *testing.T) {
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	index, layout := read("docs/README.md"), read("CONTRIBUTING.md")
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages in docs, %v", len(pages), err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", page)
		}
	}
	listed := func(folder string) bool { // or one that it is in
		for ; folder != "."; folder = path.Dir(folder) {
			if strings.Contains(layout, "`"+folder+"/`") {
				return true
			}
		}
		return false
	}
	err = filepath.WalkDir(".", func(folder string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || folder == "." {
			return err
		}
		if name := entry.Name(); strings.HasPrefix(name, ".") || name == "testdata" {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if len(files) > 0 && !listed(filepath.ToSlash(folder)) {
			t.Errorf("CONTRIBUTING.md does not list %s", folder)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
