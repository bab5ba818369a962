// The horizon: how much falls due when. Bars can be pointed at, dragged over and walked through with the keyboard.
import { barAt, layout, sum } from './axis.js';
import { Chart, tipTop } from './chart.js';
import { iso, local, number, plural } from './format.js';
import { html, useLayoutEffect, useMemo, useRef, useState } from './html.js';
import { now } from './live.js';
import { clearRange, noRange, presetOf, presets, select, shift, zoomOut } from './ranges.js';
import { Table } from './ui.js';
import { go, Link, useUrl } from './url.js';

// useWidth returns a ref for an element, and its width in pixels as it changes.
export function useWidth() {
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

// span returns the time of a bar in words.
function span(bar) {
  const time = now();
  if (!bar.after) return `due before ${local(bar.to, time)}`;
  if (!bar.before) return `due after ${local(bar.from, time)}`;
  return `${local(bar.from, time)} – ${local(bar.to, time)}`;
}

function zoomIn(bars, [first, last]) {
  const { from } = bars[first];
  const { to } = bars[last];
  if (to - from >= 2000) go({ z0: iso(from), z1: iso(to) });
}

// around returns the bars to zoom into, without a selection: a band, or the middle of a range.
function around(bars, at) {
  if (bars[0].band === 'range') return [Math.floor(bars.length / 4), Math.floor((bars.length * 3) / 4)];
  const band = bars[at]?.band ?? 'hour';
  return [bars.findIndex((b) => b.band === band), bars.findLastIndex((b) => b.band === band)];
}

// partChosen returns the bars of the range that is selected, unless these are all.
function partChosen(bars, { from, to }) {
  if (!from && !to) return undefined;
  const [a, b] = [from ? Date.parse(from) : -Infinity, to ? Date.parse(to) : Infinity];
  const first = bars.findIndex((bar) => bar.to > a);
  const last = bars.findLastIndex((bar) => bar.from < b);
  return first < 0 || last < first || last - first === bars.length - 1 ? undefined : [first, last];
}

// choose selects the messages of one bar, or of several, which are then shown on a linear axis.
function choose(bars, a, b) {
  const [first, last] = [Math.min(a, b), Math.max(a, b)];
  const range = { from: bars[first].after, to: bars[last].before };
  if (first === last) go({ ...range, state: undefined, message: undefined });
  else select(range, { begin: iso(bars[first].to), end: iso(bars[last].from) });
}

// timeIn returns a time that stands for a bar while bars move.
function timeIn(bar) {
  return bar.after ? (bar.before ? (bar.from + bar.to) / 2 : Infinity) : -Infinity;
}

function indexOf(bars, time) {
  if (time === undefined || !bars.length) return undefined;
  const at = bars.findIndex((b) => time < b.to);
  return at < 0 ? bars.length - 1 : at;
}

// Horizon shows the bands of an overview, and the runs of schedules as marks.
export function Horizon({ overview }) {
  const params = useUrl();
  const [element, width] = useWidth();
  const [pointed, point] = useState(); // a time in the bar that is pointed at
  const [began, begin] = useState(); // a time in the bar where dragging began
  const [focus, setFocus] = useState(false);
  const segments = useMemo(() => (width ? layout(overview.bands, width) : []), [overview.bands, width]);
  const bars = useMemo(() => segments.flatMap((s) => s.bars), [segments]);
  const zoomed = Boolean(params.z0);
  const at = indexOf(bars, pointed);
  const drag = indexOf(bars, began);
  const bar = bars[at];
  const selected = drag !== undefined && at !== undefined ? [Math.min(drag, at), Math.max(drag, at)] : undefined;

  const place = (event) => barAt(bars, event.clientX - element.current.getBoundingClientRect().left);
  const pointer = {
    onPointerDown: (event) => {
      if (event.button !== 0 || !bars.length) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      begin(timeIn(bars[place(event)]));
      point(timeIn(bars[place(event)]));
    },
    onPointerMove: (event) => bars.length && point(timeIn(bars[place(event)])),
    onPointerLeave: () => drag === undefined && point(undefined),
    onPointerUp: (event) => {
      if (drag !== undefined) choose(bars, drag, place(event));
      begin(undefined);
    },
    onPointerCancel: () => begin(undefined),
    onDblClick: (event) => zoomIn(bars, around(bars, place(event))),
  };
  const key = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || !bars.length) return;
    if (step) {
      if (event.shiftKey && drag === undefined) begin(timeIn(bars[at ?? 0]));
      if (!event.shiftKey) begin(undefined);
      point(timeIn(bars[Math.min(bars.length - 1, Math.max(0, (at ?? (step > 0 ? -1 : bars.length)) + step))]));
    } else if (event.key === 'Home' || event.key === 'End') {
      point(event.key === 'Home' ? timeIn(bars[0]) : timeIn(bars.at(-1)));
    } else if ((event.key === 'Enter' || event.key === ' ') && at !== undefined) {
      choose(bars, drag ?? at, at);
      begin(undefined);
    } else if (event.key === 'Escape' && (drag !== undefined || params.from || params.to || zoomed)) {
      if (drag === undefined) clearRange();
      begin(undefined);
    } else if (event.key === '+' || event.key === '=') {
      zoomIn(bars, selected ?? around(bars, at));
    } else if (event.key === '-') {
      zoomOut(params);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  return html`<div class="horizon">
    <${Ranges} bars=${bars} at=${at} zoomed=${zoomed} />
    <div class="plot" ref=${element} tabIndex="0" role="group" aria-roledescription="chart"
      aria-describedby="horizon-help" aria-label="Messages by due time" onKeyDown=${key} onFocus=${() => setFocus(true)}
      onBlur=${() => { setFocus(false); begin(undefined); }} ...${pointer}>
      <${Chart} width=${width} segments=${segments} time=${Date.parse(overview.time)} runs=${overview.runs}
        pointed=${bar} chosen=${selected ?? partChosen(bars, params)} />
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
      <${Legend} runs=${overview.runs} />
      <span class="grow"></span>
      <${Link} to=${{ scale: params.scale === 'sqrt' ? undefined : 'sqrt' }} class="button quiet"
        title="Heights by square root show few messages beside many">
        ${params.scale === 'sqrt' ? 'linear heights' : '√ heights'}<//>
      <${Numbers} bars=${bars} />
    </div>
  </div>`;
}

function tipStyle(bar, width) {
  const middle = bar.x + bar.w / 2;
  const side = middle < width / 2 ? { left: `${Math.max(0, middle - 20)}px` } :
    { right: `${Math.max(0, width - middle - 20)}px` };
  return { top: `${tipTop}px`, ...side };
}

// Ranges selects ranges by name, and zooms.
function Ranges({ bars, at, zoomed }) {
  const params = useUrl();
  const current = presetOf(params);
  return html`<div class="row ranges">
    <span class="segmented" role="group" aria-label="Due">
      <${Link} to=${noRange} aria-current=${!zoomed && !params.from && !params.to ? 'true' : undefined}>all<//>
      ${presets().map(({ name, from, to }) => html`<${Link} key=${name}
        aria-current=${name === current ? 'true' : undefined}
        to=${{ from, to, z0: from, z1: to, state: undefined, message: undefined }}>${name}<//>`)}
    </span>
    <span class="segmented" role="group" aria-label="Zoom">
      ${zoomed && html`<button onClick=${() => shift(params, -1)} aria-label="Earlier" title="Earlier">‹</button>`}
      <button onClick=${() => zoomIn(bars, partChosen(bars, params) ?? around(bars, at))} disabled=${!bars.length}
        title="Zoom in (+)" aria-label="Zoom in">+</button>
      <button onClick=${() => zoomOut(params)} disabled=${!zoomed} title="Zoom out (−)" aria-label="Zoom out">−</button>
      ${zoomed && html`<button onClick=${() => shift(params, 1)} aria-label="Later" title="Later">›</button>`}
    </span>
  </div>`;
}

// Legend explains the colours and marks.
function Legend({ runs = [] }) {
  return html`<ul class="row legend">
    <li><i class="overdue"></i> overdue</li><li><i class="soon"></i> within a minute</li>
    <li><i class="future"></i> later</li>
    ${runs.length > 0 && html`<li><span aria-hidden="true">◆</span> <${Link} fresh to=${{ view: 'schedules' }}>
      run of a schedule<//></li>`}</ul>`;
}

function Numbers({ bars }) {
  const [shown, setShown] = useState(false);
  const time = now();
  return html`<details class="numbers" onToggle=${(event) => setShown(event.target.open)}><summary>Table</summary>
    ${shown && html`<${Table} label="Messages by due time" numbers=${1} head=${['From', 'To', 'Messages']}>
      ${bars.filter((b) => b.count).map((b) => html`<tr key=${b.key}>
        <td>${b.after ? local(b.from, time) : 'earlier'}</td><td>${b.before ? local(b.to, time) : 'later'}</td>
        <td class="number">
          <${Link} to=${{ from: b.after, to: b.before, state: undefined }}>${number(b.count)}<//></td>
      </tr>`)}<//>`}
  </details>`;
}
