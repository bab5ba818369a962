package health_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/laterq/later"
	"github.com/laterq/later/health"
)

func Example() {
	client, err := later.Open(context.Background(), "mem://")
	if err != nil {
		log.Fatal(err)
	}
	worker := later.NewWorker(client, later.WorkerConfig{})
	mux := http.NewServeMux()
	mux.Handle("/healthz", health.Live(worker))
	mux.Handle("/readyz", health.Ready(client))

	probe := func(path string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Print(path, " ", w.Code, " ", w.Body)
	}
	probe("/healthz")
	probe("/readyz")
	// Output:
	// /healthz 200 {"status":"ok"}
	// /readyz 200 {"status":"ok"}
}
