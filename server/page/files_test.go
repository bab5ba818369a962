package page

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// maxFirst is the limit of the files for the first picture, compressed, in bytes: with the replies of the server, a
	// first load has 100 KB at most.
	maxFirst   = 70 << 10
	maxTotal   = 120 << 10 // bytes of all files, compressed
	maxLines   = 500       // of a file that is written by hand
	maxColumns = 120
)

func isVendored(name string) bool { return strings.HasPrefix(name, "vendor/") }

func (f *file) size() int {
	if f.gzipped != nil {
		return len(f.gzipped)
	}
	return len(f.plain)
}

var preloaded = regexp.MustCompile(`rel="modulepreload" href="assets/` + versionPrefix + `[^/]+/([^"]+)"`)

// needed adds a module and the modules that it imports to those that are needed for the first picture.
func needed(t *testing.T, module string, all map[string]bool) {
	if all[module] {
		return
	}
	all[module] = true
	f := load().files[module]
	if f == nil {
		t.Fatalf("%s is missing", module)
	}
	for _, found := range imported.FindAllSubmatch(comments.ReplaceAll(f.plain, nil), -1) {
		needed(t, path.Join(path.Dir(module), string(found[1])), all)
	}
}

// TestFirstPictureIsSmall checks that the page names all modules that are needed for the first picture, and no others,
// so that a browser loads them at the same time.
func TestFirstPictureIsSmall(t *testing.T) {
	modules := map[string]bool{}
	needed(t, "app/main.js", modules)
	var named []string
	for _, found := range preloaded.FindAllSubmatch(load().files["index.html"].plain, -1) {
		named = append(named, string(found[1]))
	}
	want := slices.Sorted(maps.Keys(modules))
	if got := slices.Sorted(slices.Values(append(named, "app/main.js"))); !slices.Equal(got, want) {
		t.Errorf("index.html preloads %v, want %v without main.js", named, want)
	}
	total := 0
	for _, name := range append(want, "index.html", "style.css", "icon.svg") {
		total += load().files[name].size()
	}
	t.Logf("the first picture takes %d bytes, compressed", total)
	if total > maxFirst {
		t.Errorf("the first picture takes %d bytes, the limit is %d", total, maxFirst)
	}
}

func TestPageIsSmall(t *testing.T) {
	total := 0
	for name, f := range load().files {
		total += f.size()
		if n := strings.Count(string(f.plain), "\n"); n >= maxLines && !isVendored(name) {
			t.Errorf("%s has %d lines", name, n)
		}
	}
	t.Logf("%d files have %d bytes, compressed", len(load().files), total)
	if total > maxTotal {
		t.Errorf("all files have %d bytes, the limit is %d", total, maxTotal)
	}
}

func TestLinesAreShort(t *testing.T) {
	for name := range load().files {
		if isVendored(name) || path.Ext(name) == ".svg" {
			continue
		}
		content, err := static.ReadFile("static/" + name)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(content)) {
			if n++; utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > maxColumns {
				t.Errorf("%s:%d has more than %d columns", name, n, maxColumns)
			}
		}
	}
}

func TestScriptsAreServedWithoutComments(t *testing.T) {
	comment := regexp.MustCompile(`(?m)(?:^|\s)//.*$`)
	for name, f := range load().files {
		if found := comment.Find(f.plain); found != nil && path.Ext(name) == ".js" && !isVendored(name) {
			t.Errorf("%s has %q", name, found)
		}
	}
}

var (
	comments = regexp.MustCompile(`(?s)/\*.*?\*/|<!--.*?-->|(?m:^\s*//.*$)`)
	other    = regexp.MustCompile(`(?:https?:|["'(])//[^\s"'` + "`" + `)]+`)
)

// TestPageRefersToNoOtherHost checks scripts, styles and documents. The names of XML namespaces do not count.
func TestPageRefersToNoOtherHost(t *testing.T) {
	for name, f := range load().files {
		if strings.HasPrefix(f.contentType, "text/plain") {
			continue // a licence
		}
		for _, url := range other.FindAllString(comments.ReplaceAllString(string(f.plain), ""), -1) {
			if !strings.HasPrefix(url, "http://www.w3.org/") {
				t.Errorf("%s refers to %s", name, url)
			}
		}
	}
}

var (
	inline = regexp.MustCompile(
		`(?i)<style|\sstyle\s*=|\son[a-z]+\s*=|javascript:|<base|<script(?:\s[^>]*)?>\s*[^<\s]`)
	reference = regexp.MustCompile(`(?:src|href)="([^"]*)"`)
	elsewhere = regexp.MustCompile(`^(v1/|#|data:)`) // the API, this document, itself
)

func TestRootPageHasNoCodeOfItsOwn(t *testing.T) {
	index := string(load().files["index.html"].plain)
	if found := inline.FindString(index); found != "" {
		t.Errorf("index.html has %q", found)
	}
	for _, match := range reference.FindAllStringSubmatch(index, -1) {
		target := match[1]
		name, isFile := strings.CutPrefix(target, "assets/"+load().version+"/")
		switch {
		case isFile && load().files[name] == nil:
			t.Errorf("index.html refers to %s, which does not exist", target)
		case !isFile && !elsewhere.MatchString(target):
			t.Errorf("index.html refers to %s, which is neither below assets/ nor v1/", target)
		}
	}
}

var (
	imported = regexp.MustCompile(`(?m)(?:^import|[*}] from)\s+["']([^"'\n]+)["'];`)
	onDemand = regexp.MustCompile(`\bimport\('([^']+)'\)`)
)

func TestModulesImportFilesThatExist(t *testing.T) {
	for name, f := range load().files {
		if path.Ext(name) != ".js" {
			continue
		}
		text := comments.ReplaceAllString(string(f.plain), "")
		for _, match := range slices.Concat(imported.FindAllStringSubmatch(text, -1),
			onDemand.FindAllStringSubmatch(text, -1)) {
			target := match[1]
			if !strings.HasPrefix(target, "./") && !strings.HasPrefix(target, "../") {
				t.Errorf("%s imports %s: give a relative path, so that the page works under any", name, target)
			} else if load().files[path.Join(path.Dir(name), target)] == nil {
				t.Errorf("%s imports %s, which does not exist", name, target)
			}
		}
	}
}
