package pagetest

import (
	"image"
	"image/draw"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/laterq/later/internal/redistest"
)

func TestTabNoticesWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := newSite(t, "", "", "").open("/")
	b.see("main", "There are no queues")
	for script, complaint := range map[string]string{
		"console.error('oh'), true":                                                          "console: .*oh",
		"setTimeout(() => { throw new Error('ah') })":                                        "exception: .*ah",
		"fetch('v1/elsewhere').then(() => 1)":                                                "404.*v1/elsewhere",
		"fetch('http://other.example/').catch(() => 1)":                                      "other.example.* violates",
		"document.body.innerHTML += '<b onclick=\"x\">'":                                     "inline event handler",
		"setTimeout(() => alert('hello'))":                                                   "a dialog: hello",
		"document.body.append(Object.assign(document.createElement('script'), {text: 'x'}))": "inline script",
	} {
		b.call(chromedp.Evaluate[chromedp.Void](script))
		b.complains(complaint)
	}
}

func TestPicturesDifferByTheirAreas(t *testing.T) {
	t.Parallel()
	picture := func(dark, width int) *image.RGBA { // with a dark part of the width
		p := image.NewRGBA(image.Rect(0, 0, width, 64))
		draw.Draw(p, p.Rect, image.White, image.Point{}, draw.Src)
		draw.Draw(p, image.Rect(0, 0, dark, 64), image.Black, image.Point{}, draw.Src)
		return p
	}
	before := picture(48, 160)
	file := filepath.Join(t.TempDir(), "kept.png")
	if err := writePicture(file, before); err != nil {
		t.Fatal(err)
	}
	for dark, want := range map[int]float64{48: 0, 49: 0.1, 64: 0.1, 80: 0.2, 160: 0.7} {
		if d := difference(readPicture(t, file), picture(dark, 160)); d != want {
			t.Errorf("dark to %d: the difference is %v, want %v", dark, d, want)
		}
	}
	if d := difference(before, picture(48, 161)); d != 1 {
		t.Errorf("the difference of another size is %v", d)
	}
	if d := difference(before, half(picture(96, 320))); d != 1 { // half as high
		t.Errorf("the difference of another height is %v", d)
	}
}

// form is a page with something to click, drag and write on, with an output that tells of each event.
const form = `document.body.innerHTML = '<button>Late</button><details><button>Early</button></details>' +
  '<label>Name <input></label><select><option value=a>A<option value=b>B</select><output></output>' +
  '<div class=chart title=chart>▁▂▅▃▂▁▁▂▃▁</div>';
const say = text => { document.querySelector('output').textContent += text + ' ' };
const on = (selector, type, f) => document.querySelector(selector).addEventListener(type, f);
setTimeout(() => { document.querySelector('button').textContent = 'Later' }, 100);
on('button', 'click', () => { say('clicked'); history.replaceState(null, '', '?clicked=1&what=a%20b') });
on('input', 'input', e => say(e.target.value));
on('select', 'change', e => say(e.target.value));
on('input', 'keydown', e => {
  if (e.key === 'Enter') { say('entered'); document.querySelector('button').focus(); e.preventDefault() }
});
for (const type of ['mouseenter', 'mousedown', 'mouseup']) on('.chart', type, () => say(type));
addEventListener('keydown', e => {
  if (e.key === 'Escape') { document.querySelector('button').remove(); say('escaped') }
})`

func TestTabDoesWhatPeopleDo(t *testing.T) {
	t.Parallel()
	b := newSite(t, "", "", "").open("/")
	b.see("main", "There are no queues")
	b.call(chromedp.Evaluate[chromedp.Void](form))
	b.click("button", "Later")
	b.awaitURL("what=a b")
	b.write("Ada", "input")
	b.write("Ärger 🙂", "input")
	b.press(kb.Enter)
	b.choose("b", "select")
	b.hover(0.5, 0.5, ".chart", "▂▅")
	b.drag(0.2, 0.8, ".chart")
	b.press(kb.Escape)
	b.gone("button")
	const want = "clicked Ada Ärger 🙂 entered b mouseenter mousedown mouseup escaped "
	if got := b.see("output"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := b.attribute("class", ".chart", "▂▅"); got != "chart" {
		t.Errorf("class %q", got)
	}
}

func TestTabReachesARealStore(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t).URL(), "", "")
	s.send("mail", "hello")
	b := s.open("/")
	if got := evaluate[string](b, "fetch('v1/queues').then(r => r.text())"); !strings.Contains(got, `"mail"`) {
		t.Error(got)
	}
}
