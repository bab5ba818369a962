// Ranges of due times: the one that is shown and selected, and presets.
import { wholeParts } from './axis.js';
import { iso } from './format.js';
import { now } from './live.js';
import { go } from './url.js';

const hour = 3600e3;
const month = 31 * 24 * hour;

// The parameters of the URL: from and to select messages, and z0 and z1 are the range of the chart on a linear axis.
export const noRange = { from: undefined, to: undefined, z0: undefined, z1: undefined };

// clearRange shows all due times.
export function clearRange() {
  go(noRange);
}

// watched returns the parameters of an overview with the range that the chart shows, in parts of a round length.
export function watched({ z0, z1 }) {
  if (!z0 || !z1) return {};
  const { from, to, parts } = wholeParts(Date.parse(z0), Date.parse(z1));
  return { from: iso(from), to: iso(to), buckets: parts };
}

// select selects messages that are due in a range, and has the chart show it on a linear axis. A range without a
// beginning or an end is shown from or until a time.
export function select({ from, to }, { begin, end } = {}) {
  const [z0, z1] = [from ?? begin, to ?? end];
  const zoom = Date.parse(z1) - Date.parse(z0) >= 2000 ? { z0, z1 } : {};
  go({ from, to, state: undefined, message: undefined, ...zoom });
}

// presets returns ranges with a name, on the local clock. Weeks begin on Monday.
export function presets(time = now()) {
  const at = new Date(time);
  const local = (days, hours) => +new Date(at.getFullYear(), at.getMonth(), at.getDate() + days, hours);
  const since = Math.floor(time / 60e3) * 60e3;
  const night = at.getHours() < 6 ? 0 : 1; // it ends today or tomorrow
  return [
    ['next hour', since, since + hour],
    ['tonight', Math.max(since, local(night - 1, 18)), local(night, 6)],
    ['tomorrow', local(1, 0), local(2, 0)],
    ['this week', since, local(7 - ((at.getDay() + 6) % 7), 0)],
  ].map(([name, from, to]) => ({ name, from: iso(from), to: iso(to) }));
}

// presetOf returns the name of the preset that a range was, or is. It stays so while time passes in the range.
export function presetOf({ from, to }, time = now()) {
  const since = Date.parse(from);
  const at = since <= time && time < Date.parse(to) ? [time, since] : [time];
  return at.flatMap((t) => presets(t)).find((p) => p.from === from && p.to === to)?.name;
}

// zoomOut shows twice as long a range around the one that is shown, or everything.
export function zoomOut({ z0, z1 }) {
  if (!z0) return;
  const [from, to] = [Date.parse(z0), Date.parse(z1)];
  const more = (to - from) / 2;
  if (to + more - now() > month) go({ z0: undefined, z1: undefined });
  else go({ z0: iso(from - more), z1: iso(to + more) });
}

// shift shows the range after or before the one that is shown, and selects it if that was selected.
export function shift({ z0, z1, from, to }, by) {
  const moved = (text) => text && iso(Date.parse(text) + by * (Date.parse(z1) - Date.parse(z0)));
  go({ z0: moved(z0), z1: moved(z1), ...(from === z0 && to === z1 && { from: moved(from), to: moved(to) }) });
}
