// Command bench measures Later on Redis beside the bare scripts of its layout (the ceiling), in one run, so that
// the figures are ratios and not claims about a machine. It starts a redis-server of its own on a free port,
// with persistence as -persist says.
//
//	cd bench && go run . -rounds 3              # all
//	cd bench && go run . -run send,drain        # some of: send drain memory lateness idle herd scripts
//
// It prints Markdown, and with -json FILE writes the figures too.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
)

// figure is one measured number.
type figure struct {
	Workload string  `json:"workload"`
	Subject  string  `json:"subject"`
	Unit     string  `json:"unit"`
	Median   float64 `json:"median"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
	Rounds   int     `json:"rounds"`
}

// report gathers what the rounds measured.
type report struct {
	keys   []figure
	values map[figure][]float64
}

func (r *report) add(workload, subject, unit string, value float64) {
	key := figure{Workload: workload, Subject: subject, Unit: unit}
	if _, known := r.values[key]; !known {
		r.keys = append(r.keys, key)
	}
	r.values[key] = append(r.values[key], value)
	fmt.Fprintf(os.Stderr, "%-28s %-10s %14.2f %s\n", workload, subject, value, unit)
}

func (r *report) figures() []figure {
	var all []figure
	for _, key := range r.keys {
		v := slices.Sorted(slices.Values(r.values[key]))
		key.Median, key.Low, key.High, key.Rounds = v[len(v)/2], v[0], v[len(v)-1], len(v)
		all = append(all, key)
	}
	return all
}

// workloads in the order they run.
var workloads = []struct {
	name string
	run  func(ctx context.Context, b *bench)
}{
	{"send", sendRound}, {"drain", drainRound}, {"memory", memoryRound}, {"lateness", latenessRound},
	{"idle", idleRound}, {"herd", herdRound}, {"scripts", scriptsRound},
}

// bench is what a workload needs.
type bench struct {
	*server
	report *report
	n      int
	herd   int
	size   int
}

func main() {
	run := flag.String("run", "send,drain,memory,lateness,idle,herd", "workloads, separated by commas")
	rounds := flag.Int("rounds", 3, "rounds; medians are reported")
	n := flag.Int("n", 300_000, "messages in send, drain and memory")
	herd := flag.Int("herd", 1_000_000, "messages due in one millisecond")
	size := flag.Int("size", 100, "payload bytes")
	persist := flag.String("persist", "none", "persistence of the redis-server: none, everysec or always")
	jsonFile := flag.String("json", "", "write the figures to this file too")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the client to this file")
	pingerOf := flag.String("pinger", "", "used by the herd workload itself: ping this server until standard input ends")
	flag.Parse()
	if *pingerOf != "" {
		pinger(*pingerOf)
		return
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		check(err)
		check(pprof.StartCPUProfile(f))
		defer pprof.StopCPUProfile()
	}
	wanted := strings.Split(*run, ",")

	ctx := context.Background()
	srv, err := startServer(*persist)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.stop()
	b := &bench{server: srv, report: &report{values: map[figure][]float64{}}, n: *n, herd: *herd, size: *size}
	for round := range *rounds {
		for _, w := range workloads {
			if slices.Contains(wanted, w.name) {
				fmt.Fprintf(os.Stderr, "round %d: %s\n", round+1, w.name)
				w.run(ctx, b)
			}
		}
	}
	figures := b.report.figures()
	fmt.Printf("%s, %d CPUs, Redis %s, persistence %s, payload %d bytes, %d rounds\n\n", runtime.Version(), runtime.NumCPU(), srv.version(ctx), *persist, *size, *rounds)
	fmt.Println("| workload | subject | median | low | high | unit | of ceiling |\n|---|---|---|---|---|---|---|")
	for _, f := range figures {
		ratio := ""
		if i := slices.IndexFunc(figures, func(c figure) bool { return c.Workload == f.Workload && c.Unit == f.Unit && c.Subject == "ceiling" }); i >= 0 && f.Subject != "ceiling" {
			ratio = fmt.Sprintf("%.2f", f.Median/figures[i].Median)
		}
		fmt.Printf("| %s | %s | %.4g | %.4g | %.4g | %s | %s |\n", f.Workload, f.Subject, f.Median, f.Low, f.High, f.Unit, cmp.Or(ratio, "–"))
	}
	if *jsonFile != "" {
		text, _ := json.MarshalIndent(figures, "", "  ")
		if err := os.WriteFile(*jsonFile, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
