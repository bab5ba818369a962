package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/laterq/later/store"
)

func (m *Main) versionCommand() *cobra.Command {
	return m.command("version", "Print the version and the selected store",
		`Version prints the version of this program, the commit it was built from if known, and its Go version. It
also prints which store the other commands use, and the flag or variable that selected it. It does not open the store.`,
		`  later version --json`,
		run(func(context.Context, []string) error { return m.printVersion() }))
}

func (m *Main) printVersion() error {
	v := readVersion()
	commit := ""
	if v.Commit != "" {
		commit = ", commit " + v.Commit
	}
	where := ""
	if s := m.selected(); s.err != nil {
		where = s.err.Error()
	} else {
		v.Store, v.StoreFrom = store.RedactURL(s.url), s.source
		where = fmt.Sprintf("store %s (%s)", v.Store, describeSource(s.source))
	}
	return m.printResult(v, "later %s%s, %s %s\n%s", v.Version, commit, v.Go, v.Platform, where)
}

type versionJSON struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`
	Go        string `json:"go"`
	Platform  string `json:"platform"`
	Store     string `json:"store,omitempty"`
	StoreFrom string `json:"store_from,omitempty"` // "--store", the variable's name, or "the default"
}

// readVersion reads the build information that the go command embeds.
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
