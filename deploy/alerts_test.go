// Package deploy has what runs Later: units, and the dashboard and alert rules that are tested here.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/laterq/later"
	_ "github.com/laterq/later/diskstore"
	"github.com/laterq/later/internal/redistest"
	"github.com/laterq/later/metrics"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// process is a program with a client, a worker and metrics.
type process struct {
	t       *testing.T
	client  *later.Client
	metrics *metrics.Metrics
}

func start(t *testing.T, url string, cfg metrics.Config) *process {
	t.Helper()
	cfg.Timeout = time.Minute // a busy machine must not fail a test
	m := metrics.New(cfg)
	quiet := later.WithLogger(slog.New(slog.DiscardHandler))
	client, err := later.Open(t.Context(), url, quiet, later.WithObserver(m.Observe))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return &process{t, client, m}
}

// send sends a message that was due some time ago.
func (p *process) send(queue string, overdue time.Duration) {
	p.t.Helper()
	if _, err := p.client.Queue(queue).Send(p.t.Context(), nil, later.At(time.Now().Add(-overdue))); err != nil {
		p.t.Fatal(err)
	}
}

// receive receives a message of a queue.
func (p *process) receive(queue string) *later.Delivery {
	p.t.Helper()
	got, err := p.client.Queue(queue).Receive(p.t.Context(), 1, later.Lease(time.Hour))
	if err != nil {
		p.t.Fatal(err)
	}
	return got[0]
}

// work runs a worker until it has handled a message of a queue with the given result.
func (p *process) work(queue string, result error) {
	p.t.Helper()
	ctx, stop := context.WithCancel(p.t.Context())
	defer stop()
	w := later.NewWorker(p.client, later.WorkerConfig{Concurrency: 1})
	w.Handle(queue, func(context.Context, *later.Message) error {
		stop()
		return result
	})
	if err := w.Run(ctx); err != nil {
		p.t.Fatal(err)
	}
}

// giveBack sends a message whose kind nobody knows, and runs a worker until the end of the test, which lists it.
func (p *process) giveBack(queue string) {
	p.t.Helper()
	if _, err := p.client.Queue(queue).Send(p.t.Context(), nil, later.Kind("mistyped")); err != nil {
		p.t.Fatal(err)
	}
	mux := later.NewMux()
	mux.Handle("known", func(context.Context, *later.Message) error { return nil })
	w := later.NewWorker(p.client, later.WorkerConfig{Concurrency: 1})
	w.HandleMux(queue, mux)
	ctx, stop := context.WithCancel(p.t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	p.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			p.t.Error(err)
		}
	})
	for begin := time.Now(); time.Since(begin) < time.Minute; {
		all, err := p.client.ReportWorkers(p.t.Context(), time.Second)
		if err != nil {
			p.t.Fatal(err)
		}
		if len(all) > 0 && len(all[0].GivenBack) > 0 {
			return
		}
	}
	p.t.Fatal("the worker gives nothing back")
}

// missRuns reports what a worker does that leaves runs out.
func (p *process) missRuns(n int) {
	p.metrics.Observe(later.Event{Kind: later.EventRunMissed, Queue: "mail", ID: "daily", Schedule: "daily", Count: n})
}

