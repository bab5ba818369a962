package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	listen, insecure := defaultListen, false
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Share the store over the network",
		Long: `Serve makes the store available at http://ADDRESS, which other processes use as their store: with --store or
LATER_STORE for this command, and with later.Open in Go. They can then work on an embedded store of another machine, or
on a Redis that they cannot reach.

Whoever reaches the address can do everything with the store. So it must be one of this machine, unless something else
keeps others away and --insecure-no-auth says so. For TLS and authentication put a proxy before it.

SIGTERM or Ctrl-C answers the calls under way and ends. A second one kills.`,
		Example: `  later serve
  later serve --store redis://localhost:6379/0 --listen 127.0.0.1:8000
  later --store http://127.0.0.1:7600 work mail`,
		Args: arguments(0, 0),
		RunE: m.withClient(func(ctx context.Context, c *later.Client, _ []string) error {
			return m.serve(ctx, c.Store(), listen, insecure)
		}),
	}
	cmd.Flags().StringVar(&listen, "listen", listen, "`ADDRESS` to listen at, as host:port")
	cmd.Flags().BoolVar(&insecure, "insecure-no-auth", false, "listen at an address that other machines can reach")
	return cmd
}

func (m *Main) serve(ctx context.Context, s store.Store, address string, insecure bool) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%w: listening at %s: %w", store.ErrUnavailable, address, err)
	}
	local := listener.Addr().(*net.TCPAddr)
	if !local.IP.IsLoopback() && !insecure {
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
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout,
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
