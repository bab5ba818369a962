package pagetest

import (
	"bytes"
	"cmp"
	"context"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// capture returns the page as it is now, as PNG.
func (b *tab) capture() ([]byte, error) {
	ctx, cancel := context.WithTimeout(b.ctx, eventTimeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}

// screenshot writes a picture to the directory LATER_SCREENSHOTS, if there is one.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("LATER_SCREENSHOTS")
	if dir == "" {
		return
	}
	picture, err := b.capture()
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)
	}
	if err != nil {
		b.t.Errorf("screenshot %s: %v", name, err)
	}
}

// picture returns the page as it is now, in half its size.
func (b *tab) picture() *image.RGBA {
	b.t.Helper()
	data, err := b.capture()
	if err != nil {
		b.t.Fatal(err)
	}
	return half(decode(b.t, data))
}

func readPicture(t testing.TB, file string) *image.RGBA {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, data)
}

func decode(t testing.TB, data []byte) *image.RGBA {
	t.Helper()
	p, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out := image.NewRGBA(image.Rectangle{Max: p.Bounds().Size()})
	draw.Draw(out, out.Rect, p, p.Bounds().Min, draw.Src)
	return out
}

// writePicture keeps the 64 most frequent colours of a picture, which makes it small.
func writePicture(file string, p *image.RGBA) error {
	counts := map[color.RGBA]int{}
	for y := range p.Rect.Dy() {
		for x := range p.Rect.Dx() {
			counts[p.RGBAAt(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Compare(counts[b], counts[a])
	})
	var palette color.Palette
	for _, c := range frequent[:min(64, len(frequent))] {
		palette = append(palette, c)
	}
	out := image.NewPaletted(p.Rect, palette)
	draw.Draw(out, out.Rect, p, image.Point{}, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, out); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// half returns a picture in half its size.
func half(p *image.RGBA) *image.RGBA {
	out := image.NewRGBA(image.Rect(0, 0, p.Rect.Dx()/2, p.Rect.Dy()/2))
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			out.SetRGBA(x, y, mean(p, image.Rect(2*x, 2*y, 2*x+2, 2*y+2)))
		}
	}
	return out
}

// mean returns the mean colour of a part of a picture.
func mean(p *image.RGBA, part image.Rectangle) color.RGBA {
	var r, g, b, n int
	for y := part.Min.Y; y < part.Max.Y; y++ {
		for x := part.Min.X; x < part.Max.X; x++ {
			c := p.RGBAAt(x, y)
			r, g, b, n = r+int(c.R), g+int(c.G), b+int(c.B), n+1
		}
	}
	return color.RGBA{uint8(r / n), uint8(g / n), uint8(b / n), 0xff}
}

const (
	cellSize = 16 // pixels to a side
	maxShade = 8  // of 255, by which the mean colours of similar cells may differ
)

// difference returns the part of two pictures, in cells, whose mean colours differ. So other times, counts and fonts
// hardly matter.
func difference(a, b *image.RGBA) float64 {
	if a.Rect != b.Rect {
		return 1
	}
	cells, different := 0, 0
	for y := 0; y < a.Rect.Dy(); y += cellSize {
		for x := 0; x < a.Rect.Dx(); x += cellSize {
			cell := image.Rect(x, y, x+cellSize, y+cellSize).Intersect(a.Rect)
			if cells++; !similar(mean(a, cell), mean(b, cell)) {
				different++
			}
		}
	}
	return float64(different) / float64(cells)
}

func similar(a, b color.RGBA) bool {
	near := func(a, b uint8) bool { return max(a, b)-min(a, b) <= maxShade }
	return near(a.R, b.R) && near(a.G, b.G) && near(a.B, b.B)
}
