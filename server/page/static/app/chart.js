// The picture of the horizon: each band of bars on a scale of its own, above clock times.
import { heightOf, kindOf, per, sum, ticks, xOf } from './axis.js';
import { clockOf, local, number, relative, short } from './format.js';
import { html } from './html.js';
import { now } from './live.js';
import { useUrl } from './url.js';

const head = 40; // pixels above the bars
const height = 120;
const base = head + height;
const below = 36;
const labelWidth = 52; // pixels for a label of the axis
const labelCharacter = 7; // pixels
const titles = { minute: 'next minute', hour: 'next hour', day: 'next day', month: 'next 31 days' };
const briefTitles = { minute: '1 min', hour: '1 hour', day: '1 day', month: '31 days' };

// tipTop is where the text about a bar begins: below the labels of the axis.
export const tipTop = base + 22;

// Chart draws the bars, the axis and the runs of schedules. The bars of the indexes chosen, and pointed, stand out.
export function Chart({ width, segments, time, runs, pointed, chosen }) {
  const { scale } = useUrl();
  const bars = segments.flatMap((s) => s.bars);
  const here = segments.length > 1 ? segments[1].x - 3 : xOf(segments, time);
  const inside = segments.length > 1 || (segments[0]?.from <= time && time < segments[0]?.to);
  return html`<svg width=${width} height=${base + below} aria-hidden="true">
    <defs>
      <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="6" height="6" class="hatch-back" /><rect width="2.5" height="6" class="hatch-line" />
      </pattern>
    </defs>
    ${chosen && html`<rect class="chosen" x=${bars[chosen[0]].x} y=${head - 4} height=${height + 4}
      width=${bars[chosen[1]].x + bars[chosen[1]].w - bars[chosen[0]].x} />`}
    ${pointed && html`<rect class="pointed" x=${pointed.x} y=${head - 4} width=${pointed.w} height=${height + 4} />`}
    ${segments.map((s) => (s.end ? html`<${End} key=${s.name} of=${s} />` : html`<g key=${s.name}>
      ${s.bars.map((b) => {
        const h = heightOf(b.count, s.most, scale) * height;
        return h > 0 && html`<rect key=${b.key} class=${`bar ${kindOf(b, time)}`} x=${toHalf(b.x + 0.5)} y=${base - h}
          width=${toHalf(Math.max(1, b.w - 1))} height=${h} />`;
      })}
      <line class="axis" x1=${s.x} x2=${s.x + s.w} y1=${base} y2=${base} />
      <${Head} of=${s} time=${time} /></g>`))}
    <${Ticks} segments=${segments} now=${inside ? here : -100} width=${width} />
    ${inside && html`<line class="now" x1=${here} x2=${here} y1=${head - 8} y2=${base + 6} />
      <text class="label here" x=${here} y=${base + 17} text-anchor="middle">now</text>`}
    <${Marks} segments=${segments} runs=${runs} />
  </svg>`;
}

const toHalf = (x) => Math.round(x * 2) / 2; // pixels: bars that move less stay

// End is overdue or later: a number and a block of a fixed size.
function End({ of: { name, x, w, bars: [bar] } }) {
  const middle = x + w / 2;
  return html`<g class="end">
    ${bar.count > 0 && html`<rect class=${`bar ${name === 'later' ? 'future' : name}`} x=${middle - 8} y=${base - 16}
      width="16" height="16" />`}
    <text class=${bar.count && name === 'overdue' ? 'figure late' : 'figure'} x=${middle} y=${base - 40}
      text-anchor="middle">${short(bar.count)}</text>
    <text class="label" x=${middle} y=${base - 24} text-anchor="middle">${name}</text>
  </g>`;
}

// Head has the name of a band or its range, its mean rate in one unit for all bands, and its scale.
function Head({ of: { name, x, w, most, bars, step, from, to }, time }) {
  const count = sum(bars, [0, bars.length - 1]);
  const narrow = w < 150;
  const range = `${local(from, time, false)} – ${local(to, time, false)}`;
  return html`<text class="head" x=${x} y="12">${(narrow ? briefTitles : titles)[name] ?? range}
      ${!narrow && html`<tspan class="label" dx="6">${count > 0 && meanRate(count, to - from)}</tspan>`}</text>
    <text class="label" x=${x} y="28">${most === 0 ? 'none' : narrow ? `≤ ${short(most)}` :
      `up to ${number(most)} ${per(step)}`}</text>`;
}

// meanRate returns how many messages fall due in an hour, or in a day if that is less than one.
function meanRate(count, length) {
  const hourly = (count / length) * 3600e3;
  return hourly >= 1 ? `${short(hourly)}/h` : `${short(hourly * 24)}/day`;
}

// Ticks are clock times and dates. A label that would cover another one, or that of now, is left out.
function Ticks({ segments, now: here, width }) {
  const taken = [[here - 16, here + 16]];
  const free = (from, to) => from >= 0 && to <= width && taken.every(([a, b]) => to < a || from > b);
  return segments.filter((s) => !s.end).flatMap((segment) => {
    const { step, times } = ticks(segment, labelWidth);
    return times.map((t) => {
      const x = xOf([segment], t);
      const text = clockOf(t, step);
      const half = text.length * labelCharacter / 2 + 3;
      const labelled = free(x - half, x + half);
      if (labelled) taken.push([x - half, x + half]);
      return html`<g key=${`${segment.name} ${t}`}><line class="tick" x1=${x} x2=${x} y1=${base} y2=${base + 5} />
        ${labelled && html`<text class="label" x=${x} y=${base + 17} text-anchor="middle">${text}</text>`}</g>`;
    });
  });
}

// Marks are the runs of schedules.
function Marks({ segments, runs = [] }) {
  if (!segments.length) return null;
  const [first, last] = [segments[0].from, segments.at(-1).to];
  const y = base + 28;
  let before = -Infinity; // marks that would cover each other are one
  return runs.filter((r) => Date.parse(r.due) >= first && Date.parse(r.due) < last).map((r) => {
    const x = xOf(segments, Date.parse(r.due));
    if (x < before + 8) return null;
    before = x;
    return html`<path class="mark" d=${`M${x} ${y - 4}l4 4l-4 4l-4-4z`}>
      <title>${r.schedule} runs ${relative(Date.parse(r.due), now())}</title></path>`;
  });
}
