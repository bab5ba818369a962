package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laterq/later"
	"github.com/laterq/later/health"
	"github.com/laterq/later/metrics"
	"github.com/laterq/later/remotestore"
	"github.com/laterq/later/server"
	"github.com/laterq/later/server/access"
	"github.com/laterq/later/server/page"
	"github.com/laterq/later/store"
)

// defaultListen is reachable from this machine only.
const defaultListen = "127.0.0.1:7600"

func (m *Main) serveCommand() *cobra.Command {
	var o serveOptions
	cmd := m.command("serve", "Offer the store over HTTP",
		`Serve offers the store at http://ADDRESS, in three ways. A browser shows what is coming, and changes it, at
the page that docs/page.md describes. Programs in any language send and receive messages over the HTTP API, which
docs/http.md explains and /v1/openapi.json describes. Other processes of Later use the address as their store, with
--store or LATER_STORE and with later.Open in Go: so they work on an embedded store of another machine, or on a Redis
that they cannot reach. In addition, /metrics is for Prometheus, and /healthz and /readyz are for probes.

Without --web-config, every client that reaches the address can do everything with the store. So the address must be
one of this machine, unless a firewall or a proxy keeps clients away, and --insecure-no-auth confirms it. --web-config
names a YAML file with tokens, users, their roles, trusted proxies and TLS, which docs/access.md describes; later token
new makes a token. The file is read again when it changes and at SIGHUP.

At an address of this machine, and without authentication, serve answers requests for localhost, IP addresses and the
name in --listen only, so that no web page reaches it under a name of its own. --host allows the name that a proxy
passes on, and --path-prefix is for one that passes on the path under which it has the server.

--keep-finished keeps the outcomes of the last messages of a queue that were acked, cancelled or became dead, without
their payloads, for the page and the HTTP API. They are in memory, up to 64 MiB for all queues, and end with serve.

SIGTERM or Ctrl-C answers the calls under way and ends. A second one kills, but not a second SIGTERM within 2 s, which
timeout(1) sends. As a service of systemd, serve reports when it is ready, reloads and ends;
deploy/systemd/later-serve.service is an example.`,
		`  later serve
  later serve --store redis://localhost:6379/0 --listen :7600 --web-config /etc/later/web.yml
  later serve --keep-finished mail --keep-finished 'orders-*' --finished-age 7d
  later --store http://127.0.0.1:7600 work mail
  LATER_TOKEN=... later --store https://queue.example:7600 stats`,
		func(cmd *cobra.Command, args []string) error {
			if err := o.checkFinished(cmd.Flags().Changed); err != nil {
				return err
			}
			return run(func(ctx context.Context, _ []string) error { return m.serve(ctx, o, func(string) {}) })(cmd, args)
		})
	flags := cmd.Flags()
	flags.StringVar(&o.listen, "listen", defaultListen, "`ADDRESS` to listen at, as host:port")
	flags.StringVar(&o.webConfig, "web-config", "", "`FILE` with TLS, identities and their roles")
	flags.BoolVar(&o.insecure, "insecure-no-auth", false,
		"listen at an address that other machines can reach without authentication")
	flags.StringSliceVar(&o.hosts, "host", nil, "answer requests for this `NAME`, too; can be repeated")
	flags.StringVar(&o.pathPrefix, "path-prefix", "", "answer below this `PATH`, too, as in /later")
	flags.BoolVar(&o.noPage, "no-page", false, "do not serve the page")
	o.addFinished(flags)
	return cmd
}

// serveOptions are the flags of later serve.
type serveOptions struct {
	listen     string
	webConfig  string
	insecure   bool
	hosts      []string
	pathPrefix string
	noPage     bool
	finished   server.FinishedConfig
	anyPort    bool // listen at another port if that one is taken
}

// addFinished adds the flags of the lists of finished messages.
func (o *serveOptions) addFinished(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.finished.Queues, "keep-finished", nil,
		"keep finished messages of this `QUEUE`; NAME* is several; can be repeated")
	flags.IntVar(&o.finished.MaxCount, "finished-count", server.DefaultFinishedCount,
		"keep the last `N` finished messages of each queue")
	o.finished.MaxAge = server.DefaultFinishedAge
	durationFlag(flags, &o.finished.MaxAge, "finished-age", "keep finished messages for this long")
}

