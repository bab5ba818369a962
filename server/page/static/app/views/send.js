// Sending a new message, or one like another. The server checks it; the error stands beside its field.
import { path, post } from '../api.js';
import { bytesOf, local, localInput, plural, timeZone, visible } from '../format.js';
import { html, useEffect, useRef, useState } from '../html.js';
import { payloadText } from '../json.js';
import { live, now } from '../live.js';
import { optionNames, textOptions } from '../options.js';
import { Failure, notify } from '../ui.js';
import { go } from '../url.js';
import { When, whenOf } from '../when.js';
import { asBefore, headersOf, linesOf, payloadOf } from './actions.js';

// The fields of the form have the names that the API gives them.
const rare = [...optionNames, 'max_attempts', 'expire_after', 'expire_at', 'timeout', 'dedup_window'];
const places = ['id', 'payload', 'headers', 'in', 'at', ...rare];

// placeOf returns the field that an error is about, such as headers for body.headers.kind.
function placeOf({ field = '', message = '' }) {
  const name = field.replace(/^body\./, '').split(/[.[]/)[0];
  if (field === 'path.queue' || name === 'queue') return 'queue';
  if (name.startsWith('payload')) return 'payload';
  return places.find((place) => place === name) ?? (/^queue\b/.test(message) ? 'queue' : undefined);
}

// bodyOf returns the request of the fields of the form.
function bodyOf(fields, like) {
  const body = { ...whenOf(fields) };
  for (const name of ['id', ...rare]) if (fields[name]) body[name] = fields[name];
  if (fields.max_attempts) body.max_attempts = Number(fields.max_attempts);
  if (fields.expire_at) body.expire_at = new Date(fields.expire_at).toISOString();
  const headers = at('headers', () => headersOf(fields.headers, like?.headers));
  if (Object.keys(headers).length) body.headers = headers;
  if (like?.payload_base64 !== undefined) body.payload_base64 = like.payload_base64;
  else if (fields.payload) {
    const text = asBefore(fields.payload, like && payloadText(like));
    Object.assign(body, at('payload', () => payloadOf(text, fields.kind === 'json' ? { payload: 0 } : {})));
  }
  return body;
}

// at names the field of an error.
function at(field, f) {
  try {
    return f();
  } catch (error) {
    throw Object.assign(error, { field });
  }
}

const randomKey = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36)).join('-');

export function Send({ queue, like, close }) {
  const [error, setError] = useState();
  const [busy, setBusy] = useState(false);
  const form = useRef();
  const tried = useRef({});
  // keyOf returns the key of a request: the same as before if the same is sent again, because no reply has come.
  const keyOf = (fields) => {
    const text = JSON.stringify(fields);
    if (tried.current.text !== text) tried.current = { text, key: randomKey() };
    return tried.current.key;
  };
  const wrong = error && placeOf(error);
  useEffect(() => { form.current.querySelector('[aria-invalid=true]')?.focus(); }, [error]);
  const submit = async (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    setError(undefined);
    try {
      const to = at('queue', () => path('queues', fields.queue, 'messages'));
      const sent = await post(to, bodyOf(fields, like), { headers: { 'Idempotency-Key': keyOf(fields) } });
      notify(`${visible(sent.id)} is sent to ${visible(sent.queue)}, due ${local(Date.parse(sent.due), now())}`);
      close();
      go({ message: sent.id, mq: sent.queue, view: undefined });
    } catch (problem) {
      const taken = problem.code === 'duplicate' && {
        message: 'A live message has this id, or one that was acked lately: give another id, or leave it empty.',
        field: 'id' };
      setError(taken || problem);
      setBusy(false);
    }
  };
  const field = (name, label, rest = {}) => html`<${Input} name=${name} label=${label} ...${rest}
    error=${wrong === name && error.message} />`;
  const title = like ? `Duplicate ${like.id}` : 'New message';
  return html`<form ref=${form} onSubmit=${submit} class="send">
    <h2 id="dialog-title">${title}</h2>
    <div class="pair">
      ${field('queue', 'Queue', { value: like?.queue ?? queue, required: true, maxlength: 128, list: 'send-queues',
        autofocus: !like && !queue })}
      ${field('id', 'Id', { maxlength: 128, placeholder: 'generated', hint: 'Empty for a generated one' })}
    </div>
    <datalist id="send-queues">${(live.overview?.queues ?? []).slice(0, 200).map((q) =>
      html`<option value=${q.queue} />`)}</datalist>
    <${PayloadField} like=${like} error=${wrong === 'payload' && error.message} focus=${Boolean(like || queue)} />
    ${field('headers', 'Headers', { rows: 2, value: linesOf(like?.headers), hint: 'One a line: name=value' })}
    <${When} allowNow at=${like?.due && Date.parse(like.due)} way=${like?.state === 'scheduled' ? 'at' : 'now'} />
    ${['in', 'at'].includes(wrong) && html`<p class="late" role="alert">${error.message}</p>`}
    <${More} like=${like} open=${rare.includes(wrong)} field=${field} />
    <${Failure} error=${error && !wrong && error} />
    <div class="buttons"><button type="button" onClick=${close}>Close</button>
      <button class="primary" disabled=${busy}>${busy ? 'Sending…' : 'Send'}</button></div>
  </form>`;
}

