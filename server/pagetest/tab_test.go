package pagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// tab is a tab of the browser with a page. Its methods wait until they can do their work, and fail the test if
// that does not happen. They find elements by a selector and, if there is one, a text that the element contains or that
// is its label.
type tab struct {
	t    testing.TB
	ctx  context.Context
	site *site

	answers  sync.WaitGroup // to dialogs
	noticed  chan struct{}  // has an item when there is another problem
	mu       sync.Mutex     // guards the fields below
	problems []string       // the complaints of the browser
	allowed  []*regexp.Regexp
}

// open opens a tab at a path of a site. When the test ends, it fails if the browser complained: about errors,
// scripts that are not allowed, or requests to other hosts.
func (s *site) open(path string) *tab {
	s.Helper()
	needBrowser(s.TB)
	return s.openIn(browser, path, chromedp.WithNewBrowserContext())
}

// beside opens another tab of the same person.
func (b *tab) beside(path string) *tab {
	b.t.Helper()
	return b.site.openIn(b.ctx, path)
}

func (s *site) openIn(parent context.Context, path string, options ...chromedp.ContextOption) *tab {
	s.Helper()
	b := &tab{t: s.TB, site: s, noticed: make(chan struct{}, 1)}
	ctx, _ := chromedp.NewContext(parent, append(options, chromedp.WithListener(b.notice))...)
	b.ctx = ctx
	s.Cleanup(func() {
		if s.Failed() {
			b.screenshot("failed-" + strings.ReplaceAll(s.Name(), "/", "-"))
		}
		if err := chromedp.Cancel(ctx); err != nil {
			s.Errorf("closing the tab: %v", err)
		}
		b.answers.Wait()
		b.checkProblems()
	})
	if err := chromedp.Do(ctx); err != nil { // without a time limit, with which the tab would end
		s.Fatalf("opening a tab: %v", err)
	}
	b.call(cdpCall(emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}))
	b.size(1280, 800, 1)
	b.visit(path)
	return b
}

// cdpCall is a command of the browser as an action.
func cdpCall[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (b *tab) call(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, eventTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// blank is the path of an empty document.
const blank = "about:blank"

// visit loads the page at a path of the site.
func (b *tab) visit(path string) {
	b.t.Helper()
	if path != blank {
		path = b.site.url + path
	}
	b.call(chromedp.Navigate(path))
}

// waiting is a promise of the first value of a function body that is true. It looks after each change of the document,
// and twenty times a second for what changes otherwise.
const waiting = `new Promise(found => {
  const value = () => { %s };
  const look = () => {
    try {
      const v = value();
      if (v) { observer.disconnect(); clearInterval(timer); found(v) }
    } catch {} // its elements are not there yet
  };
  const observer = new MutationObserver(look);
  observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  const timer = setInterval(look, 50);
  look();
})`

// await waits until a function body in JavaScript returns something that is true, also while pages load, and decodes
// it.
func await[T any](b *tab, what, body string) (value T) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, eventTimeout)
	defer cancel()
	expression := fmt.Sprintf(waiting, body)
	for {
		value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		switch {
		case err == nil:
			return value
		case ctx.Err() == nil && isNavigation(err):
			continue // it waited in a page that is gone
		}
		b.t.Fatalf("%s: %v\nat %s the page has:\n%s", what, err, b.url(), b.pageText())
	}
}

func isNavigation(err error) bool {
	return slices.ContainsFunc([]string{"context was destroyed", "navigated or closed", "Cannot find context"},
		func(text string) bool { return strings.Contains(err.Error(), text) })
}

// await waits until an expression in JavaScript is true.
func (b *tab) await(expression string) {
	b.t.Helper()
	await[bool](b, "waiting for "+expression, "return !!("+expression+")")
}

// evaluate returns the value of an expression in JavaScript.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, eventTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// module is an expression for a module of the page in app/.
func module(name string) string {
	return fmt.Sprintf("import(document.querySelector('link[href$=\"app/%s\"]').href)", name)
}