// checkFinished checks the flags of the lists of finished messages.
func (o *serveOptions) checkFinished(given func(flag string) bool) error {
	for _, flag := range []string{"finished-count", "finished-age"} {
		if given(flag) && len(o.finished.Queues) == 0 {
			return store.Invalid("--%s is given without --keep-finished: name queues, such as --keep-finished mail, or '*'",
				flag)
		}
	}
	switch {
	case o.finished.MaxCount < 1:
		return store.Invalid("--finished-count is %d: must be 1 or more", o.finished.MaxCount)
	case o.finished.MaxAge <= 0:
		return store.Invalid("--finished-age is 0: must be 1s or more")
	}
	return o.finished.Check()
}

var pathPrefix = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)

// control returns the access control of a server at an address, and the address with numbers for host and port.
func (m *Main) control(o serveOptions) (*access.Control, *net.TCPAddr, error) {
	if !pathPrefix.MatchString(o.pathPrefix) {
		return nil, nil, store.Invalid("--path-prefix is %q: give a path such as /later, of letters, digits and ._~-, "+
			"without a slash at its end", o.pathPrefix)
	}
	address, err := net.ResolveTCPAddr("tcp", o.listen)
	if err != nil {
		return nil, nil, store.Invalid("--listen is %q: %v", o.listen, err)
	}
	local := address.IP.IsLoopback()
	listener, _, _ := net.SplitHostPort(o.listen) // which ResolveTCPAddr has parsed
	control, err := access.New(access.Config{File: o.webConfig, Loopback: local, Hosts: o.hosts, Listener: listener,
		Page: !o.noPage, Logger: m.logger()})
	if err != nil {
		return nil, nil, err
	}
	switch {
	case local:
	case !control.Authenticates() && !o.insecure:
		return nil, nil, store.Invalid("--listen %s can be reached by other machines, and there is no authentication: "+
			"give a --web-config with tokens or users, or an address of this machine such as %s, or "+
			"--insecure-no-auth if a firewall or a proxy keeps other clients away", o.listen, defaultListen)
	case control.TLS() == nil && control.Authenticates():
		m.logger().Warn("without TLS, tokens and passwords can be read on the network: add tls_server_config, " +
			"or have a proxy add TLS")
	}
	return control, address, nil
}

// webHandler returns the handler of all requests. Call end before the client is closed.
func (m *Main) webHandler(
	c *later.Client, counts *metrics.Metrics, control *access.Control, o serveOptions,
) (h http.Handler, end func(), err error) {
	log := m.logger()
	api, err := server.New(c, server.Config{Logger: log, Version: readVersion().Version, Store: m.storeKind(),
		Finished: o.finished})
	if err != nil {
		return nil, nil, err
	}
	api.WatchFinished()
	changed := func(ctx context.Context, c remotestore.Change) {
		attrs := []slog.Attr{slog.String("queue", c.Queue)}
		if c.Count > 0 {
			attrs = append(attrs, slog.Int("count", c.Count))
		}
		api.Changed(ctx, c.What, attrs...)
	}
	raw, err := remotestore.NewHandler(c.Store(), log, remotestore.OnChange(changed))
	if err != nil {
		api.Close()
		return nil, nil, err
	}
	control.ShareLogouts(server.Logouts(c))
	mux := http.NewServeMux()
	mux.Handle("/", withPage(api, o))
	mux.Handle("GET /healthz", health.LiveStore(c))
	mux.Handle("GET /readyz", health.Ready(c))
	mux.Handle("GET /metrics", access.Require(access.Look, counts.Handler(c)))
	mux.Handle(remotestore.Path, access.Require(access.Administer, access.EndRevoked(raw)))
	mux.Handle(strings.TrimSuffix(remotestore.Path, "/"), api) // which the mux would redirect
	mux.HandleFunc("POST "+access.LoginPath, control.Login)
	mux.HandleFunc("POST "+access.LogoutPath, control.Logout)
	site := underPrefix(o.pathPrefix, counts.Requests(mux, control.Handler))
	return server.Deadlines(server.ExactPaths(site)), func() {
		api.Close()
		raw.Close()
	}, nil
}

func withPage(api http.Handler, o serveOptions) http.Handler {
	if o.noPage {
		return api
	}
	return page.Handler(api)
}

