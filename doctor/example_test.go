package doctor_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/doctor"
)

func ExampleCheck() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "later-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	client, err := later.Open(ctx, "file://"+dir) // or redis://localhost:6379/0
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Queue("orders").Send(ctx, []byte("order 42")); err != nil {
		log.Fatal(err)
	}
	issues := 0
	err = doctor.Check(ctx, client, doctor.Config{}, func(r doctor.Result) {
		if r.IsIssue() {
			issues++
			fmt.Println(r.Severity, r.Queue, r.Text, r.Advice)
		}
	})
	if err != nil {
		log.Fatal(err) // the check could not be completed
	}
	fmt.Println(issues, "issues remain")
	// Output: 0 issues remain
}
