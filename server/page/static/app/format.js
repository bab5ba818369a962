// How numbers, times and texts are shown.

const units = [['day', 86400e3], ['h', 3600e3], ['min', 60e3], ['s', 1e3]];

// number returns a number in full, such as 1,234,567.
export function number(n) {
  return Math.round(n).toLocaleString();
}

// short returns a number in at most five characters, such as 1.2M.
export function short(n) {
  if (n === undefined || n === null) return '–';
  const abs = Math.abs(n);
  if (abs < 10 && n % 1) return n.toFixed(1);
  if (abs < 10_000) return String(Math.round(n));
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (abs >= size) return (n / size).toFixed(abs < 100 * size ? 1 : 0).replace(/\.0$/, '') + unit;
  }
  return String(n);
}

// plural returns "1 message", "2 messages".
export function plural(n, one, many = one + 's') {
  return `${number(n)} ${n === 1 ? one : many}`;
}

const nanoseconds = { ns: 1, µs: 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9 };

// millis returns the milliseconds of a duration of the API, such as "1h30m0s" or "1.5ms".
export function millis(text) {
  let sum = 0;
  for (const [, n, unit] of text.matchAll(/([\d.]+)(ns|µs|ms|s|m|h)/g)) sum += n * nanoseconds[unit];
  return (text.startsWith('-') ? -sum : sum) / 1e6;
}

// duration returns a length of time in one or two units, such as "2 h 5 min", "1 day" or "340 ms".
export function duration(ms) {
  const abs = Math.abs(ms);
  if (abs > 0 && abs < 0.05) return '<0.1 ms';
  if (abs < 1e3) return `${abs < 10 && abs % 1 ? abs.toFixed(1) : Math.round(abs)} ms`;
  const at = units.findIndex(([, size]) => abs >= size);
  const [unit, size] = units[at];
  if (unit === 's') {
    return `${abs < 10e3 && abs % 1e3 ? (Math.floor(abs / 100) / 10).toFixed(1) : Math.floor(abs / 1e3)} s`;
  }
  const whole = Math.floor(abs / size);
  const [lesser, lesserSize] = units[at + 1];
  const rest = Math.floor((abs - whole * size) / lesserSize);
  const text = unit === 'day' ? plural(whole, unit) : `${whole} ${unit}`;
  return whole >= 10 || !rest ? text : `${text} ${rest} ${lesser}`;
}

// relative returns a time as seen from now, such as "in 3 h" or "2 min ago".
export function relative(ms, now) {
  const distance = Math.abs(ms - now);
  if (distance < 1e3) return 'now';
  const text = duration(distance < 60e3 ? Math.floor(distance / 1e3) * 1e3 : distance);
  return ms > now ? `in ${text}` : `${text} ago`;
}

const clock = new Intl.DateTimeFormat([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const minutes = new Intl.DateTimeFormat([], { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const day = new Intl.DateTimeFormat([], { day: 'numeric', month: 'short' });
const dayAndYear = new Intl.DateTimeFormat([], { day: 'numeric', month: 'short', year: 'numeric' });

export const timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone;

// local returns a time on the clock of whoever looks: the time alone today, with the date on other days.
export function local(ms, now, precise = true) {
  const at = new Date(ms);
  const time = (precise ? clock : minutes).format(at);
  if (at.toDateString() === new Date(now).toDateString()) return time;
  const date = Math.abs(ms - now) > 180 * 86400e3 ? dayAndYear : day;
  return `${date.format(at)} ${time}`;
}

// exact returns a time on the local clock with milliseconds, and with the date on other days than today.
export function exact(ms, now) {
  return `${local(ms, now)}.${String(ms % 1000).padStart(3, '0')}`;
}

// clockOf returns a time as it stands at an axis: with seconds, as hour and minute, or the date at midnight, as the
// distance to the next one needs.
export function clockOf(ms, distance) {
  const at = new Date(ms);
  const midnight = at.getHours() === 0 && at.getMinutes() === 0;
  if (distance >= 86400e3 || (midnight && distance >= 3600e3)) return day.format(at);
  return (distance < 60e3 ? clock : minutes).format(at);
}

// iso returns a time in UTC with milliseconds.
export function iso(ms) {
  return new Date(ms).toISOString();
}

// localInput returns a time for an input of the type datetime-local, with seconds.
export function localInput(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60e3).toISOString().slice(0, 19);
}

// visible returns a text with control characters and those that change the direction of text made visible.
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (c) => (c < ' ' ? String.fromCharCode(0x2400 + c.charCodeAt(0)) :
      `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`));
}

// bytesOf returns the bytes of base64.
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

// hexDump returns bytes as lines of an offset, 16 bytes and their ASCII characters.
export function hexDump(bytes, limit = 16 << 10) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, limit); at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((b) => b.toString(16).padStart(2, '0')).join(' ');
    const text = part.map((b) => (b >= 32 && b < 127 ? String.fromCharCode(b) : '·')).join('');
    lines.push(`${at.toString(16).padStart(6, '0')}  ${hex.padEnd(47)}  ${text}`);
  }
  const more = bytes.length - limit;
  if (more > 0) lines.push(`… ${plural(more, 'more byte')}: download the message for all of them`);
  return lines.join('\n');
}