// underPrefix returns a handler that also answers below a path. Probes and clients that do not come through the proxy
// need not know it.
func underPrefix(prefix string, h http.Handler) http.Handler {
	if prefix == "" {
		return h
	}
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle(prefix+"/", http.StripPrefix(prefix, h))
	return mux
}

// serve serves the selected store until a signal ends that. It calls ready with the URL.
func (m *Main) serve(ctx context.Context, o serveOptions, ready func(url string)) error {
	defer m.collectSeldom()()
	control, address, err := m.control(o)
	if err != nil {
		return err
	}
	counts := metrics.New(metrics.Config{})
	client, err := m.open(ctx, later.WithObserver(counts.Observe))
	if err != nil {
		return err
	}
	defer client.Close()
	web, err := m.startWeb(client, counts, control, address, o)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	supervisor := newSystemd(m.logger())
	serving := "serving " + m.shownURL() + " at " + web.url
	defer supervisor.onReload(o.webConfig != "", serving, control.Reload)()
	m.logger().Info("serving", "store", m.shownURL(), "at", web.url)
	supervisor.tell(daemon.SdNotifyReady, status(serving))
	ready(web.url)
	select {
	case <-web.ended:
		err = web.err
		web.stop()
		return fmt.Errorf("%w: serving at %s: %w", store.ErrUnavailable, o.listen, err)
	case <-ctx.Done():
	}
	supervisor.tell(daemon.SdNotifyStopping, status("draining"))
	err = web.stop()
	if stopped, ok := errors.AsType[*stopError](context.Cause(ctx)); ok && err == nil {
		m.logger().Info("drained", "signal", stopped.signal)
		return nil
	}
	return errors.Join(context.Cause(ctx), err)
}

// flushTimeout limits how long clients can take the rest of their replies after all calls have been answered.
const flushTimeout = time.Second

// webServer serves a client's store over HTTP.
type webServer struct {
	url      string
	http     *http.Server
	listener net.Listener
	end      func()        // ends the goroutines of the handler
	ended    chan struct{} // closed when serving has ended
	err      error         // of serving, set before ended is closed
}

// startWeb serves a client's store at an address. Stop it before the client is closed.
func (m *Main) startWeb(
	c *later.Client, counts *metrics.Metrics, control *access.Control, address *net.TCPAddr, o serveOptions,
) (*webServer, error) {
	listener, err := net.ListenTCP("tcp", address)
	if err != nil && o.anyPort {
		listener, err = net.ListenTCP("tcp", &net.TCPAddr{IP: address.IP})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: listening at %s: %w", store.ErrUnavailable, o.listen, err)
	}
	handler, end, err := m.webHandler(c, counts, control, o)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	w := &webServer{listener: limitConnections(listener, maxConnections), end: end, ended: make(chan struct{})}
	w.http = &http.Server{Handler: handler, TLSConfig: control.TLS(),
		ErrorLog: slog.NewLogLogger(m.logger().Handler(), slog.LevelDebug)}
	limitSite(w.http)
	w.url = siteURL(w.http.TLSConfig, listener.Addr())
	go func() {
		defer close(w.ended)
		w.err = serveSite(w.http, w.listener)
	}()
	return w, nil
}

// stop answers the calls under way, and ends.
func (w *webServer) stop() error {
	w.listener.Close() // new clients are refused, and try again
	w.end()
	<-w.ended // else the listener could be closed once more, which is an error
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	_ = w.http.Shutdown(ctx) // the replies of calls that end has waited for may not be sent yet
	return w.http.Close()
}

func siteURL(config *tls.Config, address net.Addr) string {
	if config != nil {
		return "https://" + address.String()
	}
	return "http://" + address.String()
}

// serveSite serves until the server or the listener is closed.
func serveSite(site *http.Server, listener net.Listener) error {
	if site.TLSConfig != nil {
		return site.ServeTLS(listener, "", "") // the certificates are in TLSConfig
	}
	return site.Serve(listener)
}

// onReload calls reload at SIGHUP until stop is called, if that is wanted or systemd sends it.
func (s *systemd) onReload(wanted bool, serving string, reload func() error) (stop func()) {
	if !wanted && !s.active {
		return func() {}
	}
	return onHangup(func() {
		s.reloading("reading the configuration")
		s.reloaded(serving, "the new configuration is refused", reload())
	})
}
