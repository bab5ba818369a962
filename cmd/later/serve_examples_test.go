//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestExamplesOverHTTPRun(t *testing.T) {
	c := newDiskCLI(t)
	_, url := c.startServe()
	for _, program := range []string{"sh reminder.sh", "node reminder.mjs", "python3 reminder.py"} {
		interpreter, file, _ := strings.Cut(program, " ")
		t.Run(file, func(t *testing.T) {
			if _, err := exec.LookPath(interpreter); err != nil {
				t.Skip(err)
			}
			if _, err := exec.LookPath("curl"); err != nil && interpreter == "sh" {
				t.Skip(err)
			}
			cmd := exec.CommandContext(t.Context(), interpreter, filepath.Join("../../examples/http", file))
			cmd.Env = append(os.Environ(), "LATER_URL="+url)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), "done\n") {
				t.Errorf("%v\n%s", err, out)
			}
			if interpreter != "sh" && !strings.Contains(string(out), "hello Bob, attempt 2\n") {
				t.Errorf("the failed attempt was not repeated:\n%s", out)
			}
		})
	}
}
