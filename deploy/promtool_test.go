package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/laterq/later"
	"github.com/laterq/later/metrics"
)

const rulesFile = "prometheus/later.rules.yml"

// needPromtool skips a test if Prometheus's tool is not installed.
func needPromtool(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("promtool is not installed; make setup installs it if apt-get has it")
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
		t.Fatalf("promtool %q: %v\n%s", args, err, out)
	}
}

// samples are those of one scrape, by series, and whether each grows with time.
type samples map[string]sample

type sample struct {
	value   float64
	counter bool
}

// scrape asks a new handler for its metrics, which reads the store.
func (p *process) scrape() samples {
	p.t.Helper()
	w := httptest.NewRecorder()
	p.metrics.Handler(p.client).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	all := samples{}
	for name, family := range families {
		for _, m := range family.Metric {
			if strings.HasPrefix(name, "later_") {
				all.add(name, m)
			}
		}
	}
	return all
}

// add adds the series of a metric: several for a histogram.
func (s samples) add(name string, m *dto.Metric) {
	labels := []string{`instance="web-1:9090"`}
	for _, l := range m.Label {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	set := func(suffix string, value float64, counter bool, more ...string) {
		s[name+suffix+"{"+strings.Join(append(slices.Clone(labels), more...), ",")+"}"] = sample{value, counter}
	}
	switch {
	case m.Counter != nil:
		set("", m.Counter.GetValue(), true)
	case m.Gauge != nil:
		set("", m.Gauge.GetValue(), false)
	case m.Histogram != nil:
		set("_sum", m.Histogram.GetSampleSum(), true)
		set("_count", float64(m.Histogram.GetSampleCount()), true)
		for _, b := range m.Histogram.Bucket {
			set("_bucket", float64(b.GetCumulativeCount()), true, fmt.Sprintf(`le="%v"`, b.GetUpperBound()))
		}
		set("_bucket", float64(m.Histogram.GetSampleCount()), true, `le="+Inf"`)
	}
}

type inputSeries struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

// series returns what Prometheus has stored after an hour of scrapes, one a minute: those of before for ten minutes,
// and then those of after.
func series(before, after samples) (all []inputSeries) {
	names := maps.Clone(before)
	maps.Copy(names, after)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, existed := before[name]
		now, exists := after[name]
		values := "_x10"
		if existed {
			values = fmt.Sprintf("%vx9", old.value)
		}
		switch {
		case exists && now.counter:
			values += fmt.Sprintf(" %v+%vx50", now.value, now.value-old.value)
		case exists:
			values += fmt.Sprintf(" %vx50", now.value)
		case existed:
			values += " stale"
		}
		all = append(all, inputSeries{name, values})
	}
	return all
}

// unitTest is the file that "promtool test rules" reads.
type unitTest struct {
	RuleFiles          []string `yaml:"rule_files"`
	EvaluationInterval string   `yaml:"evaluation_interval"`
	Tests              []any    `yaml:"tests"`
}

type exprTest struct {
	Expr       string      `yaml:"expr"`
	EvalTime   string      `yaml:"eval_time"`
	ExpSamples []expSample `yaml:"exp_samples"`
}

type expSample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

func evaluate(t *testing.T, input []inputSeries, tests []exprTest) {
	t.Helper()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(unitTest{[]string{rules}, "30s", []any{map[string]any{
		"interval": "1m", "input_series": input, "promql_expr_test": tests,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", file)
}

// wantAlerts checks which of the selected alerts fire at which times, each as its name and queue.
func wantAlerts(t *testing.T, input []inputSeries, selected string, want map[string][]string) {
	t.Helper()
	var tests []exprTest
	for at, alerts := range want {
		test := exprTest{EvalTime: at}
		test.Expr = fmt.Sprintf(`group by (alertname, queue) (ALERTS{alertstate="firing",%s})`, selected)
		for _, alert := range alerts {
			name, queue, _ := strings.Cut(alert, " ")
			labels := fmt.Sprintf("alertname=%q", name)
			if queue != "" {
				labels += fmt.Sprintf(",queue=%q", queue)
			}
			test.ExpSamples = append(test.ExpSamples, expSample{"{" + labels + "}", 1})
		}
		tests = append(tests, test)
	}
	evaluate(t, input, tests)
}

func TestRulesAreValid(t *testing.T) {
	needPromtool(t)
	promtool(t, "check", "rules", rulesFile)
}

type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("grafana/later.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// exercised returns the samples of a process in which every metric has a series.
func exercised(t *testing.T) samples {
	t.Helper()
	p := start(t, "file://"+t.TempDir(), metrics.Config{})
	p.send("mail", 0)
	p.work("mail", nil)
	if err := p.client.Queue("limited").SetFlow(t.Context(), later.Flow{Fair: true}); err != nil {
		t.Fatal(err)
	}
	p.metrics.Observe(later.Event{Kind: later.EventSent, Queue: "mail", Schedule: "nightly"})
	p.metrics.Observe(later.Event{Kind: later.EventRunMissed, Queue: "mail", Count: 1})
	p.metrics.Observe(later.Event{Kind: later.EventRunSkipped, Queue: "mail", Count: 1})
	site := p.metrics.Requests(http.NewServeMux(), nil)
	site.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	return p.scrape()
}

var metricName = regexp.MustCompile(`\blater_[a-z_]+`)

// TestOnlyMetricsThatExistAreUsed checks the names in the rules, the dashboard and the documentation, and that the
// documentation has all.
func TestOnlyMetricsThatExistAreUsed(t *testing.T) {
	exists := map[string]bool{}
	histogram := regexp.MustCompile(`_(bucket|sum|count)$`)
	for series := range exercised(t) {
		name, _, _ := strings.Cut(series, "{")
		exists[name] = true
		exists[histogram.ReplaceAllString(name, "")] = true
	}
	for _, file := range []string{rulesFile, "grafana/later.json", "../docs/monitoring.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		used := map[string]bool{}
		for _, name := range metricName.FindAllString(string(text), -1) {
			used[name] = true
			if !exists[name] {
				t.Errorf("%s uses %s, which does not exist", file, name)
			}
		}
		if len(used) == 0 {
			t.Errorf("%s uses no metrics", file)
		}
		for name := range exists {
			if strings.HasSuffix(file, ".md") && !used[histogram.ReplaceAllString(name, "")] {
				t.Errorf("%s does not describe %s", file, name)
			}
		}
	}
}

// TestPanelsShowWhatIsScraped evaluates each expression of the dashboard over real samples, as Grafana would send it.
func TestPanelsShowWhatIsScraped(t *testing.T) {
	needPromtool(t)
	variables := strings.NewReplacer("$queue", ".*", "$__rate_interval", "4m")
	var tests []exprTest
	for _, panel := range readDashboard(t).Panels {
		if len(panel.Targets) == 0 {
			t.Errorf("panel %q has no target", panel.Title)
		}
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("panel %q has an unknown variable in %s", panel.Title, target.Expr)
			}
			tests = append(tests, exprTest{"group(" + expr + ")", "20m", []expSample{{"{}", 1}}})
		}
	}
	s := exercised(t)
	evaluate(t, series(s, s), tests)
}
