// Command bench compares Later with its peers in one run: the bare scripts of Later's layout (the ceiling), Later on
// Redis with three persistence settings, Later embedded, asynq, beanstalkd and BullMQ. For each measurement, the
// subject gets its own server on a free port and in a temporary directory. The subjects take turns in several rounds.
//
//	cd bench && go run . -json results.json       # everything, in 45 minutes; growth takes 8 GB of memory
//	go run . -quick                               # three minutes, rough figures: a check that everything works
//	go run . -run send,drain -subjects ceiling,later-redis -rounds 5
//	go run . -run limit,held,keys,ordered,parked,crowd,urgent # queues with limits and keys, in ten minutes
//	go run . -run instructions                    # of single calls in Redis; needs valgrind
//	go run . -report results.json                 # write docs/benchmarks.md and docs/plots from result files
//
// It prints Markdown to standard output and its progress to standard error. Peers that are not installed are skipped
// and reported. Ctrl-C stops it gracefully and prints the measurements so far.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable()
	var err error
	if os.Getenv(asChild) != "" {
		err = childMain(os.Args[1:])
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second Ctrl-C kills the program
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case errors.Is(err, context.Canceled):
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the parsed flags.
type options struct {
	plan     plan
	subjects []*subject
	json     string
	report   string
	docs     string
	profile  string
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	quick := flags.Bool("quick", false, "a small plan: three minutes, rough figures")
	runs := flags.String("run", "send,drain,lateness,herd,growth,memory,idle",
		"comma-separated workloads: "+strings.Join(workloadNames(), ","))
	names := flags.String("subjects", strings.Join(subjectNames(), ","), "comma-separated subjects to measure")
	rounds := flags.Int("rounds", 0, "rounds of send, drain, lateness and herd (default 3, with -quick 1)")
	flags.StringVar(&o.json, "json", "", "write all measurements to this file")
	flags.StringVar(&o.report, "report", "", "do not measure: write the documentation from these "+
		"comma-separated files\nwritten by -json; of several files with a workload the last one counts")
	flags.StringVar(&o.docs, "docs", "../docs", "with -report: the directory of benchmarks.md and plots")
	flags.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of this process to this file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	o.plan = fullPlan()
	if *quick {
		o.plan = quickPlan()
	}
	if *rounds < 0 {
		return o, fmt.Errorf("-rounds is %d", *rounds)
	}
	if *rounds > 0 {
		o.plan.Rounds = *rounds
	}
	for name := range strings.SplitSeq(*runs, ",") {
		if !slices.Contains(workloadNames(), name) {
			return o, fmt.Errorf("-run: unknown workload %q: use some of %s", name, strings.Join(workloadNames(), ", "))
		}
		o.plan.Workloads = append(o.plan.Workloads, name)
	}
	for name := range strings.SplitSeq(*names, ",") {
		s := findSubject(name)
		if s == nil {
			return o, fmt.Errorf("-subjects: unknown subject %q: use some of %s", name,
				strings.Join(subjectNames(), ", "))
		}
		o.subjects = append(o.subjects, s)
	}
	return o, nil
}

// run runs the program. It returns context.Canceled if it was stopped.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	if o.report != "" {
		r, err := readResults(strings.Split(o.report, ",")...)
		if err != nil {
			return err
		}
		return writeDocs(r, o.docs)
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	defer func() { err = errors.Join(err, cleanBullMQ()) }()
	r, err := newRunner(ctx, o.plan, o.subjects, "go run . "+strings.Join(args, " "), stderr)
	if err != nil {
		return err
	}
	err = r.run(ctx)
	if o.json != "" {
		err = errors.Join(err, r.results.write(o.json))
	}
	page, printErr := markdown(r.results, "")
	fmt.Fprint(stdout, page)
	if err = errors.Join(err, printErr); err == nil && r.failed {
		err = errors.New("a measurement of Later failed, see above")
	}
	return err
}
