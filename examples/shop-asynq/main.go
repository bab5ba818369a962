// Command shop-asynq is the order service of ../shop, built with asynq instead of Later to compare the two. See
// README.md.
//
// Start reading at Shop in shop.go, the service. main.go puts it together, outbox.go moves tasks from the database to
// asynq, worker.go runs them, partner.go is the unreliable API, api.go the service's own API, and observe.go traces and
// metrics.
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

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, os.Args[1:], os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// run runs the service until ctx ends, and then drains it.
func run(ctx context.Context, args []string, getenv func(string) string) (err error) {
	flags := flag.NewFlagSet("shop", flag.ContinueOnError)
	addr := flags.String("addr", "localhost:8080", "address of the HTTP API; :8080 in a container")
	data := flags.String("data", "shop-data", "directory of the database")
	partner := flags.String("partner", "", "URL of the partner's API (default: one in this process that often fails)")
	demo := flags.Bool("demo", false, "remind after 5 s and cancel after 10 s")
	cfg := Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags.DurationVar(&cfg.RemindAfter, "remind", 20*time.Minute, "when unpaid orders are reminded")
	flags.DurationVar(&cfg.CancelAfter, "cancel", 30*time.Minute, "when unpaid orders are cancelled")
	flags.DurationVar(&cfg.Retry, "retry", time.Second, "delay before the partner is called again; it "+
		"doubles each time")
	flags.DurationVar(&cfg.CheckEvery, "check", time.Second, "how often asynq looks for tasks that are due")
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

	options, err := redis.ParseURL(cmp.Or(getenv("REDIS_URL"), "redis://localhost:6379/0"))
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return err
	}
	shop, err := New(ctx, db, rdb, cfg)
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