// TestAlertsFireInTheirSituations brings a real store into each situation, scrapes it before and after, and has
// Prometheus evaluate the rules over the samples: those from before for ten minutes, and then those from after. The
// counters go on growing as much every minute as they did between the scrapes.
func TestAlertsFireInTheirSituations(t *testing.T) {
	needPromtool(t)
	for name, test := range map[string]struct {
		cfg metrics.Config
		// before and after bring about the situation.
		before, after func(p *process)
		want          []string // the alerts, without LaterDeliveriesLate: a busy machine can bring that about
		late          bool     // that one fires, too
	}{
		"all is well": {
			before: func(p *process) { p.send("mail", 0); p.work("mail", nil) },
			after:  func(p *process) { p.send("mail", 0); p.work("mail", nil) },
		},
		"no worker": {
			after: func(p *process) { p.send("mail", time.Hour) },
			want:  []string{"LaterMessagesOverdue mail", "LaterNothingHandled mail"},
		},
		"a message that is held": {
			after: func(p *process) {
				p.send("mail", 0)
				p.send("mail", 0)
				p.receive("mail")
			},
		},
		"too few workers": {
			before: func(p *process) { p.send("mail", time.Hour); p.work("mail", nil) },
			after: func(p *process) {
				p.send("mail", time.Hour)
				p.send("mail", time.Hour)
				if err := p.receive("mail").Ack(p.t.Context()); err != nil {
					p.t.Fatal(err)
				}
			},
			want: []string{"LaterMessagesOverdue mail"},
			late: true,
		},
		"a limit that lets too few start": {
			before: func(p *process) { p.send("mail", time.Hour); p.work("mail", nil) },
			after: func(p *process) {
				if err := p.client.Queue("mail").SetFlow(p.t.Context(), later.Flow{Concurrency: 1}); err != nil {
					p.t.Fatal(err)
				}
				p.send("mail", time.Hour)
				p.send("mail", time.Hour)
				p.receive("mail")
			},
			want: []string{"LaterLimitHoldsBack mail"},
		},
		"a paused queue": {
			after: func(p *process) {
				p.send("mail", time.Hour)
				if err := p.client.Queue("mail").Pause(p.t.Context()); err != nil {
					p.t.Fatal(err)
				}
			},
		},
		"messages die": {
			before: func(p *process) { p.send("mail", 0); p.work("mail", errors.New("try again")) },
			after: func(p *process) {
				p.send("other", 0)
				p.work("other", nil)
				p.send("mail", 0)
				p.work("mail", later.Bury(errors.New("no such user")))
			},
			want: []string{"LaterDeadLettersGrow mail"},
		},
		"a mistyped kind": {
			before: func(p *process) { p.send("mail", 0); p.work("mail", nil) },
			after:  func(p *process) { p.giveBack("mail") },
			want:   []string{"LaterMessagesGivenBack mail"},
		},
		"a topic without a subscription": {
			after: func(p *process) {
				if _, err := p.client.Topic("news").Publish(p.t.Context(), nil, later.At(time.Now().Add(-time.Hour))); err != nil {
					p.t.Fatal(err)
				}
			},
			want: []string{"LaterMessagesOverdue topic:news", "LaterNeedsPerson ", "LaterNothingHandled topic:news"},
		},
		"runs of a schedule that come too late": {
			before: func(p *process) { p.missRuns(1) },
			after:  func(p *process) { p.missRuns(2) },
			want:   []string{"LaterRunsMissed mail"},
		},
		"runs that came too late before a process started": {
			after: func(p *process) { p.missRuns(1) },
			want:  []string{"LaterRunsMissed mail"},
		},
		"too many queues": {
			cfg: metrics.Config{MaxQueues: 2},
			after: func(p *process) {
				for i := range 3 {
					if err := p.client.Queue(fmt.Sprint("q", i)).Pause(p.t.Context()); err != nil {
						p.t.Fatal(err)
					}
				}
			},
			want: []string{"LaterGaugesIncomplete "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, "file://"+t.TempDir(), test.cfg)
			if test.before != nil {
				test.before(p)
			}
			before := p.scrape()
			test.after(p)
			after := p.scrape()
			input := series(before, after)
			wantAlerts(t, input, notLate, map[string][]string{"9m": nil, "24m": test.want})
			if test.late {
				wantAlerts(t, input, `alertname="LaterDeliveriesLate"`, map[string][]string{
					"9m": nil, "24m": {"LaterDeliveriesLate mail"},
				})
			}
		})
	}
}

// notLate selects the alerts that do not depend on how busy the machine is.
const notLate = `alertname!="LaterDeliveriesLate"`

func TestShortLatenessIsNoAlert(t *testing.T) {
	needPromtool(t)
	p := start(t, "file://"+t.TempDir(), metrics.Config{})
	late := func(d time.Duration) samples {
		for range 100 {
			p.metrics.Observe(later.Event{Kind: later.EventStarted, Queue: "mail", Lateness: d})
		}
		return p.scrape()
	}
	short, still, long := late(900*time.Millisecond), late(900*time.Millisecond), late(1100*time.Millisecond)
	wantAlerts(t, series(short, still), `alertname!=""`, map[string][]string{"9m": nil, "24m": nil})
	wantAlerts(t, series(still, long), `alertname!=""`, map[string][]string{
		"9m": nil, "24m": {"LaterDeliveriesLate mail"},
	})
}

func TestAlertFiresWhenTheStoreIsDown(t *testing.T) {
	needPromtool(t)
	server := redistest.Start(t)
	p := start(t, server.URL(), metrics.Config{})
	p.send("mail", 0)
	p.work("mail", nil)
	before := p.scrape()
	server.Kill()
	p.metrics = metrics.New(metrics.Config{Timeout: 100 * time.Millisecond})
	wantAlerts(t, series(before, p.scrape()), notLate, map[string][]string{
		"9m": nil, "10m30s": nil, "12m": {"LaterStoreDown "}, "40m": {"LaterStoreDown "},
	})
}

func TestAlertFiresWhenNobodyIsScraped(t *testing.T) {
	needPromtool(t)
	p := start(t, "file://"+t.TempDir(), metrics.Config{})
	p.send("mail", 0)
	p.work("mail", nil)
	wantAlerts(t, series(p.scrape(), nil), notLate, map[string][]string{"9m": nil, "40m": {"LaterMetricsMissing "}})
}

// TestAlertsWaitAsLongAsTheySay checks that a short situation does not wake anybody.
func TestAlertsWaitAsLongAsTheySay(t *testing.T) {
	needPromtool(t)
	p := start(t, "file://"+t.TempDir(), metrics.Config{})
	p.send("mail", 0)
	p.work("mail", nil)
	before := p.scrape()
	p.send("mail", time.Hour)
	wantAlerts(t, series(before, p.scrape()), notLate, map[string][]string{
		"14m": nil, "16m": {"LaterMessagesOverdue mail"},
		"19m": {"LaterMessagesOverdue mail"}, "31m": {"LaterMessagesOverdue mail", "LaterNothingHandled mail"},
	})
}
