// The actions on a message.
import { path, post, query } from '../api.js';
import { local, plural, relative, visible } from '../format.js';
import { html } from '../html.js';
import { parse, payloadText } from '../json.js';
import { now } from '../live.js';
import { Confirm, Field, Form, notify, open } from '../ui.js';
import { change, offer } from '../undo.js';
import { go, url } from '../url.js';
import { When, whenOf } from '../when.js';
import { hidesPayloads, may } from '../who.js';

const byState = {
  scheduled: ['run', 'reschedule', 'cancel', 'edit'],
  ready: ['reschedule', 'cancel', 'edit'],
  leased: ['cancel'],
  dead: ['replay', 'cancel'],
};

// actionsOf returns the actions on a message that whoever looks may take, in the order of the buttons.
export function actionsOf(m) {
  return (byState[m.state] ?? []).filter((action) => (
    may(action === 'replay' ? 'operate' : 'send') && !(action === 'edit' && hidesPayloads())));
}

const pathOf = (m, ...rest) => path('queues', m.queue, 'messages', m.id, ...rest);
const undoable = (m) => pathOf(m) + query({ undoable: true });

// act asks about an action on a message, which it names, and then calls done.
export function act(action, m, done = () => {}) {
  return {
    run: () => open(Run, { m, done }),
    reschedule: () => open(Reschedule, { m, done }),
    edit: () => open(Edit, { m, done }),
    cancel: () => open(Cancel, { m, done }),
    replay: () => open(Replay, { m, done }),
  }[action]();
}

function Run({ m, done }) {
  const submit = async () => {
    await post(pathOf(m, 'run'));
    notify(`${m.id} is due now`);
    done();
  };
  const [due, time] = [Date.parse(m.due), now()];
  const text = html`It is in the queue <strong>${m.queue}</strong>, due ${local(due, time)}
    (${relative(due, time)}). Its handler runs as soon as a worker is free. This cannot be undone.`;
  return html`<${Confirm} title=${`Run ${m.id} now?`} text=${text} action="Run it now" submit=${submit} />`;
}

function Reschedule({ m, done }) {
  const submit = async (fields) => {
    const { value, undo } = await change('PATCH', undoable(m), whenOf(fields));
    offer(`${m.id} is due ${local(Date.parse(value.due), now())}`, undo,
      { said: `${m.id} is due as before`, done });
    done();
  };
  return html`<${Form} title=${`Reschedule ${m.id}`} action="Reschedule" submit=${submit}>
    <p class="faint">It is due ${local(Date.parse(m.due), now())} now.</p>
    <${When} at=${Date.parse(m.due)} />
  <//>`;
}

function Cancel({ m, done }) {
  const submit = async () => {
    const { undo } = await change('DELETE', undoable(m));
    offer(`${m.id} is cancelled`, undo, { said: `${m.id} is back as it was`, done });
    if (url().message === m.id) go({ message: undefined, mq: undefined }, { replace: true });
    done();
  };
  const text = m.state === 'leased' ? 'A worker holds it: its handler is told, and may have done its work already.' :
    'It is removed, and its id is free again. This can be undone for ten minutes, unless the server restarts.';
  return html`<${Confirm} title=${`Cancel ${m.id}?`} text=${text} action="Cancel the message" danger
    submit=${submit} />`;
}

function Replay({ m, done }) {
  const submit = async (fields) => {
    await post(pathOf(m, 'replay'), whenOf(fields));
    notify(`${m.id} is live again`);
    done();
  };
  return html`<${Form} title=${`Replay ${m.id}`} action="Replay" submit=${submit}>
    <p>It is in the queue <strong>${m.queue}</strong>. It becomes live again with all its attempts
      ${m.attempts > 0 && `, after ${plural(m.attempts, 'failed one')}`}, and its handler runs when it is due and a
      worker is free. This cannot be undone.</p>
    <${When} allowNow />
  <//>`;
}

const unix = (text) => text.replace(/\r\n?/g, '\n');

// asBefore returns a text that was edited with the line breaks that it had before: a textarea has \n for all of them.
export function asBefore(text, before = '') {
  if (unix(text) === unix(before)) return before;
  return before.includes('\r\n') ? unix(text).replaceAll('\n', '\r\n') : text;
}

// linesOf returns headers as lines for headersOf.
export const linesOf = (headers = {}) => Object.entries(headers).map(([name, value]) => `${name}=${value}`).join('\n');

// headersOf returns the headers of lines with a name, "=" and a value each. Lines that were not edited are the headers
// before.
export function headersOf(text, before = {}) {
  if (unix(text) === unix(linesOf(before))) return before;
  const strange = Object.entries(before).find(([name, value]) => name.includes('=') || /[\r\n]/.test(name + value));
  if (strange) throw new Error(`The header ${visible(strange[0])} does not fit on a line: edit it with later edit`);
  const headers = {};
  for (const line of text.split('\n').filter((l) => l.trim())) {
    const at = line.indexOf('=');
    if (at < 1) throw new Error(`The header ${line} has no value: write name=value`);
    headers[line.slice(0, at).trim()] = line.slice(at + 1);
  }
  return headers;
}

// payloadOf returns the fields of a payload that was edited. That of a message with JSON must be JSON.
export function payloadOf(text, before) {
  if (before.payload === undefined) return { payload_text: text };
  try {
    return { payload: parse(text) };
  } catch (error) {
    throw new Error(`The payload is no longer JSON: ${error.message}`);
  }
}

function Edit({ m, done }) {
  const text = payloadText(m) ?? '';
  const bytes = m.payload_base64 !== undefined;
  const before = m.headers ?? {};
  const submit = async (typed) => {
    const fields = {};
    const payload = asBefore(typed.payload, text);
    if (!bytes && payload !== text) Object.assign(fields, payloadOf(payload, m));
    const headers = headersOf(typed.headers, before);
    if (headers !== before) fields.headers = headers;
    if (Object.keys(fields).length) {
      const { undo } = await change('PATCH', undoable(m), fields);
      offer(`${m.id} is changed`, undo, { said: `${m.id} is as before`, done });
    }
    done();
  };
  return html`<${Form} title=${`Edit ${m.id}`} action="Save" submit=${submit}>
    ${bytes ? html`<p>The payload is not text. Edit it with <code>later edit ${m.queue} ${m.id}</code>.</p>` :
    html`<${Field} label="Payload"><textarea name="payload" rows="12" spellcheck="false" autofocus>
      ${text}</textarea><//>`}
    <${Field} label="Headers" hint="One a line: name=value"><textarea name="headers" rows="3" spellcheck="false">
      ${linesOf(before)}</textarea><//>
  <//>`;
}
