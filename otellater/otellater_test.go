package otellater

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/laterq/later"
	"github.com/laterq/later/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is a client and a worker with telemetry that the test reads.
type program struct {
	*Telemetry
	t      *testing.T
	client *later.Client
	spans  *tracetest.InMemoryExporter
	tracer oteltrace.Tracer // of the program itself
	reader *sdkmetric.ManualReader
}

func start(t *testing.T, cfg Config) *program {
	t.Helper()
	p := &program{t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	traces := trace.NewTracerProvider(trace.WithSyncer(p.spans))
	p.tracer = traces.Tracer("program")
	cfg.TracerProvider, cfg.MeterProvider = traces, sdkmetric.NewMeterProvider(sdkmetric.WithReader(p.reader))
	p.Telemetry = New(cfg)
	s := memstore.New()
	client, err := later.New(s, append(p.Options(), later.WithLogger(slog.New(slog.DiscardHandler)))...)
	if err != nil {
		t.Fatal(err)
	}
	p.client = client
	t.Cleanup(func() {
		client.Close()
		s.Close()
	})
	return p
}

// work runs a worker until it has handled one message.
func (p *program) work(queue string, handler later.HandlerFunc) {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	defer stop()
	w := later.NewWorker(p.client, later.WorkerConfig{Middleware: p.Middleware()})
	w.Handle(queue, func(ctx context.Context, m *later.Message) error {
		stop()
		return handler(ctx, m)
	})
	if err := w.Run(ctx); err != nil {
		p.t.Fatal(err)
	}
}

// span returns the only span of a name.
func (p *program) span(name string) tracetest.SpanStub {
	p.t.Helper()
	all := p.named(name)
	if len(all) != 1 {
		p.t.Fatalf("%d spans %q of %d", len(all), name, len(p.spans.GetSpans()))
	}
	return all[0]
}

func (p *program) named(name string) (all []tracetest.SpanStub) {
	for _, s := range p.spans.GetSpans() {
		if s.Name == name {
			all = append(all, s)
		}
	}
	return all
}

func wantSpan(t *testing.T, s tracetest.SpanStub, kind oteltrace.SpanKind, want map[attribute.Key]any) {
	t.Helper()
	got := map[attribute.Key]any{}
	for _, a := range s.Attributes {
		got[a.Key] = a.Value.AsInterface()
	}
	delete(got, latenessKey)
	if want["messaging.message.id"] == "" {
		want["messaging.message.id"] = got["messaging.message.id"]
	}
	if s.SpanKind != kind || !maps.Equal(got, want) {
		t.Errorf("span %q is a %v with %v; want a %v with %v", s.Name, s.SpanKind, got, kind, want)
	}
	if s.InstrumentationScope.SchemaURL != SchemaURL {
		t.Errorf("span %q has the schema %q", s.Name, s.InstrumentationScope.SchemaURL)
	}
}

func links(s tracetest.SpanStub) (all []oteltrace.SpanID) {
	for _, l := range s.Links {
		all = append(all, l.SpanContext.SpanID())
	}
	return all
}

func wantLinks(t *testing.T, s tracetest.SpanStub, to ...tracetest.SpanStub) {
	t.Helper()
	var want []oteltrace.SpanID
	for _, l := range to {
		want = append(want, l.SpanContext.SpanID())
	}
	if got := links(s); !slices.Equal(got, want) {
		t.Errorf("span %q is linked to %v; want %v", s.Name, got, want)
	}
}

func TestHandlerIsLinkedToItsSender(t *testing.T) {
	p := start(t, Config{})
	ctx, request := p.tracer.Start(t.Context(), "request")
	if _, err := p.client.Queue("mail").Send(ctx, []byte("hello"), later.WithID("a")); err != nil {
		t.Fatal(err)
	}
	request.End()
	p.work("mail", func(ctx context.Context, m *later.Message) error {
		_, inner := p.tracer.Start(ctx, "inner")
		inner.End()
		return nil
	})
	send, process := p.span("send mail"), p.span("process mail")
	wantSpan(t, send, oteltrace.SpanKindProducer, map[attribute.Key]any{
		"messaging.system": "later", "messaging.operation.name": "send", "messaging.operation.type": "send",
		"messaging.destination.name": "mail", "messaging.message.id": "a", "messaging.message.body.size": int64(5),
	})
	wantSpan(t, process, oteltrace.SpanKindConsumer, map[attribute.Key]any{
		"messaging.system": "later", "messaging.operation.name": "process", "messaging.operation.type": "process",
		"messaging.destination.name": "mail", "messaging.message.id": "a", "messaging.message.body.size": int64(5),
		attemptKey: int64(1), outcomeKey: "acked",
	})
	if send.Parent.SpanID() != request.SpanContext().SpanID() {
		t.Error("the send is not a child of the request")
	}
	if process.SpanContext.TraceID() == send.SpanContext.TraceID() || process.Parent.IsValid() {
		t.Error("the handler is in the trace of its sender; want a link only")
	}
	wantLinks(t, process, send)
	if p.span("inner").Parent.SpanID() != process.SpanContext.SpanID() {
		t.Error("the handler's context does not have its span")
	}
}

func TestHandlerIsAChildOfItsSenderByChoice(t *testing.T) {
	p := start(t, Config{Parent: true, Propagator: propagation.NewCompositeTextMapPropagator(
		propagation.TraceContext{}, propagation.Baggage{})})
	member, err := baggage.NewMember("customer", "42")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.client.Queue("q").Send(baggage.ContextWithBaggage(t.Context(), bag), nil); err != nil {
		t.Fatal(err)
	}
	p.work("q", func(ctx context.Context, m *later.Message) error {
		if got := baggage.FromContext(ctx).Member("customer").Value(); got != "42" {
			t.Errorf("the customer is %q", got)
		}
		return nil
	})
	send, process := p.span("send q"), p.span("process q")
	if process.Parent.SpanID() != send.SpanContext.SpanID() || !process.Parent.IsRemote() || len(process.Links) > 0 {
		t.Errorf("the handler's parent is %v with links %v; want the send", process.Parent, process.Links)
	}
}

func TestOutcomesOfHandlers(t *testing.T) {
	failed := errors.New("try again")
	for _, test := range []struct {
		err     error
		outcome string
		status  codes.Code
	}{
		{nil, "acked", codes.Unset},
		{failed, "nacked", codes.Error},
		{later.Bury(failed), "buried", codes.Error},
		{later.Snooze(1), "snoozed", codes.Unset},
		{later.Then("next", nil), "acked", codes.Unset},
	} {
		t.Run(fmt.Sprint(test.err), func(t *testing.T) {
			p := start(t, Config{})
			if _, err := p.client.Queue("q").Send(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			p.work("q", func(context.Context, *later.Message) error { return test.err })
			s := p.named("process q")[0]
			if s.Status.Code != test.status || !slices.Contains(s.Attributes, outcomeKey.String(test.outcome)) {
				t.Errorf("the span has status %v and %v", s.Status, s.Attributes)
			}
			if failed := test.status == codes.Error; failed != (len(s.Events) == 1) {
				t.Errorf("the span has the events %v", s.Events)
			}
		})
	}
}

func TestPanicEndsTheSpanWithAnError(t *testing.T) {
	p := start(t, Config{})
	if _, err := p.client.Queue("q").Send(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	p.work("q", func(context.Context, *later.Message) error { panic("oh") })
	if s := p.span("process q"); s.Status.Code != codes.Error {
		t.Errorf("the span has status %v", s.Status)
	}
}

func TestFollowUpIsSentByItsHandler(t *testing.T) {
	p := start(t, Config{})
	if _, err := p.client.Queue("first").Send(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	p.work("first", func(context.Context, *later.Message) error { return later.Then("second", nil) })
	handler, send := p.span("process first"), p.span("send second")
	if send.Parent.SpanID() != handler.SpanContext.SpanID() {
		t.Error("the follow-up is not sent in the span of its handler")
	}
	p.work("second", func(context.Context, *later.Message) error { return nil })
	wantLinks(t, p.span("process second"), send)
	p.following.Range(func(key, _ any) bool {
		t.Errorf("the span of %v is kept", key)
		return true
	})
}

func TestMessageThatHasATraceKeepsIt(t *testing.T) {
	p := start(t, Config{})
	o := &later.Outgoing{Queue: "q"}
	if err := p.SendMiddleware(t.Context(), o); err != nil { // as an outbox does
		t.Fatal(err)
	}
	written := o.Headers["traceparent"]
	if written == "" {
		t.Fatal("no trace is written")
	}
	if _, err := p.client.Queue("q").SendBatch(t.Context(), []later.Outgoing{*o}); err != nil { // as its relay does
		t.Fatal(err)
	}
	p.work("q", func(_ context.Context, m *later.Message) error {
		if got := m.Headers["traceparent"]; got != written {
			t.Errorf("the trace is %s; want %s", got, written)
		}
		return nil
	})
	wantLinks(t, p.span("process q"), p.span("send q"))
}

func TestSendReceiveAndSettleHaveSpansOfTheirCalls(t *testing.T) {
	p := start(t, Config{})
	q := p.client.Queue("q")
	if _, err := p.Send(t.Context(), q, []byte("hello"), later.WithID("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.SendBatch(t.Context(), q, []later.Outgoing{{ID: "b"}, {ID: "c"}}); err != nil {
		t.Fatal(err)
	}
	got, err := p.Receive(t.Context(), q, 3)
	if err != nil || len(got) != 3 {
		t.Fatalf("received %d, %v", len(got), err)
	}
	for _, settle := range []func() error{
		func() error { return got[0].Ack(t.Context()) },
		func() error { return got[1].Bury(t.Context(), errors.New("no")) },
		func() error { return got[2].Release(t.Context()) },
	} {
		if err := settle(); err != nil {
			t.Fatal(err)
		}
	}
	if err := got[2].Nack(t.Context(), 0, nil); !errors.Is(err, later.ErrLeaseLost) {
		t.Fatal(err)
	}
	if err := got[2].Snooze(t.Context(), 0); !errors.Is(err, later.ErrLeaseLost) {
		t.Fatal(err)
	}
	sends, creates, receive := p.named("send q"), p.named("create q"), p.span("receive q")
	if len(sends) != 2 || len(creates) != 2 {
		t.Fatalf("%d spans of sends and %d of messages in a batch", len(sends), len(creates))
	}
	base := func(name, kind string, more map[attribute.Key]any) map[attribute.Key]any {
		all := map[attribute.Key]any{
			"messaging.system": "later", "messaging.operation.name": name, "messaging.operation.type": kind,
			"messaging.destination.name": "q",
		}
		maps.Copy(all, more)
		return all
	}
	wantSpan(t, sends[0], oteltrace.SpanKindProducer, base("send", "send", map[attribute.Key]any{
		"messaging.message.id": "a", "messaging.message.body.size": int64(5)}))
	wantSpan(t, sends[1], oteltrace.SpanKindClient, base("send", "send", map[attribute.Key]any{
		"messaging.batch.message_count": int64(2)}))
	wantSpan(t, creates[0], oteltrace.SpanKindProducer, base("create", "create", map[attribute.Key]any{
		"messaging.message.id": "b", "messaging.message.body.size": int64(0)}))
	wantSpan(t, receive, oteltrace.SpanKindClient, base("receive", "receive", map[attribute.Key]any{
		"messaging.batch.message_count": int64(3)}))
	wantSpan(t, p.span("ack q"), oteltrace.SpanKindClient, base("ack", "settle", map[attribute.Key]any{
		"messaging.message.id": "a", attemptKey: int64(1)}))
	wantLinks(t, receive, sends[0], creates[0], creates[1])
	wantLinks(t, p.span("ack q"), sends[0])
	wantLinks(t, p.span("bury q"), creates[0])
	wantLinks(t, p.span("release q"), creates[1])
	if p.span("nack q").Status.Code != codes.Error ||
		!slices.Contains(p.span("nack q").Attributes, attribute.String("error.type", "lease_lost")) ||
		p.span("snooze q").Status.Code != codes.Error {
		t.Error("a settle that failed is no error")
	}
	if creates[1].Parent.SpanID() != sends[1].SpanContext.SpanID() {
		t.Error("the messages of a batch are not in its span")
	}
}

func TestSendThatFailsIsAnError(t *testing.T) {
	p := start(t, Config{})
	p.client.Close()
	if _, err := p.Send(t.Context(), p.client.Queue("q"), nil); !errors.Is(err, later.ErrClosed) {
		t.Fatal(err)
	}
	if s := p.span("send q"); s.Status.Code != codes.Error {
		t.Errorf("the span has status %v", s.Status)
	}
}

// counts returns the count of each metric by name, operation, queue and error.
func (p *program) counts() map[string]int64 {
	p.t.Helper()
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(p.t.Context(), &all); err != nil {
		p.t.Fatal(err)
	}
	counts := map[string]int64{}
	add := func(name string, set attribute.Set, n int64) {
		for _, key := range []attribute.Key{
			"messaging.system", "messaging.operation.name", "messaging.destination.name", "error.type",
		} {
			if v, ok := set.Value(key); ok {
				name += " " + v.AsString()
			}
		}
		counts[name] += n
	}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, point := range data.DataPoints {
					add(m.Name, point.Attributes, point.Value)
				}
			case metricdata.Histogram[float64]:
				for _, point := range data.DataPoints {
					add(m.Name, point.Attributes, int64(point.Count))
				}
			}
		}
	}
	return counts
}

func TestMetricsHaveTheNamesOfTheConventions(t *testing.T) {
	p := start(t, Config{})
	q := p.client.Queue("q")
	for range 2 {
		if _, err := p.Send(t.Context(), q, nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err := p.Receive(t.Context(), q, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := got[0].Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.work("q", func(context.Context, *later.Message) error { return later.Bury(errors.New("no")) })
	want := map[string]int64{
		"messaging.client.sent.messages later send q":                    2,
		"messaging.client.consumed.messages later receive q":             1,
		"messaging.client.consumed.messages later process q":             1,
		"messaging.client.operation.duration later send q":               2,
		"messaging.client.operation.duration later receive q":            1,
		"messaging.client.operation.duration later ack q":                1,
		"messaging.process.duration later process q *errors.errorString": 1,
	}
	if got := p.counts(); !maps.Equal(got, want) {
		t.Errorf("the metrics are %v; want %v", got, want)
	}
}

func BenchmarkHandler(b *testing.B) {
	traces := trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()))
	for name, t := range map[string]*Telemetry{
		"sampled": New(Config{TracerProvider: traces}),
		"never":   New(Config{TracerProvider: trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))}),
	} {
		b.Run(name, func(b *testing.B) {
			o := later.Outgoing{Queue: "q", ID: "a", Payload: make([]byte, 100)}
			handler := t.Process(func(context.Context, *later.Message) error { return nil })
			b.ReportAllocs()
			for b.Loop() {
				o.Headers = nil
				if err := t.SendMiddleware(b.Context(), &o); err != nil {
					b.Fatal(err)
				}
				if err := handler(b.Context(), &later.Message{ID: "a", Queue: "q", Headers: o.Headers}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
