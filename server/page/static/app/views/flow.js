// The limits of a queue and of its keys: how many messages may be in flight at once, and how many may start in a time.
import { get, path, post, put, query } from '../api.js';
import { duration, millis, number, plural } from '../format.js';
import { html } from '../html.js';
import { Empty, Field, Form, Loaded, notify, open, Table, Time, useLoad } from '../ui.js';
import { change, offer } from '../undo.js';
import { may } from '../who.js';

// keysShown is how many keys a table has, and keysRead how many are read to find the keys that wait longest.
const keysShown = 50;
const keysRead = 2000;
const keysPerPage = 500;

// per returns the period of a rate without a needless 1, as in 10 per s.
const per = (text) => duration(millis(text)).replace(/^1 /, '');

const rateText = (rate) => rate && `${number(rate.n)} per ${per(rate.per)}${
  rate.burst > 1 ? ` · ${number(rate.burst)} at once` : ''}`;

// orders are the orders of the messages of a key, by their name in the API.
const orders = {
  continue: 'a key in order, past dead messages', halt: 'a key in order, until a message of it is dead',
};

// flowText returns the limits of a queue and their state.
export function flowText({ concurrency, rate, leased, fair, urgency, key }) {
  return [
    concurrency && `${number(leased)} of ${number(concurrency)} in flight`,
    rateText(rate),
    urgency && 'urgent messages first',
    fair && !key && !urgency && 'keys take turns',
    key?.order ? orders[key.order] : key?.concurrency && `${number(key.concurrency)} of a key in flight`,
    key?.rate && `a key ${rateText(key.rate)}`,
  ].filter(Boolean).join(' · ');
}

// rateOf returns the rate in the fields of a form that share a prefix.
function rateOf(fields, prefix) {
  if (!Number(fields[`${prefix}n`])) return undefined;
  const rate = { n: Number(fields[`${prefix}n`]), per: fields[`${prefix}per`] };
  if (Number(fields[`${prefix}burst`])) rate.burst = Number(fields[`${prefix}burst`]);
  return rate;
}

const count = (name, value, max = 1000000) => ({ name, value, type: 'number', min: 0, max });

function Limits({ of, prefix, noun }) {
  return html`
    <${Field} label=${`${noun} in flight at once`} ...${count(`${prefix}concurrency`, of?.concurrency)}
      autofocus=${!prefix} />
    <${Field} label=${`${noun} that may start`} ...${count(`${prefix}n`, of?.rate?.n)} />
    <${Field} label="in this time" name=${`${prefix}per`} value=${of?.rate?.per ?? '1s'} hint="Such as 1s, 1m or 1h" />
    <${Field} label="of these at once" ...${count(`${prefix}burst`, of?.rate?.burst)} hint="Default: 1" />`;
}

// setFlow asks for the limits of a queue and sets them.
export const setFlow = (q) => open(SetFlow, { q });

function SetFlow({ q }) {
  const order = q.flow?.key?.order;
  const submit = async (fields) => {
    const flow = { rate: rateOf(fields, ''), fair: fields.next !== 'due', urgency: fields.next === 'urgent' };
    if (Number(fields.concurrency)) flow.concurrency = Number(fields.concurrency);
    const key = { rate: rateOf(fields, 'key-'), weight: q.flow?.key?.weight };
    if (fields.order) key.order = fields.order;
    else if (Number(fields['key-concurrency'])) key.concurrency = Number(fields['key-concurrency']);
    if (!flow.fair && fields.order && fields.order !== order) {
      throw new Error('Messages of a key start in order only while keys take turns: choose that as next, too.');
    }
    if (flow.fair && (key.rate || key.concurrency || key.order)) flow.key = key;
    const { undo } = await change('PUT', path('queues', q.queue, 'flow'), flow);
    offer(flow.concurrency || flow.rate || flow.fair ? `${q.queue} is limited` : `${q.queue} has no limits`, undo,
      { said: `${q.queue} has its limits from before` });
  };
  return html`<${Form} title=${`Limits of ${q.queue}`} action="Save" submit=${submit}>
    <p class="faint">All workers together obey them from their next claim on. An empty field is no limit.</p>
    <${Limits} of=${q.flow} prefix="" noun="Messages" />
    <${Field} label="Next is" hint="Limits of keys hold only while keys take turns."><select name="next">
      <option value="due">the message that was due first</option>
      <option value="turn" selected=${q.flow?.fair}>a message of the next key: keys take turns</option>
      <option value="urgent" selected=${q.flow?.urgency}>an urgent message; among equals keys take turns</option>
    </select><//>
    <${Field} label="Messages of a key start" hint="In order: one at a time, and retries first.">
      <select name="order">
        <option value="">in no order</option>
        <option value="continue" selected=${order === 'continue'}>in order; after a dead one, the next</option>
        <option value="halt" selected=${order === 'halt'}>in order; a dead one halts the key</option>
      </select><//>
    <${Limits} of=${order ? { ...q.flow.key, concurrency: undefined } : q.flow?.key} prefix="key-"
      noun="Messages of each key" />
  <//>`;
}

