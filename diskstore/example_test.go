package diskstore_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/laterq/later"
	"github.com/laterq/later/diskstore"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "later")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := diskstore.Open(filepath.Join(dir, "queue"), diskstore.SyncEvery(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	client, err := later.New(s)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	_, err = diskstore.Open(filepath.Join(dir, "queue"))
	held, ok := errors.AsType[*diskstore.HeldError](err)
	fmt.Println(ok, errors.Is(err, later.ErrUnavailable), held.Holder != "")
	// Output: true true true
}
