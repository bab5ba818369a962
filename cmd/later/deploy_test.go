package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkCommand fails the test unless the program takes the arguments.
func checkCommand(t *testing.T, args []string) {
	t.Helper()
	cmd, rest, err := (&Main{}).rootCommand().Find(args)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("later %q: %v", args, err)
	}
}

func readDeploy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestUnitsOfSystemdAreValid(t *testing.T) {
	const program = "/usr/local/bin/later"
	execStart := regexp.MustCompile(`(?m)^ExecStart=(.*)$`)
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 2 {
		t.Fatalf("%q, %v", units, err)
	}
	analyze, missing := exec.LookPath("systemd-analyze")
	for _, path := range units {
		name := filepath.Base(path)
		unit := readDeploy(t, "systemd/"+name)
		command, isLater := strings.CutPrefix(execStart.FindStringSubmatch(unit)[1], program+" ")
		if !isLater {
			t.Errorf("%s does not start %s", name, program)
		}
		command = regexp.MustCompile(`'[^']*'`).ReplaceAllString(command, "quoted")
		checkCommand(t, strings.Fields(command))
		if missing != nil {
			continue
		}
		file := filepath.Join(t.TempDir(), name)
		unit = strings.Replace(unit, program, os.Args[0], 1)
		unit = strings.Replace(unit, "Type=notify-reload", "Type=notify", 1) // unknown before systemd 253
		if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
		output, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", file).CombinedOutput()
		if err != nil || strings.Contains(string(output), name) {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
		// Its limit is an exposure of 4.0.
		output, err = exec.CommandContext(t.Context(), analyze, "security", "--offline=true", "--threshold=40",
			"--no-pager", file).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
	}
}

func TestContainerfileBuildsAndStartsTheProgram(t *testing.T) {
	text := readDeploy(t, "Containerfile")
	build := regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 go (build .*)$`).FindStringSubmatch(text)
	entry := regexp.MustCompile(`(?m)^ENTRYPOINT (.*)$`).FindStringSubmatch(text)
	command := regexp.MustCompile(`(?m)^CMD (.*)$`).FindStringSubmatch(text)
	if build == nil || entry == nil || command == nil {
		t.Fatalf("no build without cgo, entry point or command in\n%s", text)
	}
	var entryPoint, args []string
	if err := json.Unmarshal([]byte(entry[1]), &entryPoint); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal([]byte(command[1]), &args); err != nil {
		t.Error(err)
	}
	checkCommand(t, args)
	for _, line := range []string{
		"COPY --from=build /out/later " + entryPoint[0], "USER 65532:65532", "FROM scratch", "COPY go.mod go.sum ./",
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %q", line)
		}
	}
	// -n prints the commands of the build, after it has found the packages.
	dry := exec.CommandContext(t.Context(), "go", append([]string{"build", "-n"}, strings.Fields(build[1])[1:]...)...)
	dry.Dir, dry.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	output, err := dry.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "/out/later") {
		t.Errorf("go %s: %v\n%.2000s", build[1], err, output)
	}
	version := regexp.MustCompile(`FROM docker.io/library/golang:(\S+) AS build`).FindStringSubmatch(text)
	mod, err := os.ReadFile("../../go.mod")
	if err != nil || version == nil || !strings.Contains(string(mod), "\ngo "+version[1]+".") {
		t.Errorf("the version of Go, %q, is not that of go.mod: %v", version, err)
	}
}