// showKeys shows the keys of a queue that wait longest, and why.
export const showKeys = (q) => open(Keys, { q });

// waitingKeys returns halted keys and the keys that have waited longest, of the first ones by name.
async function waitingKeys(queue, signal) {
  const keys = [];
  let cursor;
  const halted = await get(path('queues', queue, 'keys') + query({ halted: true, limit: keysShown }), { signal });
  do {
    const page = await get(path('queues', queue, 'keys') + query({ cursor, limit: keysPerPage }), { signal });
    keys.push(...page.items.filter((k) => !k.halted));
    cursor = page.next;
  } while (cursor && keys.length < keysRead);
  keys.sort((a, b) => Date.parse(a.since) - Date.parse(b.since));
  const all = [...halted.items, ...keys];
  return { keys: all.slice(0, keysShown), read: all.length, more: Boolean(cursor || halted.next) };
}

function reasonText(k) {
  switch (k.reason) {
    case 'full': return `${number(k.leased)} of ${number(k.concurrency)} in flight`;
    case 'held': return html`its message <span class="id">${k.holder}</span>, which has started`;
    case 'halted': return html`the dead message <span class="id">${k.holder}</span>`;
    case 'resting': return html`its rate, next <${Time} at=${k.next} only="relative" />`;
    default: return 'its turn';
  }
}

function Keys({ q, close }) {
  const loaded = useLoad((signal) => waitingKeys(q.queue, signal), [q.queue], 2000);
  const empty = ({ keys }) => !keys.length && html`<${Empty} title="No key waits.">
    A key waits when it has ready messages and a worker has asked for messages.<//>`;
  return html`<h2 id="dialog-title">Keys of ${q.queue} that wait</h2>
    <${Loaded} of=${loaded} empty=${empty}>${({ keys, read, more }) => html`
      <${Table} label="Keys" head=${['key', 'ready', 'waits since', 'in flight', 'waits for', 'limits']} tall>
        ${keys.map((k) => html`<tr key=${k.key}>
          <td class="id">${k.key || html`<span class="faint">messages without a key</span>`}</td>
          <td>${number(k.waiting)}</td>
          <td>${k.since && html`<${Time} at=${k.since} only="relative" />`}</td><td>${number(k.leased)}</td>
          <td class=${k.reason === 'turn' ? '' : 'late'}>${reasonText(k)}</td>
          <td>${limitsText(k)} ${k.halted && may('operate') && html`<button class="quiet"
            onClick=${() => open(ResumeKey, { q, k })}>Go on…<span class="hidden"> ${k.key}</span></button> `}
            ${k.key && may('operate') && html`<button class="quiet"
            onClick=${() => open(SetKeyFlow, { q, k })}>Limits…<span class="hidden"> ${k.key}</span></button>`}</td>
        </tr>`)}<//>
      <p class="faint">${plural(read, 'key')}${more ? ' and more' : ''}; halted keys are first, then the ones that have
        waited longest.</p>`}<//>
    <div class="buttons"><button onClick=${close}>Close</button></div>`;
}

// ResumeKey lets a halted key go on, with the dead message or with the next one.
function ResumeKey({ q, k }) {
  const submit = async ({ first }) => {
    if (first === 'dead') await post(path('queues', q.queue, 'messages', k.holder, 'replay'));
    else await post(path('queues', q.queue, 'keys', k.key, 'resume'));
    notify(`${k.key} goes on`);
  };
  return html`<${Form} title=${`Let ${k.key} go on`} action="Go on" submit=${submit}>
    <p>The dead message <span class="id">${k.holder}</span> halts the key.</p>
    <${Field} label="Next is"><select name="first" autofocus>
      <option value="dead">the dead message: it is replayed</option>
      <option value="next">the message behind it: the dead one stays dead</option>
    </select><//>
  <//>`;
}

const limitsText = ({ concurrency, rate, weight, order, override }) => [
  order ? 'in order' : concurrency && `${number(concurrency)} in flight`, rateText(rate),
  weight && `weight ${number(weight)}`, override && 'its own',
].filter(Boolean).join(' · ');

function SetKeyFlow({ q, k }) {
  const own = k.override ?? {};
  const submit = async (fields) => {
    const override = {};
    if (fields.concurrency !== '') override.concurrency = Number(fields.concurrency);
    if (fields.n !== '') override.rate = rateOf(fields, '') ?? { n: 0 };
    if (Number(fields.weight)) override.weight = Number(fields.weight);
    await put(path('queues', q.queue, 'keys', k.key, 'flow'), override);
    notify(Object.keys(override).length ? `${k.key} has limits of its own` : `${k.key} has the limits of each key`);
  };
  return html`<${Form} title=${`Limits of ${k.key} in ${q.queue}`} action="Save" submit=${submit}>
    <p class="faint">An empty field is as for each key of the queue; 0 is no limit.</p>
    <${Limits} of=${own} prefix="" noun="Messages of the key" />
    <${Field} label="Share among the keys that wait" ...${count('weight', own.weight, 1000)} hint="Default: 1" />
  <//>`;
}
