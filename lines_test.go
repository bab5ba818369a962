package later

import (
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxLine is the longest that a line may be, in characters. A tab is one character.
const maxLine = 120

var (
	withLines = []string{".go", ".lua", ".md", ".js", ".mjs", ".css", ".sh", ".yml", ".yaml", ".py", ".c", ".html"}
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	structTag = regexp.MustCompile("`[a-zA-Z]+:\".*\"`")
	webLink   = regexp.MustCompile(`https?://\S+`)
)

// TestLinesAreShort checks all files but generated ones, test data and the files of other projects. The target of a
// link does not count. Tables and code in pages, and struct tags, may be longer.
func TestLinesAreShort(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(name string, entry os.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			skipped := []string{"testdata", "vendor", "node_modules"}
			if strings.HasPrefix(entry.Name(), ".") || slices.Contains(skipped, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(withLines, filepath.Ext(name)) && entry.Name() != "Makefile" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil || generated.Match(text) {
			return err
		}
		files++
		for number, length := range longLines(filepath.Ext(name), string(text)) {
			t.Errorf("%s:%d has %d characters: the limit is %d", filepath.ToSlash(name), number, length, maxLine)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 1000 {
		t.Errorf("only %d files were checked", files)
	}
}

// longLines yields the numbers and lengths of the lines that are too long in the text of a file with an extension.
func longLines(extension, text string) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		number, fenced := 0, false
		for line := range strings.Lines(text) {
			number++
			line = strings.TrimRight(line, "\r\n")
			excepted := false
			switch trimmed := strings.TrimSpace(line); extension {
			case ".go":
				excepted = structTag.MatchString(line)
			case ".md":
				if strings.HasPrefix(trimmed, "```") {
					fenced = !fenced
				}
				excepted = fenced || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(line, "    ")
				line = link.ReplaceAllString(line, "")
			}
			length := utf8.RuneCountInString(webLink.ReplaceAllString(line, ""))
			if length > maxLine && !excepted && !yield(number, length) {
				return
			}
		}
	}
}

func TestLongLinesAreFoundExceptTablesLinksAndCode(t *testing.T) {
	word, long := strings.Repeat("ä", maxLine), strings.Repeat("ä", maxLine+1)
	for _, c := range []struct {
		extension, text string
		want            []int
	}{
		{".go", "a\n" + word + "\n" + long + "\r\n" + word + "\r\n\t" + word, []int{3, 5}},
		{".go", "// " + long + "\n\tA int `json:\"" + long + "\"` // the\n`{\"" + long + "\"}`\n| " + long, []int{1, 3, 4}},
		{".lua", "-- see https://example.com/" + long + "\n-- see https://example.com " + long, []int{2}},
		{".md", "| " + long + " |\n  | " + long + "\n    " + long + "\n  " + word, []int{4}},
		{".md", "```go\n" + long + "\n```\n" + long + "\n```\n" + long, []int{4}},
		{".md", "[a](" + long + ")\n[a]: " + long + "\n<img src=\"" + long + "\">\n[" + long + "](b)", []int{4}},
	} {
		var got []int
		for number, length := range longLines(c.extension, c.text) {
			if got = append(got, number); length <= maxLine {
				t.Errorf("line %d of %q has %d characters", number, c.text, length)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("long lines of %q are %v, want %v", c.text, got, c.want)
		}
	}
}
