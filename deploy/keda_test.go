package deploy

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/laterq/later"
	"github.com/laterq/later/metrics"
)

// TestKedaCountsTheWorkOfTheNextMinute evaluates the query of the ScaledObject with the metrics of two processes.
func TestKedaCountsTheWorkOfTheNextMinute(t *testing.T) {
	needPromtool(t)
	text, err := os.ReadFile("keda/mail.yml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec struct {
			Triggers []struct{ Metadata struct{ Query string } }
		}
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	url := "file://" + t.TempDir()
	p := start(t, url, metrics.Config{})
	p.send("mail", time.Second)
	p.send("mail", time.Second)
	p.receive("mail")
	for _, due := range []time.Duration{30 * time.Second, time.Hour} {
		if _, err := p.client.Queue("mail").Send(t.Context(), nil, later.In(due)); err != nil {
			t.Fatal(err)
		}
	}
	all := p.scrape()
	for name, s := range p.scrape() { // another process has the same values
		all[strings.TrimSuffix(name, "}")+`,pod="2"}`] = s
	}
	input := series(samples{}, all)
	query := object.Spec.Triggers[0].Metadata.Query
	evaluate(t, input, []exprTest{{query, "30m", []expSample{{"{}", 3}}}}) // one ready, one leased, one due in 30 s
}