// pageText returns the beginning of the text that can be read.
func (b *tab) pageText() string {
	ctx, cancel := context.WithTimeout(b.ctx, eventTimeout)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`(document.body?.innerText ?? '').slice(0, 2000)`))
	return text
}

// element is a function body that finds the first visible element as e, and otherwise returns nothing.
func element(selector string, text ...string) string {
	return fmt.Sprintf(`const text = %s;
  const e = [...document.querySelectorAll(%s)].find(e => e.checkVisibility({visibilityProperty: true}) &&
    (!text || e.textContent.includes(text) || e.ariaLabel === text || e.title === text));
  if (!e) return;
`, quote(strings.Join(text, "")), quote(selector))
}

func quote(text string) string {
	quoted, _ := json.Marshal(text) // a string always can
	return string(quoted)
}

func name(selector string, text []string) string {
	return strings.TrimSpace(selector + " " + strings.Join(text, ""))
}

// see waits until an element is visible and returns its text.
func (b *tab) see(selector string, text ...string) string {
	b.t.Helper()
	return await[[]string](b, "looking for "+name(selector, text), element(selector, text...)+"return [e.textContent]")[0]
}

// gone waits until no element is visible.
func (b *tab) gone(selector string, text ...string) {
	b.t.Helper()
	await[bool](b, "waiting for the end of "+name(selector, text),
		"return !(() => {"+element(selector, text...)+"return true})()")
}

// attribute waits until an element is visible and returns an attribute, "" if it has none.
func (b *tab) attribute(attribute, selector string, text ...string) string {
	b.t.Helper()
	return await[[]string](b, "looking for "+name(selector, text),
		element(selector, text...)+"return [e.getAttribute("+quote(attribute)+") ?? '']")[0]
}

// place scrolls to an element and returns where it is, once it is at rest and nothing covers it.
func (b *tab) place(x, y float64, selector string, text ...string) [2]float64 {
	b.t.Helper()
	return await[[2]float64](b, "pointing at "+name(selector, text), element(selector, text...)+fmt.Sprintf(`
  e.scrollIntoView({block: 'nearest', inline: 'nearest', behavior: 'instant'});
  const r = e.getBoundingClientRect(), at = [r.x + %g*r.width, r.y + %g*r.height];
  const still = e.lastPlace && e.lastPlace[0] === at[0] && e.lastPlace[1] === at[1];
  e.lastPlace = at;
  const hit = document.elementFromPoint(...at);
  return still && r.width && hit && (e.contains(hit) || hit.closest('label')?.control === e) && at`, x, y))
}

// click clicks on an element.
func (b *tab) click(selector string, text ...string) {
	b.t.Helper()
	at := b.place(0.5, 0.5, selector, text...)
	b.call(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]), chromedp.MouseClickXY(at[0], at[1]))
}

// hover moves the pointer to a part of an element, from 0, 0 at its left and top to 1, 1.
func (b *tab) hover(x, y float64, selector string, text ...string) {
	b.t.Helper()
	at := b.place(x, y, selector, text...)
	b.call(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
}

// drag drags with the mouse, from a part of the width of an element to another one.
func (b *tab) drag(from, to float64, selector string) {
	b.t.Helper()
	start, end := b.place(from, 0.5, selector), b.place(to, 0.5, selector)
	mouse := func(kind input.DispatchMouseEventType, x float64) chromedp.Action[chromedp.Void] {
		return chromedp.MouseEvent(kind, x, start[1], chromedp.ButtonLeft)
	}
	const moved = input.DispatchMouseEventTypeMouseMoved
	b.call(chromedp.MouseEvent(moved, start[0], start[1]), mouse(input.DispatchMouseEventTypeMousePressed, start[0]),
		mouse(moved, (start[0]+end[0])/2), mouse(moved, end[0]), mouse(input.DispatchMouseEventTypeMouseReleased, end[0]))
}

// write replaces the text of a field.
func (b *tab) write(value, selector string, text ...string) {
	b.t.Helper()
	await[bool](b, "writing on "+name(selector, text),
		element(selector, text...)+"e.focus(); return document.activeElement === e")
	evaluate[bool](b, "document.activeElement.select?.() ?? true")
	b.call(cdpCall(input.InsertText, input.InsertTextParams{Text: value}))
}

// choose selects the option of a select element that has a value.
func (b *tab) choose(value, selector string, text ...string) {
	b.t.Helper()
	await[bool](b, "choosing "+value, element(selector, text...)+fmt.Sprintf(`
  if (![...e.options].some(o => o.value === %[1]s)) return;
  e.value = %[1]s;
  e.dispatchEvent(new Event('input', {bubbles: true}));
  e.dispatchEvent(new Event('change', {bubbles: true}));
  return true`, quote(value)))
}

// zone sets the time zone of the page's clock. It holds for pages that are loaded later.
func (b *tab) zone(name string) {
	b.t.Helper()
	b.call(cdpCall(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name}))
}

