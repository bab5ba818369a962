package migrate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/laterq/later"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/migrate"
	"github.com/laterq/later/redisstore"
)

func ExampleFromZSet() {
	server, err := redistest.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Remove()
	ctx := context.Background()
	rdb, err := redisstore.OpenClient(server.URL()) // for example redis://localhost:6379/0
	if err != nil {
		log.Fatal(err)
	}
	defer rdb.Close()
	rdb.ZAdd(ctx, "jobs", redis.Z{Score: 3e9, Member: `{"order":17}`}, redis.Z{Score: 3e9 + 60, Member: `{"order":18}`})
	client, err := later.Open(ctx, "mem://") // redis://localhost:6379/0
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	cfg := migrate.ZSetConfig{Queue: "orders", IDFrom: "json:order"}
	cfg.DryRun = true
	result, err := migrate.FromZSet(ctx, client, rdb, "jobs", cfg)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range result.First {
		fmt.Println(m.Info.ID, m.Info.Due.UTC().Format("2006-01-02 15:04:05"))
	}

	cfg.DryRun, cfg.DeleteSource = false, true
	result, err = migrate.FromZSet(ctx, client, rdb, "jobs", cfg)
	if err != nil {
		log.Fatal(err) // a repeated FromZSet continues where this one ended
	}
	fmt.Println(result.Queues[0].Copied, "copied,", result.Queues[0].Deleted, "deleted")
	// Output:
	// 17 2065-01-24 05:20:00
	// 18 2065-01-24 05:21:00
	// 2 copied, 2 deleted
}
