// The limits of a queue: how many of its messages may be in flight at once, and how many may start in a time.
import { path, put } from '../api.js';
import { duration, millis, number } from '../format.js';
import { html } from '../html.js';
import { Field, Form, notify, open } from '../ui.js';

// per returns the period of a rate without a needless 1, as in 10 per s.
const per = (text) => duration(millis(text)).replace(/^1 /, '');

// flowText returns the limits of a queue and their state.
export function flowText({ concurrency, rate, leased }) {
  return [
    concurrency && `${number(leased)} of ${number(concurrency)} in flight`,
    rate && `${number(rate.n)} per ${per(rate.per)}`,
    rate?.burst > 1 && `${number(rate.burst)} at once`,
  ].filter(Boolean).join(' · ');
}

// setFlow asks for the limits of a queue and sets them.
export const setFlow = (q) => open(SetFlow, { q });

function SetFlow({ q }) {
  const { concurrency, rate } = q.flow ?? {};
  const submit = async (fields) => {
    const flow = {};
    if (Number(fields.concurrency)) flow.concurrency = Number(fields.concurrency);
    if (Number(fields.n)) {
      flow.rate = { n: Number(fields.n), per: fields.per };
      if (Number(fields.burst)) flow.rate.burst = Number(fields.burst);
    }
    await put(path('queues', q.queue, 'flow'), flow);
    notify(Object.keys(flow).length ? `${q.queue} is limited` : `${q.queue} has no limits`);
  };
  const count = (name, value) => ({ name, value, type: 'number', min: 0, max: 1000000 });
  return html`<${Form} title=${`Limits of ${q.queue}`} action="Save" submit=${submit}>
    <p class="faint">All workers together obey them from their next claim on. An empty field is no limit.</p>
    <${Field} label="Messages in flight at once" ...${count('concurrency', concurrency)} autofocus />
    <${Field} label="Messages that may start" ...${count('n', rate?.n)} />
    <${Field} label="in this time" name="per" value=${rate?.per ?? '1s'} hint="Such as 1s, 1m or 1h" />
    <${Field} label="of these at once" ...${count('burst', rate?.burst)} hint="Default: 1" />
  <//>`;
}
