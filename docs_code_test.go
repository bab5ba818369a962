package later

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	goBlock  = regexp.MustCompile("(?ms)^```go\n(.*?)^```")
	topLevel = regexp.MustCompile(`(?m)^(func|import|type) `)
)

// docsImports are the packages that the code of the pages may use, by name.
var docsImports = map[string]string{
	"later": "github.com/laterq/later", "store": "github.com/laterq/later/store",
	"inspect": "github.com/laterq/later/inspect", "lock": "github.com/laterq/later/lock",
	"recurrence": "github.com/laterq/later/recurrence",
	"latertest":  "github.com/laterq/later/latertest", "metrics": "github.com/laterq/later/metrics",
	"health": "github.com/laterq/later/health", "http": "net/http",
	"server": "github.com/laterq/later/server", "page": "github.com/laterq/later/server/page",
	"context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "os": "os", "signal": "os/signal",
	"syscall": "syscall", "testing": "testing", "time": "time",
}

// docsPrelude declares the names that fragments of code in the pages use without declaring them.
const docsPrelude = `package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
)

type Order []byte

type gauge struct{}

func (gauge) WithLabelValues(...string) gauge { return gauge{} }
func (gauge) Inc()                            {}
func (gauge) Observe(float64)                 {}

type postOffice struct{}

func (postOffice) Send(context.Context, []byte) error { return nil }

var (
	ctx                        = context.Background()
	client                     *later.Client
	rdb                        redis.UniversalClient
	q                          *later.Queue
	worker                     *later.Worker
	payload, a, b, code        []byte
	order                      []byte
	url                        string
	t                          *testing.T
	from, to, tomorrowAtNine   time.Time
	errRateLimited             = errors.New("rate limited")
	events, lateness, duration gauge
	mailer                     postOffice
	logging, tracing           func(later.HandlerFunc) later.HandlerFunc
)

func requestID(context.Context) string                        { return "" }
func work([]byte) error                                       { return nil }
func handleReminder(context.Context, *later.Message) error    { return nil }
func main()                                                   {}
`

// TestDocsCodeCompiles compiles the Go code of the pages: whole programs, declarations, and fragments of functions. A
// fragment may leave values unused and may use the names of docsPrelude.
func TestDocsCodeCompiles(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	fragments := []string{writeFile(t, t.TempDir(), "prelude.go", docsPrelude)}
	dir := filepath.Dir(fragments[0])
	for _, page := range append(pages, "README.md") {
		if page == "docs/cookbook.md" { // TestDocsCookbookQuotesItsExamples
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, groups := range goBlock.FindAllSubmatch(text, -1) {
			block := string(groups[1])
			name := fmt.Sprintf("%s_%d", strings.TrimSuffix(filepath.Base(page), ".md"), i)
			if strings.HasPrefix(block, "package main\n") {
				compile(t, page, []string{writeFile(t, t.TempDir(), "main.go", block)})
				continue
			}
			fragments = append(fragments, writeFile(t, dir, name+".go", wrapFragment(name, block)))
		}
	}
	if len(fragments) < 10 {
		t.Fatalf("%d fragments", len(fragments))
	}
	compile(t, "docs", fragments)
}

// wrapFragment returns a file with a fragment, as the body of a function unless it is a declaration, and its imports.
func wrapFragment(name, block string) string {
	var imports strings.Builder
	for ident, path := range docsImports {
		if regexp.MustCompile(`\b` + ident + `\.[A-Z]`).MatchString(block) {
			fmt.Fprintf(&imports, "import %q\n", path)
		}
	}
	switch first, rest, _ := strings.Cut(block, "\n"); {
	case strings.HasPrefix(first, "import "): // imports precede other declarations
		return "package main\n" + imports.String() + first + "\n" + wrapBody(name, rest)
	case topLevel.MatchString(block):
		return "package main\n" + imports.String() + block
	}
	return "package main\n" + imports.String() + wrapBody(name, block)
}

func wrapBody(name, block string) string {
	return "func fragment_" + strings.ReplaceAll(name, "-", "_") + "() error {\n" + block + "\nreturn nil\n}\n"
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestDocsTestRuns runs the test that docs/testing.md shows.
func TestDocsTestRuns(t *testing.T) {
	page, err := os.ReadFile("docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	block := string(goBlock.FindSubmatch(page)[1])
	file := writeFile(t, t.TempDir(), "shop_test.go", wrapFragment("test", block))
	out, err := exec.CommandContext(t.Context(), "go", "test", "-v", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestUnpaidOrderIsCancelledAfterHalfAnHour") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDocsCookbookQuotesItsExamples checks that each recipe in Go is a part of example_cookbook_test.go, which runs it.
func TestDocsCookbookQuotesItsExamples(t *testing.T) {
	read := func(file string) []byte {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	indent := regexp.MustCompile(`(?m)^\t+`)
	examples := indent.ReplaceAllString(string(read("example_cookbook_test.go")), "")
	blocks := goBlock.FindAllSubmatch(read("docs/cookbook.md"), -1)
	if len(blocks) == 0 {
		t.Error("docs/cookbook.md has no Go code")
	}
	for _, block := range blocks {
		for part := range strings.SplitSeq(string(block[1]), "\n\n") {
			if !strings.Contains(examples, indent.ReplaceAllString(part, "")) {
				t.Errorf("example_cookbook_test.go does not have this part of docs/cookbook.md:\n%s", part)
			}
		}
	}
}

// compile reports the errors of a program, except for unused declarations of a fragment.
func compile(t *testing.T, page string, files []string) {
	t.Helper()
	args := append([]string{"build", "-gcflags=-e", "-o", os.DevNull}, files...)
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	if err == nil {
		return
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "#") || len(files) > 1 &&
			(strings.Contains(line, "declared and not used") || strings.Contains(line, "is not used") ||
				strings.Contains(line, "imported and not used")) {
			continue
		}
		t.Errorf("Go code of %s: %s", page, line)
	}
}
