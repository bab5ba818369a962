package pagetest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// axe is axe-core 4.14.1, which testdata/axe has with its licence.
//
//go:embed testdata/axe/axe.min.js
var axe string

// violation is a finding of axe.
type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		Target         json.RawMessage
		FailureSummary string
	}
}

// checkAccess fails the test for each rule of accessibility that the page breaks as it is now.
func (b *tab) checkAccess() {
	b.t.Helper()
	if !evaluate[bool](b, "!!window.axe") {
		evaluate[bool](b, axe+";true")
	}
	const run = `axe.run(document, {resultTypes: ['violations']}).then(r => r.violations)`
	for _, v := range evaluate[[]violation](b, run) {
		var where []string
		for _, node := range v.Nodes {
			where = append(where, fmt.Sprintf("%s: %s", node.Target, node.FailureSummary))
		}
		b.t.Errorf("at %s: %s (%s): %s\n%s", b.url(), v.ID, v.Impact, v.Help, strings.Join(where, "\n"))
	}
}

// checkWidth fails the test if one must scroll to the side to see all of the page.
func (b *tab) checkWidth() {
	b.t.Helper()
	if over := evaluate[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
		b.t.Errorf("at %s: the page is %d pixels wider than its window", b.url(), over)
	}
}

// size sets the size of the window in pixels of the page, and how many pixels of the screen each has.
func (b *tab) size(width, height int64, scale float64) {
	b.t.Helper()
	b.call(chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale)))
	b.await(fmt.Sprintf("innerWidth === %d", width))
}

// media sets the preferences of people, as names and values such as prefers-color-scheme and dark.
func (b *tab) media(features ...string) {
	b.t.Helper()
	params := emulation.SetEmulatedMediaParams{}
	for i := 0; i < len(features); i += 2 {
		params.Features = append(params.Features, &emulation.MediaFeature{Name: features[i], Value: features[i+1]})
	}
	b.call(cdpCall(emulation.SetEmulatedMedia, params))
	for i := 0; i < len(features); i += 2 {
		b.await(fmt.Sprintf("matchMedia(%s).matches", quote("("+features[i]+": "+features[i+1]+")")))
	}
}

// look is a way to see a page.
type look struct {
	name          string
	width, height int64
	scale         float64
	media         []string
}

// looks are colours, a phone, and a window that is enlarged to 200 %.
var looks = []look{
	{"light", 1280, 800, 1, []string{"prefers-color-scheme", "light"}},
	{"dark", 1280, 800, 1, []string{"prefers-color-scheme", "dark"}},
	{"phone", 390, 844, 2, []string{"prefers-color-scheme", "light"}},
	{"enlarged", 640, 400, 2, []string{"prefers-color-scheme", "dark", "prefers-reduced-motion", "reduce"}},
}

// checkLooks checks the page as it is now in all looks, and takes pictures with names that begin with name.
func (b *tab) checkLooks(name string) {
	b.t.Helper()
	for _, l := range looks {
		b.as(l)
		b.check()
		b.screenshot(name + "-" + l.name)
	}
}

// as shows the page in a look.
func (b *tab) as(l look) {
	b.t.Helper()
	b.size(l.width, l.height, l.scale)
	b.media(l.media...)
}

// check checks the page as it is now.
func (b *tab) check() {
	b.t.Helper()
	b.checkAccess()
	b.checkWidth()
}

// journey runs the actions of people, in light, dark and on a phone, each with a site of its own.
func journey(t *testing.T, do func(t *testing.T, l look)) {
	t.Parallel()
	for _, l := range looks[:3] {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			do(t, l)
		})
	}
}

// openAs opens a tab in a look.
func (s *site) openAs(l look, path string) *tab {
	s.Helper()
	b := s.open(blank)
	b.as(l)
	b.visit(path)
	return b
}
