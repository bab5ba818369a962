// Command shop is an order service that is built with Later: orders that are not paid are reminded and then cancelled,
// and paid ones are announced to a partner with an unreliable API. See README.md.
//
// Start reading at Shop in shop.go, the service. main.go puts it together, worker.go runs the messages, partner.go is
// the unreliable API, api.go the service's own API, and observe.go traces and metrics.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore" // for file: URLs
	"github.com/laterq/later/lock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// After two seconds, a second signal ends the program at once. Before, it may be a copy: timeout(1) sends two.
	context.AfterFunc(ctx, func() { time.AfterFunc(2*time.Second, stop) })
	if err := run(ctx, os.Args[1:], os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// run runs the service until ctx ends, and then drains it.
func run(ctx context.Context, args []string, getenv func(string) string) (err error) {
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "address of the HTTP API; :8080 in a container")
	data := flags.String("data", "shop-data", "directory of the database and of the embedded store")
	partner := flags.String("partner", "", "URL of the partner's API (default: one in this process that often fails)")
	demo := flags.Bool("demo", false, "remind after 5 s and cancel after 10 s")
	cfg := Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags.DurationVar(&cfg.RemindAfter, "remind", 20*time.Minute, "when unpaid orders are reminded")
	flags.DurationVar(&cfg.CancelAfter, "cancel", 30*time.Minute, "when unpaid orders are cancelled")
	flags.DurationVar(&cfg.Retry, "retry", time.Second, "delay before the partner is called again; it "+
		"doubles each time")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *demo {
		cfg.RemindAfter, cfg.CancelAfter = 5*time.Second, 10*time.Second
	}
	db, err := openDatabase(*data)
	if err != nil {
		return err
	}
	defer db.Close()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	if *partner == "" {
		*partner = "http://" + listener.Addr().String() + "/partner"
	}
	cfg.Partner = HTTPPartner{URL: *partner}

	cfg.Metrics = NewMetrics()
	url := cmp.Or(getenv("LATER_STORE"), getenv("REDIS_URL"), "file:"+filepath.Join(*data, "later"))
	client, err := later.Open(ctx, url, ClientOptions(cfg.Log, cfg.Metrics)...)
	if err != nil {
		return err
	}
	defer client.Close()
	cfg.Locker = lock.For(client)
	shop, err := New(ctx, db, client, cfg)
	if err != nil {
		return err
	}
	cfg.Log.Info("shop is open", "address", listener.Addr(), "remind", cfg.RemindAfter, "cancel", cfg.CancelAfter)
	return shop.Run(ctx, listener)
}

// openDatabase opens the SQLite database with the shop's own data.
func openDatabase(dir string) (*sql.DB, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	settings := url.Values{"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)"}, "_txlock": {"immediate"}}
	return sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?"+settings.Encode())
}
