// The geometry of the horizon: where times are on its axis, which bars there are, and how high they may be.
import { duration } from './format.js';

const minute = 60e3;
const hour = 3600e3;
const day = 86400e3;
const thinnest = 4; // pixels, of a bar
const gap = 12; // pixels between bands, because each has a scale of its own
const shares = { minute: 0.19, hour: 0.27, day: 0.27, month: 0.27 }; // of the width between overdue and later
// How many steps of a band a bar may have, so that it begins at round times.
const groups = { minute: [1, 5, 15], hour: [1, 2, 5, 15, 30], day: [1, 2, 4, 12], month: [1, 2, 14] };

// ends is the width of the numbers at both ends, overdue and later.
function ends(width) {
  return width < 600 ? 52 : 84;
}

// layout returns the bands of an overview as segments of the axis, each with its bars and a scale of its own.
export function layout(bands, width) {
  const whole = bands.length > 1;
  const inner = whole ? width - 2 * ends(width) : width;
  let x = 0;
  return bands.map((band) => {
    const end = band.name === 'overdue' || band.name === 'later';
    const w = end ? ends(width) : (whole ? shares[band.name] : 1) * inner;
    // Overdue is without a beginning and later without an end.
    const from = band.from ? Date.parse(band.from) : Date.parse(band.to) - hour;
    const to = band.to ? Date.parse(band.to) : from + 30 * day;
    const segment = { name: band.name, from, to, end, x: end || !whole ? x : x + gap / 2,
      w: end || !whole ? w : w - gap };
    Object.assign(segment, barsOf(segment, band));
    segment.most = Math.max(0, ...segment.bars.map((b) => b.count));
    x += w;
    return segment;
  });
}

// boundsOf returns where the parts of a band begin, and its end, and the length of a whole part.
function boundsOf({ from, to }, { counts, step }) {
  const n = counts.length;
  const length = step ? stepOf(step) : (to - from) / n;
  const first = step ? Math.floor(from / length) * length : from;
  return { bounds: counts.map((_, i) => Math.max(from, first + i * length)).concat(to), first, length };
}

const stepOf = (text) => { // of the steps that the server has: whole hours, minutes and seconds
  const [, h = 0, m = 0, s = 0] = /^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(text);
  return h * hour + m * minute + s * 1e3;
};

function barsOf(segment, band) {
  const { bounds, first, length } = boundsOf(segment, band);
  const { x, w, from, to, name } = segment;
  const fits = (n) => (w * length * n) / (to - from) >= thinnest;
  const many = groups[name]?.find(fits) ?? Math.max(1, Math.ceil((thinnest * bounds.length) / w));
  const step = length * many;
  const at = (time) => x + ((time - from) / (to - from)) * w;
  const origin = band.step ? 0 : first; // of the steps
  const slotAt = (time) => Math.floor((time - origin + 0.5) / step);
  const bars = [];
  let i = 0;
  while (i < band.counts.length) {
    const slot = slotAt(bounds[i]);
    const begin = i;
    let count = 0;
    for (; i < band.counts.length && slotAt(bounds[i]) === slot; i++) count += band.counts[i];
    const bar = { key: `${name} ${slot}`, band: name, count, from: bounds[begin], to: bounds[i] };
    bar.x = at(bar.from);
    bar.w = at(bar.to) - bar.x;
    // The first and the last bar have no end: overdue is all before, and later all after.
    if (name !== 'overdue') bar.after = new Date(Math.round(bar.from)).toISOString();
    if (name !== 'later') bar.before = new Date(Math.round(bar.to)).toISOString();
    bars.push(bar);
  }
  return { bars, step };
}

// kindOf returns the state of the messages of a bar: overdue, soon or future.
export function kindOf(bar, now) {
  if (bar.band === 'overdue' || (bar.band === 'range' && bar.to <= now)) return 'overdue';
  if (bar.band === 'minute' || (bar.band === 'range' && bar.from < now + minute)) return 'soon';
  return 'future';
}

// xOf returns where a time is. Times outside are at the ends.
export function xOf(segments, time) {
  for (const s of segments) {
    if (time < s.to || s === segments.at(-1)) {
      const part = s.end ? 0.5 : (time - s.from) / (s.to - s.from);
      return s.x + Math.min(1, Math.max(0, part)) * s.w;
    }
  }
  return 0;
}

// barAt returns the index of the bar at a place.
export function barAt(bars, x) {
  const at = bars.findIndex((b) => x < b.x + b.w);
  return at < 0 ? bars.length - 1 : at;
}

// sum returns how many messages the bars from one to another index have.
export function sum(bars, [first, last]) {
  return bars.slice(first, last + 1).reduce((n, b) => n + b.count, 0);
}

// heightOf returns the part of the full height that a count has, with at least a sliver for one that is not 0.
export function heightOf(count, most, scale) {
  if (!count) return 0;
  return Math.max(0.02, scale === 'sqrt' ? Math.sqrt(count / most) : count / most);
}

// per returns the length of a bar as a unit, such as "per minute" or "per 30 min".
export function per(ms) {
  const name = { 1000: 'second', [minute]: 'minute', [hour]: 'hour', [day]: 'day' }[ms];
  return `per ${name ?? duration(ms)}`;
}

const steps = [1e3, 2e3, 5e3, 10e3, 15e3, 30e3, minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute,
  hour, 2 * hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 7 * day, 14 * day, 30 * day];
const mostParts = 150;

// wholeParts returns a range that is made a little longer, so that it has parts of a round length, and their number.
export function wholeParts(from, to) {
  const step = steps.find((s) => (to - from) / s <= mostParts) ?? Math.ceil((to - from) / mostParts / day) * day;
  const zone = new Date(from).getTimezoneOffset() * minute % step;
  const first = Math.floor((from - zone) / step) * step + zone;
  const parts = Math.ceil((to - first) / step);
  return { from: first, to: first + parts * step, parts };
}

// ticks returns round times on the local clock for a segment, and the distance between them. A label takes some pixels.
export function ticks({ from, to, w }, label) {
  const step = steps.find((s) => ((to - from) / s) * label <= w) ?? steps.at(-1);
  const zone = (at) => new Date(at).getTimezoneOffset() * minute;
  const base = zone(from) + (step % (7 * day) ? 0 : 4 * day); // weeks begin on Monday, and 1970 did on a Thursday
  const times = [];
  for (let t = Math.ceil((from - base) / step) * step + base; t < to; t += step) {
    const local = t + zone(t) - zone(from); // the clock may have been set since from
    if (local >= from && local < to) times.push(local);
  }
  return { step, times };
}
