// The geometry of the horizon: where times are on its axis, and which bars there are.

const shares = { overdue: 0.07, later: 0.07 }; // of the width; the other bands share the rest
const narrowest = 44; // pixels, of overdue and later
const thinnest = 4; // pixels, of a bar

// layout returns the bands of an overview as segments of the axis, each with its bars.
export function layout(bands, width, now) {
  const fixed = (name) => (shares[name] && bands.length > 1 ? Math.max(narrowest, shares[name] * width) : 0);
  const taken = bands.reduce((sum, b) => sum + fixed(b.name), 0);
  const others = bands.filter((b) => !fixed(b.name)).length;
  let x = 0;
  return bands.map((band) => {
    const w = fixed(band.name) || (width - taken) / others;
    // Overdue has no beginning and later no end: for zooming they are as long as what is next to them.
    const from = band.from ? Date.parse(band.from) : Date.parse(band.to) - 3600e3;
    const to = band.to ? Date.parse(band.to) : from + 30 * 86400e3;
    const segment = { name: band.name, from, to, x, w };
    segment.bars = barsOf(segment, band, now);
    x += w;
    return segment;
  });
}

function barsOf(segment, { counts, from, to }, now) {
  const group = Math.max(1, Math.ceil((thinnest * counts.length) / segment.w));
  const part = (segment.to - segment.from) / counts.length;
  const bars = [];
  for (let i = 0; i < counts.length; i += group) {
    const end = Math.min(i + group, counts.length);
    const bar = {
      count: counts.slice(i, end).reduce((a, b) => a + b, 0),
      from: segment.from + i * part,
      to: segment.from + end * part,
      x: segment.x + (i / counts.length) * segment.w,
      w: ((end - i) / counts.length) * segment.w,
      band: segment.name,
    };
    // The first and the last bar have no end: overdue is all before, and later all after.
    bar.after = segment.name === 'overdue' ? undefined : i === 0 ? from : new Date(bar.from).toISOString();
    bar.before = segment.name === 'later' ? undefined : end === counts.length ? to : new Date(bar.to).toISOString();
    bar.kind = kindOf(bar, now);
    bars.push(bar);
  }
  return bars;
}

function kindOf(bar, now) {
  if (bar.band === 'overdue' || (bar.band === 'range' && bar.to <= now)) return 'overdue';
  if (bar.band === 'minute' || (bar.band === 'range' && bar.from < now + 60e3)) return 'soon';
  return 'future';
}

// xOf returns where a time is. Times outside are at the ends.
export function xOf(segments, time) {
  for (const s of segments) {
    if (time < s.to || s === segments.at(-1)) {
      const part = s.name === 'overdue' || s.name === 'later' ? 0.5 : (time - s.from) / (s.to - s.from);
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

const scales = {
  sqrt: Math.sqrt,
  linear: (n) => n,
  log: (n) => Math.log10(1 + n),
};

// heightOf returns the part of the full height that a count has, with at least a sliver for one that is not 0.
export function heightOf(count, most, scale) {
  if (!count) return 0;
  const f = scales[scale] ?? scales.sqrt;
  return Math.max(0.02, f(count) / f(most));
}

const steps = [1e3, 2e3, 5e3, 10e3, 30e3, 60e3, 2 * 60e3, 5 * 60e3, 10 * 60e3, 30 * 60e3, 3600e3, 2 * 3600e3,
  6 * 3600e3, 12 * 3600e3, 86400e3, 2 * 86400e3, 7 * 86400e3, 14 * 86400e3, 30 * 86400e3];

// ticks returns round times on the local clock for a linear axis.
export function ticks({ from, to, w }) {
  const step = steps.find((s) => ((to - from) / s) * 90 <= w) ?? steps.at(-1);
  const zone = new Date(from).getTimezoneOffset() * 60e3;
  const all = [];
  for (let t = Math.ceil((from - zone) / step) * step + zone; t < to; t += step) all.push(t);
  return { step, times: all };
}
