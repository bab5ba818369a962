// The horizon: how much falls due when. Bars can be pointed at, dragged over and walked through with the keyboard.
import { barAt, heightOf, layout, ticks, xOf } from './axis.js';
import { local, number, plural, relative, short } from './format.js';
import { html, useLayoutEffect, useMemo, useRef, useState } from './html.js';
import { now } from './live.js';
import { Table } from './ui.js';
import { go, Link, useUrl } from './url.js';

const height = 132;
const labels = 34;
const names = {
  overdue: 'overdue', minute: '1 minute', hour: '1 hour', day: '1 day', month: '1 month', later: 'later', range: '',
};

function useWidth() {
  const element = useRef();
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => { // so that the chart is in the first picture
    const measure = () => setWidth(element.current.clientWidth);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

// span says in words what a bar covers.
function span(bar) {
  const time = now();
  if (!bar.after) return `due before ${local(bar.to, time)}`;
  if (!bar.before) return `due after ${local(bar.from, time)}`;
  return `${local(bar.from, time)} – ${local(bar.to, time)}`;
}

// The zoom that a key or a button asks for. zoomed is the range that is shown, if it is not the default axis.
function zoomIn(bars, at, selected, zoomed) {
  const [first, last] = selected ?? (zoomed ? [Math.floor(bars.length / 4), Math.floor((bars.length * 3) / 4)] :
    bandOf(bars, at ?? bars.findIndex((b) => b.band === 'hour')));
  const { from } = bars[first];
  const { to } = bars[last];
  if (to - from < 2000) return;
  go({ z0: new Date(from).toISOString(), z1: new Date(to).toISOString() });
}

function bandOf(bars, at) {
  const { band } = bars[at];
  return [bars.findIndex((b) => b.band === band), bars.findLastIndex((b) => b.band === band)];
}

function zoomOut({ z0, z1 }) {
  if (!z0) return;
  const [from, to] = [Date.parse(z0), Date.parse(z1)];
  const more = (to - from) * 1.5;
  if (to + more - now() > 31 * 86400e3) go({ z0: undefined, z1: undefined });
  else go({ z0: new Date(from - more).toISOString(), z1: new Date(to + more).toISOString() });
}

function choose(bars, a, b) {
  const [first, last] = [Math.min(a, b), Math.max(a, b)];
  go({ from: bars[first].after, to: bars[last].before, state: undefined, message: undefined });
}

export function clearRange() {
  go({ from: undefined, to: undefined });
}

// Horizon shows the bands of an overview, and the runs of schedules as marks.
export function Horizon({ overview }) {
  const params = useUrl();
  const [element, width] = useWidth();
  const [at, setAt] = useState(); // the bar that is pointed at
  const [drag, setDrag] = useState(); // the bar where dragging began
  const [focus, setFocus] = useState(false);
  const time = Date.parse(overview.time);
  const segments = useMemo(() => (width ? layout(overview.bands, width, time) : []), [overview.bands, width]);
  const bars = segments.flatMap((s) => s.bars);
  const most = Math.max(1, ...bars.map((b) => b.count));
  const zoomed = Boolean(params.z0);
  const bar = bars[at];
  const selected = drag !== undefined && at !== undefined ? [Math.min(drag, at), Math.max(drag, at)] : undefined;
  const chosen = params.from || params.to ? [
    params.from ? xOf(segments, Date.parse(params.from)) : 0,
    params.to ? xOf(segments, Date.parse(params.to)) : width,
  ] : undefined;

  const place = (event) => barAt(bars, event.clientX - element.current.getBoundingClientRect().left);
  const pointer = {
    onPointerDown: (event) => {
      if (event.button !== 0 || !bars.length) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      setDrag(place(event));
      setAt(place(event));
    },
    onPointerMove: (event) => bars.length && setAt(place(event)),
    onPointerLeave: () => drag === undefined && setAt(undefined),
    onPointerUp: (event) => {
      if (drag !== undefined) choose(bars, drag, place(event));
      setDrag(undefined);
    },
    onPointerCancel: () => setDrag(undefined),
    onDblClick: (event) => zoomIn(bars, place(event), undefined, zoomed),
  };
  const key = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (step) {
      if (event.shiftKey && drag === undefined) setDrag(at ?? 0);
      if (!event.shiftKey) setDrag(undefined);
      setAt(Math.min(bars.length - 1, Math.max(0, (at ?? (step > 0 ? -1 : bars.length)) + step)));
    } else if (event.key === 'Home' || event.key === 'End') {
      setAt(event.key === 'Home' ? 0 : bars.length - 1);
    } else if ((event.key === 'Enter' || event.key === ' ') && at !== undefined) {
      choose(bars, drag ?? at, at);
      setDrag(undefined);
    } else if (event.key === 'Escape' && (drag !== undefined || chosen)) {
      setDrag(undefined);
      clearRange();
    } else if (event.key === '+' || event.key === '=') {
      zoomIn(bars, at, selected, zoomed);
    } else if (event.key === '-') {
      zoomOut(params);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return html`<div class="horizon">
    <div class="plot" ref=${element} tabIndex="0" role="group" aria-roledescription="chart"
      aria-describedby="horizon-help" aria-label="Messages by due time" onKeyDown=${key} onFocus=${() => setFocus(true)}
      onBlur=${() => { setFocus(false); setDrag(undefined); }} ...${pointer}>
      <svg width=${width} height=${height + labels} aria-hidden="true">
        <defs>
          <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="6" height="6" class="hatch-back" /><rect width="2.5" height="6" class="hatch-line" />
          </pattern>
        </defs>
        ${segments.slice(1).map((s) => html`<line class="edge" x1=${s.x} x2=${s.x} y1="0" y2=${height + 8} />`)}
        ${chosen && html`<rect class="chosen" x=${chosen[0]} y="0" width=${Math.max(1, chosen[1] - chosen[0])}
          height=${height} />`}
        ${selected && html`<rect class="chosen" x=${bars[selected[0]].x} y="0" height=${height}
          width=${bars[selected[1]].x + bars[selected[1]].w - bars[selected[0]].x} />`}
        ${bar && html`<rect class="pointed" x=${bar.x} y="0" width=${bar.w} height=${height} />`}
        ${bars.map((b) => {
          const h = heightOf(b.count, most, params.scale) * (height - 12);
          return h > 0 && html`<rect class=${`bar ${b.kind}`} x=${b.x + 0.5} y=${height - h}
            width=${Math.max(1, b.w - 1)} height=${h} />`;
        })}
        <line class="axis" x1="0" x2=${width} y1=${height} y2=${height} />
        <${Axis} segments=${segments} zoomed=${zoomed} time=${time} />
        <${Marks} segments=${segments} runs=${overview.runs} />
      </svg>
      ${bar && html`<div class="tip" style=${tipStyle(bar, width)}>
        <strong>${plural(bar.count, 'message')}</strong> <span>${span(bar)}</span>
        ${selected && selected[0] !== selected[1] &&
          html`<br />${plural(sum(bars, selected), 'message')} in the selection`}
      </div>`}
    </div>
    <p id="horizon-help" class="hidden">
      Arrow keys move along the bars, with Shift they select, Enter shows the messages,
      Escape clears the selection, + and − zoom.</p>
    <p class="hidden" aria-live="polite">${focus && bar && `${plural(bar.count, 'message')}, ${span(bar)}`}</p>
    <div class="row tools">
      <span class="segmented" role="group" aria-label="Scale of the bars">
        ${[['sqrt', '√'], ['linear', 'linear'], ['log', 'log']].map(([name, label]) => html`
          <${Link} to=${{ scale: name === 'sqrt' ? undefined : name }}
            aria-current=${(params.scale ?? 'sqrt') === name ? 'true' : undefined}
            title=${name === 'sqrt' ? 'Heights by square root' : `Heights ${name}`} aria-label=${`${name} scale`}>
            ${label}<//>`)}
      </span>
      <span class="segmented" role="group" aria-label="Zoom">
        <button onClick=${() => zoomIn(bars, at, rangeOf(bars, params), zoomed)} title="Zoom in (+)"
          aria-label="Zoom in">+</button>
        <button onClick=${() => zoomOut(params)} disabled=${!zoomed} title="Zoom out (−)" aria-label="Zoom out">
          −</button>
        ${zoomed && html`<button onClick=${() => go({ z0: undefined, z1: undefined })}>whole horizon</button>`}
      </span>
      <span class="faint">highest ${short(most)}</span>
      <${Numbers} bars=${bars} />
    </div>
  </div>`;
}

// rangeOf returns the bars of the range that was chosen.
function rangeOf(bars, { from, to }) {
  if (!from && !to) return undefined;
  const [a, b] = [from ? Date.parse(from) : -Infinity, to ? Date.parse(to) : Infinity];
  const first = bars.findIndex((bar) => bar.to > a);
  const last = bars.findLastIndex((bar) => bar.from < b);
  return first < 0 || last < first ? undefined : [first, last];
}

function sum(bars, [first, last]) {
  return bars.slice(first, last + 1).reduce((n, b) => n + b.count, 0);
}

function tipStyle(bar, width) {
  const middle = bar.x + bar.w / 2;
  return middle < width / 2 ? { left: `${Math.max(0, middle - 20)}px` } :
    { right: `${Math.max(0, width - middle - 20)}px` };
}

function Axis({ segments, zoomed, time }) {
  if (zoomed && segments.length === 1) {
    const { step, times } = ticks(segments[0]);
    const here = xOf(segments, time);
    return html`
      ${times.map((t) => html`<g key=${t}>
        <line class="tick" x1=${xOf(segments, t)} x2=${xOf(segments, t)} y1=${height} y2=${height + 5} />
        <text class="label" x=${xOf(segments, t)} y=${height + 17} text-anchor="middle">
          ${local(t, time, step < 60e3)}</text>
      </g>`)}
      ${segments[0].from < time && time < segments[0].to &&
        html`<line class="now" x1=${here} x2=${here} y1="0" y2=${height + 6} />`}`;
  }
  return segments.map((s) =>
    html`<text key=${s.name} class="label" x=${s.x + s.w / 2} y=${height + 17} text-anchor="middle">
    ${names[s.name]}</text>`);
}

function Marks({ segments, runs = [] }) {
  if (!segments.length) return null;
  const [first, last] = [segments[0].from, segments.at(-1).to];
  const y = height + 27;
  let before = -Infinity; // marks that would cover each other are one
  return runs.filter((r) => Date.parse(r.due) >= first && Date.parse(r.due) < last).map((r) => {
    const x = xOf(segments, Date.parse(r.due));
    if (x < before + 8) return null;
    before = x;
    return html`<path class="mark" d=${`M${x} ${y - 4}l4 4l-4 4l-4-4z`}>
      <title>${r.schedule} runs ${relative(Date.parse(r.due), now())}</title></path>`;
  });
}

function Numbers({ bars }) {
  const [shown, setShown] = useState(false);
  const time = now();
  return html`<details class="numbers" onToggle=${(event) => setShown(event.target.open)}><summary>Table</summary>
    ${shown && html`<${Table} label="Messages by due time" head=${['From', 'To', 'Messages']}>
      ${bars.filter((b) => b.count).map((b) => html`<tr>
        <td>${b.after ? local(b.from, time) : 'earlier'}</td><td>${b.before ? local(b.to, time) : 'later'}</td>
        <td><${Link} to=${{ from: b.after, to: b.before, state: undefined }}>${number(b.count)}<//></td>
      </tr>`)}<//>`}
  </details>`;
}
