//go:build unix

// Command chaos injects faults into Later and verifies its guarantees: see internal/chaos and docs/reliability.md.
//
//	go run ./internal/chaos/cmd/chaos -runs 200 -seed 1 -fault all -duration 10s -rate 2000 -json results.json
//	go run ./internal/chaos/cmd/chaos -soak 1h -rate 5000 -json soak.json
//	go run ./internal/chaos/cmd/chaos -from results.json,soak.json -report docs/reliability.md
//
// It prints a line per run, the history of each message with a broken guarantee, and a table. An interrupt (Ctrl-C or
// SIGTERM) ends the current runs early, verifies them and reports them as cut short. A second one stops at once.
//
// The exit code is 1 if a guarantee was broken, 2 if the command could not run, and 128 plus the signal's number (130
// or 143) if it was interrupted and no guarantee was broken. go run turns all of these into 1.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/laterq/later/internal/chaos"
)

type options struct {
	runs, rate, parallel              int
	seed                              uint64
	duration, soak                    time.Duration
	faults, json, report, from, outTo string
	verbose, profile                  bool
}

var errBroken = errors.New("a guarantee was broken")

// Exit codes, in addition to the codes for signals.
const (
	exitBroken = 1
	exitFailed = 2
)

func main() {
	chaos.RunChild()
	logging.Disable() // go-redis logs each connection broken by a fault
	var o options
	flag.IntVar(&o.runs, "runs", len(chaos.Faults()), "number of runs; each uses the next fault and the next seed")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first run")
	flag.DurationVar(&o.duration, "duration", 0, "duration of the load; 0 means each fault's duration in the tests")
	flag.StringVar(&o.faults, "fault", "all", "all, or a comma-separated list of "+strings.Join(chaos.Faults(), ","))
	flag.IntVar(&o.rate, "rate", 0, "messages a second; 0 means each fault's default")
	flag.IntVar(&o.parallel, "parallel", 1, "number of runs at a time")
	flag.StringVar(&o.json, "json", "", "append one JSON object per run to this file")
	flag.StringVar(&o.report, "report", "", "write the table into the marked part of this page")
	flag.StringVar(&o.from, "from", "", "read results from these files instead of running")
	flag.DurationVar(&o.soak, "soak", 0, "a single run of this duration with a fault every 30 s")
	flag.StringVar(&o.outTo, "dir", "", "keep the journals of a single run in this directory")
	flag.BoolVar(&o.verbose, "v", false, "log each event of a run to standard error")
	flag.BoolVar(&o.profile, "profile", false, "write CPU profiles to the directory given by -dir")
	flag.Parse()
	in := listen()
	err := o.run(in)
	switch {
	case in.stopped():
		// run has printed it to standard error.
	case errors.Is(err, errBroken):
		os.Exit(exitBroken)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitFailed)
	}
	os.Exit(in.code())
}

func (o options) run(in *interrupts) error {
	var results []*chaos.Result
	var err error
	if o.from != "" {
		results, err = o.read()
	} else {
		results, err = o.execute(in)
	}
	if err != nil || in.stopped() {
		return err
	}
	fmt.Printf("\n%s%s%s\n%s\n", chaos.Table(chaos.Summarize(results)), chaos.AroundText(results),
		chaos.SoakText(results), chaos.Totals(results))
	if o.report != "" && in.code() != 0 {
		fmt.Fprintf(os.Stderr, "chaos: %s was not updated, because not all runs were made\n", o.report)
	} else if o.report != "" {
		if err := chaos.Report(o.report, results); err != nil {
			return err
		}
	}
	for _, r := range results {
		if !r.OK() {
			return errBroken
		}
	}
	return nil
}

func (o options) read() (all []*chaos.Result, err error) {
	for name := range strings.SplitSeq(o.from, ",") {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		results, err := chaos.Read(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, results...)
	}
	return all, nil
}

// configs returns the configurations of the requested runs.
func (o options) configs() (all []chaos.Config) {
	if o.soak > 0 {
		return []chaos.Config{{Fault: chaos.Soak, Seed: o.seed, Duration: o.soak, Rate: o.rate, Dir: o.outTo}}
	}
	faults := chaos.Faults()
	if o.faults != "all" {
		faults = strings.Split(o.faults, ",")
	}
	for i := range o.runs {
		name := faults[i%len(faults)]
		duration := o.duration
		if duration == 0 {
			duration = chaos.QuickDuration(name)
		}
		all = append(all, chaos.Config{Fault: name, Seed: o.seed + uint64(i), Duration: duration, Rate: o.rate,
			Dir: o.outTo})
	}
	return all
}

// command returns a command that repeats these runs, without the flags for its output.
func command() string {
	text := "go run ./internal/chaos/cmd/chaos"
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "json" && f.Name != "report" && f.Name != "dir" && f.Name != "v" {
			text += fmt.Sprintf(" -%s %s", f.Name, f.Value)
		}
	})
	return text
}

// execute makes the runs. It stops at an interrupt and returns the results so far.
func (o options) execute(in *interrupts) ([]*chaos.Result, error) {
	configs := o.configs()
	if o.outTo != "" && len(configs) > 1 {
		return nil, errors.New("-dir keeps the journals of a single run: use -runs 1")
	}
	if o.profile && o.outTo == "" {
		return nil, errors.New("-profile needs -dir, where it writes the profiles")
	}
	if o.outTo != "" {
		if err := os.MkdirAll(o.outTo, 0o755); err != nil {
			return nil, err
		}
	}
	out := io.Discard
	if o.json != "" {
		file, err := os.OpenFile(o.json, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		out = file
	}
	var mu sync.Mutex
	var results []*chaos.Result
	var errs []error
	next := make(chan chaos.Config)
	var running sync.WaitGroup
	for range max(1, o.parallel) {
		running.Go(func() {
			for cfg := range next {
				cfg.Cut, cfg.Log, cfg.Profile = in.first, o.log(), o.profile
				result, err := chaos.Run(in.ctx, cfg)
				mu.Lock()
				if result != nil {
					result.Command = command()
				}
				switch {
				case in.stopped(): // nothing was verified
					fmt.Fprintln(os.Stderr, err)
				case err != nil:
					fmt.Println(err)
					errs = append(errs, err)
				default:
					fmt.Printf("%s\n%s", result.Line(), result.Failure())
					results = append(results, result)
					errs = append(errs, json.NewEncoder(out).Encode(result))
				}
				mu.Unlock()
			}
		})
	}
	made := 0
	for _, cfg := range configs {
		select {
		case <-in.first:
		case next <- cfg:
			made++
		}
		if in.code() != 0 {
			break
		}
	}
	close(next)
	running.Wait()
	if made < len(configs) {
		fmt.Printf("interrupted: %d of %d runs were started\n", made, len(configs))
	}
	return results, errors.Join(errs...)
}

// log returns where runs log their events, or nil for nowhere.
func (o options) log() func(string) {
	if !o.verbose {
		return nil
	}
	return func(text string) { fmt.Fprintln(os.Stderr, text) }
}
