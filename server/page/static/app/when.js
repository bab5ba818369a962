// A choice of a due time: after a delay, or at a time on the local clock.
import { local, localInput, timeZone } from './format.js';
import { html, useState } from './html.js';
import { now } from './live.js';
import { Field } from './ui.js';

const durationPattern = '([0-9]+(\\.[0-9]+)?(ms|s|m|h|d))+';

// When is a fieldset with a delay or a time. Its form gives the result to whenOf.
export function When({ at = now(), allowNow }) {
  const [way, setWay] = useState(allowNow ? 'now' : 'in');
  const choice = (value, label) => html`<label class="choice">
    <input type="radio" name="way" value=${value} checked=${way === value} onChange=${() => setWay(value)} /> ${label}
  </label>`;
  return html`<fieldset><legend>Due</legend>
    <div class="row">
      ${allowNow && choice('now', 'now')} ${choice('in', 'after a delay')} ${choice('at', 'at a time')}</div>
    ${way === 'in' && html`<${Field} label="Delay" name="in" required autofocus pattern=${durationPattern}
      placeholder="1h30m" hint="From now, such as 30s, 15m, 1h30m or 2d" />`}
    ${way === 'at' && html`<${Field} label="Time" name="at" type="datetime-local" step="1" required autofocus
      value=${localInput(at)} hint=${`On your clock (${timeZone}), where it is ${local(now(), now())} now`} />`}
  </fieldset>`;
}

// whenOf returns the fields "in" and "at" of a request.
export function whenOf({ way, in: delay, at }) {
  if (way === 'in') return { in: delay };
  if (way === 'at') return { at: new Date(at).toISOString() };
  return {};
}
