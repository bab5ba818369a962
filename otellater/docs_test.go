package otellater_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/laterq/later"
	"github.com/laterq/later/otellater"
)

// The function has the code of docs/monitoring.md. It is compiled, and not called.
var _ = docsTraces

func docsTraces(ctx context.Context, url string) (*later.Worker, error) {
	t := otellater.New(otellater.Config{}) // with the global providers
	client, err := later.Open(ctx, url, t.Options()...)
	if err != nil {
		return nil, err
	}
	worker := later.NewWorker(client, later.WorkerConfig{Middleware: t.Middleware()})
	return worker, nil
}

var block = regexp.MustCompile("(?ms)^```go otellater\n(.*?)^```")

// TestDocsCodeIsCompiledHere checks that this file has the code of the page.
func TestDocsCodeIsCompiledHere(t *testing.T) {
	page, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("docs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	indent := regexp.MustCompile(`(?m)^\t`)
	blocks := block.FindAllSubmatch(page, -1)
	if len(blocks) != 1 {
		t.Errorf("docs/monitoring.md has %d blocks of code for this test; want 1", len(blocks))
	}
	for _, groups := range blocks {
		if !strings.Contains(indent.ReplaceAllString(string(source), ""), string(groups[1])) {
			t.Errorf("docs_test.go does not have this code of docs/monitoring.md:\n%s", groups[1])
		}
	}
}
