package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laterq/later/store"
)

func (m *Main) uiCommand() *cobra.Command {
	o := serveOptions{}
	var noOpen bool
	cmd := m.command("ui", "Open the web page of the store",
		`Ui serves the page of the store on this machine, prints its URL and opens it in the browser, until
SIGTERM or Ctrl-C. The page shows and changes coming, late and failed messages and workers; docs/page.md describes it.

Ui listens at `+defaultListen+`, or at a free port if that is taken. If the store is a server's, at http:// or
https://, ui opens that server's page and ends. BROWSER names the program to open it with, instead of the system's.

Everybody who can log in to this machine reaches the page, and can do everything with it. later serve has pages for
several people, with tokens and roles.`,
		`  later ui
  later ui --store redis://localhost:6379/0 --no-open
  later ui --store https://queue.example:7600`,
		func(cmd *cobra.Command, args []string) error {
			o.anyPort = !cmd.Flags().Changed("listen")
			return run(func(ctx context.Context, _ []string) error { return m.ui(ctx, o, noOpen) })(cmd, args)
		})
	cmd.Flags().StringVar(&o.listen, "listen", defaultListen, "`ADDRESS` to listen at, as host:port")
	addNoOpen(cmd, &noOpen)
	return cmd
}

func addNoOpen(cmd *cobra.Command, noOpen *bool) {
	cmd.Flags().BoolVar(noOpen, "no-open", false, "print the URL of the page, and do not open a browser")
}

func (m *Main) ui(ctx context.Context, o serveOptions, noOpen bool) error {
	show := func(url string) { m.showPage(url+"/", noOpen) }
	name := m.selected().url
	if m.storeKind() != "remote" {
		return m.serve(ctx, o, show)
	}
	page, err := pageOf(ctx, name)
	if err == nil {
		show(page)
	}
	return err
}

// pageOf returns the URL of the page of a server, without a slash at its end and without secrets, because lists of
// processes show it. It returns an error unless there is a page. The server of a URL with parameters, which can be
// about certificates that the browser has of its own, is not asked.
func pageOf(ctx context.Context, server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", store.Invalid("the store's URL cannot be read: %v", err)
	}
	asked := u.RawQuery == ""
	u.User, u.RawQuery, u.Path = nil, "", strings.TrimRight(u.Path, "/")
	if !asked {
		return u.String(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String()+"/", nil)
	if err != nil {
		return "", store.Invalid("the store's URL cannot be used: %v", err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", fmt.Errorf("%w: the server at %s does not answer; is it running, and is the address right? %w",
			store.ErrUnavailable, u, err)
	}
	reply.Body.Close()
	if reply.StatusCode != http.StatusOK || !strings.HasPrefix(reply.Header.Get("Content-Type"), "text/html") {
		return "", notFound("the server at %s has no page: it is not later serve, or an old one, or has --no-page", u)
	}
	return u.String(), nil
}

// showPage prints the URL of a page, and opens it.
func (m *Main) showPage(url string, noOpen bool) {
	fmt.Fprintln(m.Stdout, url)
	if noOpen {
		return
	}
	command := browserCommand(runtime.GOOS, m.getenv("BROWSER"), url)
	cmd := exec.Command(command[0], command[1:]...)
	ownGroup(cmd) // Ctrl-C ends the server, not the browser
	err := cmd.Start()
	if err == nil {
		err = cmd.Process.Release()
	}
	if err != nil {
		m.note("no browser was opened: %v", err)
	}
}

// browserCommand returns the command that opens a URL: the one in BROWSER, where %s stands for the URL, or else the
// system's.
func browserCommand(goos, browser, url string) []string {
	if command := strings.Fields(browser); len(command) > 0 {
		if !strings.Contains(browser, "%s") {
			return append(command, url)
		}
		for i := range command {
			command[i] = strings.ReplaceAll(command[i], "%s", url)
		}
		return command
	}
	switch goos {
	case "windows":
		return []string{"rundll32", "url.dll,FileProtocolHandler", url}
	case "darwin":
		return []string{"open", url}
	}
	return []string{"xdg-open", url}
}
