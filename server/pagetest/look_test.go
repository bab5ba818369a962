package pagetest

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// axe is axe-core 4.14.1, which testdata/axe has with its licence.
//
//go:embed testdata/axe/axe.min.js
var axe string

// violation is what axe found.
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

// media sets what people prefer, as names and values such as prefers-color-scheme and dark.
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

// looks are the ways to see a page: colours, a phone, and a window that is enlarged to 200 %.
var looks = []struct {
	name          string
	width, height int64
	scale         float64
	media         []string
}{
	{"light", 1280, 800, 1, []string{"prefers-color-scheme", "light"}},
	{"dark", 1280, 800, 1, []string{"prefers-color-scheme", "dark"}},
	{"phone", 390, 844, 2, []string{"prefers-color-scheme", "light"}},
	{"enlarged", 640, 400, 2, []string{"prefers-color-scheme", "dark", "prefers-reduced-motion", "reduce"}},
}

// checkLooks checks the page as it is now in all looks, and takes pictures whose names begin with name.
func (b *tab) checkLooks(name string) {
	b.t.Helper()
	for _, look := range looks {
		b.size(look.width, look.height, look.scale)
		b.media(look.media...)
		b.checkAccess()
		b.checkWidth()
		b.screenshot(name + "-" + look.name)
	}
}

// screenshot writes a picture to the directory LATER_SCREENSHOTS, if there is one, and compares it with the one in
// testdata, if there is one.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	dir, kept := os.Getenv("LATER_SCREENSHOTS"), filepath.Join("testdata", "screenshots", name+".png")
	before, err := os.ReadFile(kept)
	if dir == "" && err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, eventTimeout)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Errorf("screenshot %s: %v", name, err)
		return
	}
	if dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
			b.t.Error(err)
		}
	}
	if before != nil {
		if share, err := similarity(before, picture); err != nil || share < minSimilarity {
			b.t.Errorf("%s is similar in %.0f %% of its parts only, %v: if that is right, run the tests with "+
				"LATER_SCREENSHOTS=testdata/screenshots", kept, 100*share, err)
		}
	}
}

const (
	minSimilarity = 0.8 // part of the cells that must be similar
	cells         = 24  // to a side
	maxDifference = 0.1 // of the brightness of similar cells, which is 0 to 1
)

// similarity returns in how many parts of their areas two pictures have a similar brightness. Fonts, times and counts
// may differ.
func similarity(a, b []byte) (share float64, err error) {
	var means [2][cells * cells]float64
	for i, data := range [][]byte{a, b} {
		picture, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			return 0, err
		}
		means[i] = brightness(picture)
	}
	similar := 0
	for i := range means[0] {
		if d := means[0][i] - means[1][i]; d < maxDifference && d > -maxDifference {
			similar++
		}
	}
	return float64(similar) / float64(len(means[0])), nil
}

// brightness returns the mean brightness of each cell of a picture.
func brightness(picture image.Image) (means [cells * cells]float64) {
	bounds := picture.Bounds()
	var counts [cells * cells]int
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			r, g, b, _ := picture.At(x, y).RGBA()
			cell := (y-bounds.Min.Y)*cells/bounds.Dy()*cells + (x-bounds.Min.X)*cells/bounds.Dx()
			means[cell] += float64(r+g+b) / (3 * 0xffff)
			counts[cell]++
		}
	}
	for i, n := range counts {
		means[i] /= float64(max(n, 1))
	}
	return means
}