// morning sets a time zone in which it is 9 to 12 o'clock, so that messages of the next hours are shown without a date.
func (b *tab) morning() {
	b.t.Helper()
	ahead := max(-12, 9-time.Now().UTC().Hour())
	b.zone(fmt.Sprintf("Etc/GMT%+d", -ahead)) // whose signs are the other way round
}

// press presses keys, one after the other; package kb has those without a character.
func (b *tab) press(keys string, modifiers ...chromedp.Modifier) {
	b.t.Helper()
	b.call(chromedp.KeyEvent(keys, chromedp.KeyModifiers(modifiers...), raw))
}

// raw is a press of a key as that of a keyboard: if the page handles it, what has the focus afterwards gets no
// character, with which Enter would click a button.
func raw(p *input.DispatchKeyEventParams) {
	if p.Type == kb.KeyDown {
		p.Type = input.DispatchKeyEventTypeRawKeyDown
	}
}

// closeDialog closes a dialog, as long as which the page takes no other keys.
func (b *tab) closeDialog() {
	b.t.Helper()
	b.press(kb.Escape)
	b.await("!document.querySelector('dialog')")
}

// url returns the address that people see.
func (b *tab) url() string { return evaluate[string](b, "location.href") }

// awaitURL waits until the address has a part.
func (b *tab) awaitURL(part string) {
	b.t.Helper()
	b.await("decodeURIComponent(location.href).includes(" + quote(part) + ")")
}

// notice remembers a complaint of the browser.
func (b *tab) notice(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var parts []string
			for _, arg := range e.Args {
				parts = append(parts, string(arg.Value)+arg.Description)
			}
			b.problem("console: " + strings.Join(parts, " "))
		}
	case *runtime.EventExceptionThrown:
		b.problem("exception: " + (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *log.EventEntryAdded: // among them those of the Content-Security-Policy
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.problem(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err == nil && u.Scheme != "data" && u.Scheme != "blob" && !strings.HasPrefix(e.Request.URL, b.site.url) {
			b.problem("request to another place: " + e.Request.URL)
		}
	case *page.EventJavascriptDialogOpening:
		b.problem("a dialog: " + e.Message)
		b.answers.Go(func() { // the page waits for one
			_ = chromedp.Do(b.ctx, cdpCall(page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{}))
		})
	}
}

func (b *tab) problem(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, text)
	select {
	case b.noticed <- struct{}{}:
	default:
	}
}

// allow lets the browser complain about problems that a test causes.
func (b *tab) allow(pattern string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = append(b.allowed, regexp.MustCompile(pattern))
}

// complains waits until the browser complains about something, which is allowed.
func (b *tab) complains(pattern string) {
	b.t.Helper()
	b.allow(pattern)
	limit := time.After(eventTimeout)
	for !slices.ContainsFunc(b.noted(), regexp.MustCompile(pattern).MatchString) {
		select {
		case <-b.noticed:
		case <-limit:
			b.t.Fatalf("the browser does not complain about %s, but of %q", pattern, b.noted())
		}
	}
}

func (b *tab) noted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}

func (b *tab) checkProblems() {
	for _, p := range b.noted() {
		if !slices.ContainsFunc(b.allowed, func(allowed *regexp.Regexp) bool { return allowed.MatchString(p) }) {
			b.t.Errorf("the browser complains: %s", p)
		}
	}
}
