package otellater_test

import (
	"context"
	"fmt"
	"log"
	"slices"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/laterq/later"
	"github.com/laterq/later/otellater"
)

func Example() {
	spans := tracetest.NewInMemoryExporter() // a program exports to its collector
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))

	ctx, stop := context.WithCancel(context.Background())
	t := otellater.New(otellater.Config{TracerProvider: provider})
	client, err := later.Open(ctx, "mem://", t.Options()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Queue("mail").Send(ctx, []byte("hello")); err != nil {
		log.Fatal(err)
	}
	worker := later.NewWorker(client, later.WorkerConfig{Middleware: t.Middleware()})
	worker.Handle("mail", func(ctx context.Context, m *later.Message) error {
		stop()
		return nil
	})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}

	all := spans.GetSpans()
	for _, s := range slices.Backward(all) {
		fmt.Println(s.Name, s.SpanKind)
	}
	fmt.Println("linked:", all[1].Links[0].SpanContext.SpanID() == all[0].SpanContext.SpanID())
	// Output:
	// process mail consumer
	// send mail producer
	// linked: true
}
