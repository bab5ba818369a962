// A choice of a due time: one that is usual, in a click, or after a delay, or at a time on the local clock.
import { local, localInput, timeZone } from './format.js';
import { html, useState } from './html.js';
import { now } from './live.js';
import { Field } from './ui.js';

// durationPattern is the pattern of an input of a duration.
export const durationPattern = '([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+';

// usualTimes returns due times that people choose often: a delay, or times on the local clock that are to come. Days
// are days of the calendar, so that 9:00 stays 9:00 when the clock is set to summer time.
export function usualTimes(time = now()) {
  const at = new Date(time);
  const clock = (days, hours) => +new Date(at.getFullYear(), at.getMonth(), at.getDate() + days, hours);
  const monday = (8 - at.getDay()) % 7 || 7; // days until the next one
  return [
    { name: 'in 1 h', in: '1h' },
    { name: 'tonight 20:00', at: clock(0, 20) },
    { name: 'tomorrow 9:00', at: clock(1, 9) },
    monday > 1 && { name: 'Monday 9:00', at: clock(monday, 9) }, // else it is tomorrow
  ].filter((t) => t && (t.in || t.at > time));
}

// When is a fieldset with usual times, a delay or a time. Its form gives the result to whenOf. It begins with "way",
// and with the time "at" for a choice of one.
export function When({ at = now(), allowNow, way: first = allowNow ? 'now' : 'in' }) {
  const [way, setWay] = useState(first);
  const [delay, setDelay] = useState('');
  const [time, setTime] = useState(localInput(at));
  const take = (t) => {
    setWay(t.in ? 'in' : 'at');
    if (t.in) setDelay(t.in);
    else setTime(localInput(t.at));
  };
  const taken = (t) => (t.in ? way === 'in' && delay === t.in : way === 'at' && time === localInput(t.at));
  const choice = (value, label) => html`<label class="choice">
    <input type="radio" name="way" value=${value} checked=${way === value} onChange=${() => setWay(value)} /> ${label}
  </label>`;
  return html`<fieldset class="when"><legend>Due</legend>
    <div class="row" role="group" aria-label="Usual times">${usualTimes().map((t) => html`<button type="button"
      aria-pressed=${taken(t)} title=${t.at && local(t.at, now())} onClick=${() => take(t)}>${t.name}</button>`)}</div>
    <div class="row">
      ${allowNow && choice('now', 'now')} ${choice('in', 'after a delay')} ${choice('at', 'at a time')}</div>
    ${way === 'in' && html`<${Field} label="Delay" name="in" required autofocus pattern=${durationPattern}
      value=${delay} onInput=${(event) => setDelay(event.target.value)}
      placeholder="1h30m" hint="From now, such as 30s, 15m, 1h30m or 2d" />`}
    ${way === 'at' && html`<${Field} label="Time" name="at" type="datetime-local" step="1" required autofocus
      value=${time} onInput=${(event) => setTime(event.target.value)}
      hint=${`On your clock (${timeZone}), where it is ${local(now(), now())} now`} />`}
  </fieldset>`;
}

// whenOf returns the fields "in" and "at" of a request.
export function whenOf({ way, in: delay, at }) {
  if (way === 'in') return { in: delay };
  if (way === 'at') return { at: new Date(at).toISOString() };
  return {};
}