// PayloadField is the payload as JSON or text. Bytes are sent as they are.
function PayloadField({ like, error, focus }) {
  const text = like && payloadText(like);
  const [kind, setKind] = useState(like && like.payload === undefined ? 'text' : 'json');
  if (like?.payload_base64 !== undefined) {
    return html`<p>The payload has ${plural(bytesOf(like.payload_base64).length, 'byte')} that are no text: they are
      sent as they are.</p>`;
  }
  const choice = (value, label) => html`<label class="choice"><input type="radio" name="kind" value=${value}
    checked=${kind === value} onChange=${() => setKind(value)} /> ${label}</label>`;
  return html`<${Input} name="payload" label="Payload" rows="6" value=${text} error=${error} autofocus=${focus} />
    <div class="row" role="group" aria-label="The payload is">
      ${choice('json', 'JSON')} ${choice('text', 'text')}</div>`;
}

// More has the options that few messages need.
function More({ like, open: shown, field }) {
  const some = like && rare.some((name) => like[name] !== undefined && name !== 'max_attempts');
  return html`<details open=${shown || some}><summary>Group, key, urgency, attempts, expiry</summary>
    <div class="pair">
      ${textOptions.map((o) => field(o.name, o.label, { ...o.input, value: like?.[o.name] }))}
      ${field('max_attempts', 'Attempts at most', { type: 'number', min: 1, max: 65535, value: like?.max_attempts,
        hint: 'Default: 20' })}
      ${field('expire_after', 'Expires after', { value: like?.expire_after, placeholder: 'never',
        hint: 'Dead if not delivered so long after it is due, such as 2h' })}
      ${field('expire_at', 'Expires at', { type: 'datetime-local', step: 1,
        value: like?.expire_at && localInput(Date.parse(like.expire_at)), hint: `On your clock (${timeZone})` })}
      ${field('timeout', 'Timeout', { value: like?.timeout, placeholder: 'the worker’s',
        hint: 'Of one run of its handler, such as 30s' })}
      ${field('dedup_window', 'Dedup window', { value: like?.dedup_window, placeholder: 'none',
        hint: 'Refuse the id so long after its ack, such as 24h' })}
    </div></details>`;
}

// Input is a field with its label, its hint, and its error. With rows, it has several lines, and with
// choices it is one of them; the empty one is normal.
function Input({ label, hint, error, rows, choices, value = '', ...input }) {
  const about = `send-${input.name}-about`;
  const all = { ...input, spellcheck: false, autocomplete: 'off', defaultValue: value,
    'aria-invalid': error ? 'true' : undefined, 'aria-describedby': hint || error ? about : undefined };
  return html`<div class="field"><label><span>${label}</span>
    ${choices && html`<select ...${all}>${choices.map((one) => html`<option value=${one} selected=${one === value}>
      ${one || 'normal'}</option>`)}</select>`}
    ${rows && html`<textarea rows=${rows} ...${all} />`}
    ${!rows && !choices && html`<input ...${all} />`}</label>
    <small id=${about} class=${error ? 'late' : ''} role=${error ? 'alert' : undefined}>${error || hint}</small></div>`;
}
