package pagetest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// eventTimeout limits every wait. It is far longer than any needs, so that a busy machine does not fail a test.
const eventTimeout = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", strconv.Itoa(2*runtime.NumCPU())) // most of them wait for the page
	code := m.Run()
	if err := closeBrowser(); err != nil {
		fmt.Fprintln(os.Stderr, "closing the browser:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// The tests share one browser, because its start takes longer than most of them. Each tab has cookies and caches of
// its own.
var (
	browser      context.Context
	closeBrowser = func() error { return nil }
)

var startBrowser = sync.OnceValue(func() (err error) {
	ctx, closer, err := launchBrowser()
	if err == nil {
		browser, closeBrowser = ctx, closer
	}
	return err
})

// launchBrowser starts a browser, and returns a function that closes it.
func launchBrowser() (ctx context.Context, closer func() error, err error) {
	program, err := findBrowser()
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.DisableGPU,
		chromedp.WSURLReadTimeout(eventTimeout),
		chromedp.Flag("disable-component-update", true),
		// No name is looked up, whatever a page asks for.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, release := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		release()
		return nil, nil, fmt.Errorf("starting %s: %w", program, err)
	}
	return ctx, func() error {
		defer release()
		return chromedp.Cancel(ctx)
	}, nil
}

func findBrowser() (program string, err error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if program, err = exec.LookPath(name); err == nil {
			break
		}
	}
	return program, err
}

// needBrowser starts the browser, or skips a test on a machine without one. In CI that is a failure.
func needBrowser(t testing.TB) {
	t.Helper()
	if _, err := findBrowser(); err != nil && os.Getenv("CI") == "" {
		t.Skip("there is no browser: install chromium, as make modules does where it may")
	}
	if err := startBrowser(); err != nil {
		t.Fatal(err)
	}
}
