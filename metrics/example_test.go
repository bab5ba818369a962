package metrics_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/laterq/later"
	"github.com/laterq/later/metrics"
)

func Example() {
	ctx := context.Background()
	m := metrics.New(metrics.Config{})
	client, err := later.Open(ctx, "mem://", later.WithObserver(m.Observe))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	http.Handle("/metrics", m.Handler(client))

	mail := client.Queue("mail")
	for range 3 {
		if _, err := mail.Send(ctx, []byte("hello")); err != nil {
			log.Fatal(err)
		}
	}
	got, err := mail.Receive(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	if err := got[0].Ack(ctx); err != nil {
		log.Fatal(err)
	}

	server := httptest.NewServer(http.DefaultServeMux)
	defer server.Close()
	reply, err := http.Get(server.URL + "/metrics")
	if err != nil {
		log.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "later_messages_sent_total") || strings.HasPrefix(line, "later_queue_messages") {
			fmt.Print(line)
		}
	}
	// Output:
	// later_messages_sent_total{queue="mail"} 3
	// later_queue_messages{queue="mail",state="dead"} 0
	// later_queue_messages{queue="mail",state="leased"} 0
	// later_queue_messages{queue="mail",state="ready"} 2
	// later_queue_messages{queue="mail",state="scheduled"} 0
}
