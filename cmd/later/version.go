package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (m *Main) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "version",
		Short:             "Tell the version of this program",
		Long:              `Version tells the version of this program, the commit it was built from where that is known, and its Go.`,
		Example:           `  later version --json`,
		Args:              arguments(0, 0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              run(func(context.Context, []string) error { return m.printVersion() }),
	}
}

func (m *Main) printVersion() error {
	v := readVersion()
	commit := ""
	if v.Commit != "" {
		commit = ", commit " + v.Commit
	}
	return m.printResult(v, "later %s%s, %s %s", v.Version, commit, v.Go, v.Platform)
}

type versionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersion reads what the Go command noted in the program.
func readVersion() versionJSON {
	v := versionJSON{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			v.Commit = setting.Value
		}
	}
	return v
}
