// A chart of the latest events in a queue: the messages that came, were handled and failed in each part of a time,
// on one scale.
import { per, ticks } from './axis.js';
import { clockOf, local, millis, number, short } from './format.js';
import { useWidth } from './horizon.js';
import { html, useMemo, useState } from './html.js';
import { now } from './live.js';
import { Table } from './ui.js';

const head = 28; // pixels above the bars
const height = 96;
const base = head + height;
const below = 26; // pixels of the axis
const scaleWidth = 40; // pixels of the numbers at the left
const labelWidth = 52; // pixels of a label of the axis

// The series, with the kinds of events that they count. Dead messages are in the numbers and not in the picture: most
// of them failed first.
const series = [
  { name: 'sent', label: 'in', of: ['sent'] },
  { name: 'handled', label: 'out', of: ['acked', 'forwarded'] },
  { name: 'failed', label: 'failed', of: ['nacked', 'buried', 'expired'] },
  { name: 'died', label: 'became dead', of: ['died'] },
];
const drawn = series.slice(0, 3);

// partsOf returns the parts of a window of the activity, each with its time and a count for each series.
function partsOf({ from, step, parts }) {
  const length = millis(step);
  return parts.map((counts, i) => ({
    from: Date.parse(from) + i * length, to: Date.parse(from) + (i + 1) * length, open: i === parts.length - 1,
    ...Object.fromEntries(series.map((s) => [s.name, s.of.reduce((n, kind) => n + (counts[kind] ?? 0), 0)])),
  }));
}

// roundUp returns the next of the numbers 1, 2, 5, 10, 20, 50 and so on, 2 at least.
function roundUp(n) {
  const size = 10 ** Math.floor(Math.log10(Math.max(2, n)));
  return [1, 2, 5, 10].map((f) => f * size).find((top) => top >= Math.max(2, n));
}

const span = (part) => `${local(part.from, now(), false)} – ${part.open ? 'now' : local(part.to, now(), false)}`;
const words = (part) => series.filter((s) => part[s.name] > 0 || s.name !== 'died')
  .map((s) => `${number(part[s.name])} ${s.label}`).join(', ');

// ActivityChart draws a window of the activity. Its parts can be pointed at and walked through with the keyboard.
export function ActivityChart({ title, window }) {
  const [element, width] = useWidth();
  const [pointed, point] = useState();
  const [focus, setFocus] = useState(false);
  const parts = useMemo(() => partsOf(window), [window]);
  const { step } = window;
  const part = parts[pointed];
  const room = Math.max(1, width - scaleWidth);
  const at = (event) => {
    const x = event.clientX - element.current.getBoundingClientRect().left - scaleWidth;
    point(Math.min(parts.length - 1, Math.max(0, Math.floor((x / room) * parts.length))));
  };
  const key = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) point(Math.min(parts.length - 1, Math.max(0, (pointed ?? (by > 0 ? -1 : parts.length)) + by)));
    else if (event.key === 'Home' || event.key === 'End') point(event.key === 'Home' ? 0 : parts.length - 1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<figure class="activity">
    <figcaption class="row"><h3>${title}</h3>
      <ul class="row legend">${drawn.map((s) => html`<li><i class=${s.name}></i> ${s.label}${' '}
        <strong>${short(parts.reduce((n, p) => n + p[s.name], 0))}</strong></li>`)}</ul></figcaption>
    <div class="plot" ref=${element} tabIndex="0" role="group" aria-roledescription="chart" aria-label=${title}
      onKeyDown=${key} onFocus=${() => setFocus(true)} onBlur=${() => { setFocus(false); point(undefined); }}
      onPointerMove=${at} onPointerLeave=${() => !focus && point(undefined)}>
      <${Bars} parts=${parts} width=${width} step=${millis(step)} pointed=${pointed} />
      ${part && html`<div class="tip" style=${tipStyle(pointed, parts.length, width)}>
        <strong>${span(part)}</strong> <br />${words(part)}</div>`}
    </div>
    <p class="hidden" aria-live="polite">${focus && part && `${span(part)}: ${words(part)}`}</p>
    <${Numbers} title=${title} parts=${parts} />
  </figure>`;
}

function tipStyle(i, count, width) {
  const x = scaleWidth + ((i + 0.5) / count) * (width - scaleWidth);
  const side = x < width / 2 ? { left: `${x - 20}px` } : { right: `${width - x - 20}px` };
  return { top: `${base + below - 4}px`, ...side };
}

function Bars({ parts, width, step, pointed }) {
  const most = Math.max(0, ...parts.flatMap((p) => drawn.map((s) => p[s.name])));
  const top = roundUp(most);
  const slot = (width - scaleWidth) / parts.length;
  const bar = Math.max(1, Math.floor((slot - 3) / drawn.length));
  const y = (n) => base - (n / top) * height;
  const from = parts[0].from;
  const { step: distance, times } = ticks({ from, to: parts.at(-1).to, w: width - scaleWidth }, labelWidth);
  const xOf = (time) => scaleWidth + ((time - from) / step) * slot;
  return html`<svg width=${width} height=${base + below} aria-hidden="true">
    <text class="label" x="0" y="12">${most ? `up to ${number(most)} ${per(step)}` : 'nothing happened'}</text>
    ${[top, top / 2].filter(Number.isInteger).map((n) => html`<g>
      <line class="grid" x1=${scaleWidth} x2=${width} y1=${y(n)} y2=${y(n)} />
      <text class="label" x=${scaleWidth - 6} y=${y(n) + 4} text-anchor="end">${short(n)}</text></g>`)}
    ${pointed !== undefined && html`<rect class="pointed" x=${scaleWidth + pointed * slot} y=${head - 4} width=${slot}
      height=${height + 4} />`}
    ${parts.map((p, i) => drawn.map((s, j) => p[s.name] > 0 && html`<rect key=${`${i} ${s.name}`}
      class=${`bar ${s.name}${p.open ? ' open' : ''}`} x=${scaleWidth + i * slot + 1 + j * bar}
      y=${Math.min(y(p[s.name]), base - 1.5)} width=${bar} height=${Math.max(1.5, base - y(p[s.name]))} />`))}
    <line class="axis" x1=${scaleWidth} x2=${width} y1=${base} y2=${base} />
    ${times.map((t) => html`<g key=${t}><line class="tick" x1=${xOf(t)} x2=${xOf(t)} y1=${base} y2=${base + 5} />
      ${xOf(t) > scaleWidth + 16 && xOf(t) < width - 16 && html`<text class="label" x=${xOf(t)} y=${base + 18}
        text-anchor="middle">${clockOf(t, distance)}</text>`}</g>`)}
  </svg>`;
}

function Numbers({ title, parts }) {
  const [shown, setShown] = useState(false);
  return html`<details class="numbers" onToggle=${(event) => setShown(event.target.open)}>
    <summary>Table<span class="hidden"> of ${title}</span></summary>
    ${shown && html`<${Table} label=${title} numbers=${4} head=${['Time', ...series.map((s) => s.label)]}>
      ${parts.map((p) => html`<tr key=${p.from}><td>${span(p)}</td>
        ${series.map((s) => html`<td class="number">${number(p[s.name])}</td>`)}</tr>`)}<//>`}
  </details>`;
}
