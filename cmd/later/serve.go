package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laterq/later"
	"github.com/laterq/later/remotestore"
	"github.com/laterq/later/store"
)

const (
	// defaultListen is reachable from this machine only.
	defaultListen = "127.0.0.1:7600"
	// A client sends the head of a request at once, and keeps a connection open for the next one.
	headTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute
)

func (m *Main) serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Share the store over the network",
		Long: `Serve makes the store available at http://ADDRESS, which other processes use as their store: with --store or
LATER_STORE for this command, and with later.Open in Go. They can then work on an embedded store of another machine, or
on a Redis that they cannot reach.

Whoever reaches the address can do everything with the store. So it must be one of this machine, unless something else
keeps others away and --insecure-no-auth says so. For TLS and authentication put a proxy before it. At an address of
this machine, it answers requests for localhost and addresses such as 127.0.0.1 only, so that no web page reaches it
under a name of its own. --host allows the name that a proxy passes on.

SIGTERM or Ctrl-C answers the calls under way and ends. A second one kills.`,
		Example: `  later serve
  later serve --store redis://localhost:6379/0 --listen 127.0.0.1:8000
  later --store http://127.0.0.1:7600 work mail`,
		Args: arguments(0, 0),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, _ []string) error {
			return m.serve(ctx, c.Store(), o)
		}),
	}
	cmd.Flags().StringVar(&o.listen, "listen", defaultListen, "`ADDRESS` to listen at, as host:port")
	cmd.Flags().BoolVar(&o.insecure, "insecure-no-auth", false, "listen at an address that other machines can reach")
	cmd.Flags().StringSliceVar(&o.hosts, "host", nil, "answer requests for this `NAME`, too; can be repeated")
	return cmd
}

// serveOptions are the flags of later serve.
type serveOptions struct {
	listen   string
	insecure bool
	hosts    []string
}

// checkHost refuses requests for names that are neither localhost, nor an address of this machine, nor allowed.
func checkHost(next http.Handler, allowed []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]")
		}
		if !net.ParseIP(host).IsLoopback() && !strings.EqualFold(host, "localhost") && !slices.Contains(allowed, host) {
			http.Error(w, fmt.Sprintf("the host %q is not allowed: start later serve with --host %q", host, host),
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (m *Main) serve(ctx context.Context, s store.Store, o serveOptions) error {
	address := o.listen
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%w: listening at %s: %w", store.ErrUnavailable, address, err)
	}
	local := listener.Addr().(*net.TCPAddr)
	if !local.IP.IsLoopback() && !o.insecure {
		listener.Close()
		return store.Invalid("--listen %s can be reached by other machines, and there is no authentication: give an address "+
			"of this machine such as %s, or --insecure-no-auth if something else keeps others away", address, defaultListen)
	}
	handler, err := remotestore.NewHandler(s, m.logger())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle(remotestore.Path, handler)
	var checked http.Handler = mux
	if local.IP.IsLoopback() {
		checked = checkHost(mux, o.hosts)
	}
	server := &http.Server{Handler: checked, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(m.logger().Handler(), slog.LevelDebug)}
	ctx, stop := interruptible(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	m.logger().Info("serving", "store", m.shownURL(), "at", "http://"+local.String())
	select {
	case err = <-ended:
		return fmt.Errorf("%w: serving at %s: %w", store.ErrUnavailable, address, err)
	case <-ctx.Done():
	}
	listener.Close() // clients that come now find nobody, and try again
	handler.Close()
	err = server.Close()
	<-ended
	if stopped, ok := errors.AsType[*stopError](context.Cause(ctx)); ok && err == nil {
		m.logger().Info("drained", "signal", stopped.signal)
		return nil
	}
	return errors.Join(context.Cause(ctx), err)
}
