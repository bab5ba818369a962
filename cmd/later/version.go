package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/durations"
	"github.com/laterq/later/internal/wire"
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

func (m *Main) pingCommand() *cobra.Command {
	timeout := 5 * time.Second
	cmd := m.command("ping [--timeout DURATION]", "Check that the store serves calls",
		fmt.Sprintf(`Ping opens the store and checks that it serves calls now: in a Redis Cluster, that all
primaries do. It prints the store and how long the call took. Exit code 0 means that it does; otherwise the error names
the cause and the remedy. A store that does not answer in time, such as one that hangs, has exit code %d.

Ping writes nothing, and does not create an embedded store: one that does not exist yet has exit code %d. To check that
the content of a store is intact, use later doctor.`,
			exitCode(store.ErrUnavailable), exitCode(store.ErrNotFound)),
		`  later ping
  later ping --store redis://redis.example:6379/0 --timeout 1s
  until later ping --json; do sleep 1; done`,
		run(func(ctx context.Context, _ []string) error { return m.pingStore(ctx, timeout) }))
	durationFlag(cmd.Flags(), &timeout, "timeout", "how long the store may take to open and to answer")
	return cmd
}

func (m *Main) pingStore(ctx context.Context, timeout time.Duration) error {
	if timeout == 0 {
		return store.Invalid("--timeout is 0: must be more than 0, such as 1s")
	}
	if m.selected().isNew {
		return notFound("no store at %s: later send QUEUE PAYLOAD creates one", m.shownURL())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("the store at %s did not answer within %s: %w",
		m.shownURL(), durations.Format(timeout), later.ErrUnavailable))
	defer cancel()
	c, err := m.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	started := time.Now()
	if err := c.Ping(ctx); ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil {
		return fmt.Errorf("the store at %s does not serve calls: %w", m.shownURL(), err)
	}
	took := time.Since(started)
	return m.printResult(wire.Pinged{Store: m.shownURL(), Took: wire.Measured(took)},
		"%s answered in %s", m.shownURL(), formatMillis(took))
}
