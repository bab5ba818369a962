// One message: why it has not run, its payload, its history, and its actions.
import { get, path, query } from '../api.js';
import { canDuplicate, sendMessage } from '../dialogs.js';
import { duration, iso, millis, plural, timeZone, visible } from '../format.js';
import { html, useRef } from '../html.js';
import { useKeys } from '../keys.js';
import { textOptions } from '../options.js';
import { Payload } from '../payload.js';
import { word } from '../search.js';
import { copy, download, Empty, Facts, Panel, State, Time, Trouble, useLoad } from '../ui.js';
import { go, Link } from '../url.js';
import { hidesPayloads, may } from '../who.js';
import { act, actionsOf } from './actions.js';
import { asCommand, asCurl, asGo } from './commands.js';
import { Became } from './finished.js';
import { Timeline } from './timeline.js';

const titles = { run: 'Run now…', reschedule: 'Reschedule…', edit: 'Edit…', cancel: 'Cancel…', replay: 'Replay…' };

function leave() {
  go({ message: undefined, mq: undefined });
}

export function MessagePanel({ queue, id }) {
  const last = useRef(); // the latest reading of a message that is gone
  const loaded = useLoad(async (signal) => {
    const [m, why] = await Promise.all([
      get(path('queues', queue, 'messages', id), { signal }),
      get(path('queues', queue, 'messages', id, 'why') + query({ time_zone: timeZone }), { signal })
        .catch(() => undefined),
    ]);
    if (last.current?.m !== m || last.current.why !== why) last.current = { m, why };
    return last.current;
  }, [queue, id], 2000);
  useKeys({ Escape: ['close the message', leave] });
  const gone = loaded.error?.code === 'not_found';
  const m = loaded.data?.m;
  return html`<${Panel} mono title=${visible(id)} back=${leave}
    beside=${m && !gone && html`<${State} of=${m.state} />`}>
    ${gone ? html`<${Became} queue=${queue} id=${id}><${Empty} title="This message does not exist any more.">
        It was handled, cancelled or removed${last.current && ' while you looked at it'}. <${Link}
          to=${{ view: 'events', queue, id, message: undefined, mq: undefined }}>Watch its events<//>
      <//><//>` : html`<${Trouble} error=${loaded.error} retry=${loaded.reload} at=${loaded.at} />`}
    ${m && html`<${Message} m=${m} why=${gone ? undefined : loaded.data.why} gone=${gone} reload=${loaded.reload} />`}
    ${!m && !loaded.error && html`<p class="empty" aria-busy="true">Loading…</p>`}
  <//>`;
}

function Message({ m, why, gone, reload }) {
  const time = (at) => at &&
    html`<${Time} at=${at} /> <span class="faint utc">
      ${iso(Date.parse(at)).replace('T', ' ').replace('Z', ' UTC')}</span>`;
  const length = (text) => text && duration(millis(text));
  return html`
    ${why && html`<p class=${`why ${m.state}`}>${why.text}</p>`}
    ${!gone && html`<div class="row actions">
      ${actionsOf(m).map((action) =>
        html`<button class=${action === 'cancel' ? 'danger' : ''} onClick=${() => act(action, m, reload)}>
        ${titles[action]}</button>`)}
      ${canDuplicate(m) && html`<button onClick=${() => sendMessage({ like: m })}>Duplicate…</button>`}
      <${Copies} m=${m} />
    </div>`}
    <${Facts} of=${[
      ['Queue', html`<${Link} fresh to=${{ queue: m.queue }}>${m.queue}<//>`],
      ['Due', time(m.due)],
      ['Held until', time(m.lease_deadline)],
      ['Died', time(m.died_at)],
      ['Dead because', m.dead_reason],
      ['Attempts', `${plural(m.attempts, 'failed attempt')} of ${m.max_attempts}`],
      ['Sent', time(m.sent_at)],
      ['Expires', time(m.expire_at) || (m.expire_after && `${length(m.expire_after)} after it is due`)],
      ['Timeout', length(m.timeout)],
      ['Dedup window', length(m.dedup_window)],
      ['Group', m.group && html`<${Link}
        to=${{ q: word('group', m.group), queue: m.queue, from: undefined, to: undefined }}>${m.group}<//>`],
      ...textOptions.filter((o) => o.name !== 'group').map((o) => [o.label, m[o.name]]),
      ['Follows', m.follows && 'an earlier message, which a worker holds'],
    ]} />
    ${!gone && html`<${Timeline} m=${m} why=${why} />`}
    ${m.last_error && !m.failures?.length &&
      html`<section><h3>Last error</h3><pre tabIndex="0" dir="auto">${m.last_error}</pre></section>`}
    ${m.headers && html`<section aria-labelledby="headers-title"><h3 id="headers-title">Headers</h3>
      <${Facts} of=${Object.entries(m.headers).map(([name, value]) => [name, html`<bdi>${value}</bdi>`])} /></section>`}
    ${hidesPayloads() ? html`<p class="faint">Your role does not show payloads, headers and errors.</p>` :
      html`<${Payload} m=${m} />`}`;
}

function Copies({ m }) {
  const shut = (event) => event.currentTarget.closest('details').removeAttribute('open');
  const item = (label, text) =>
    html`<button onClick=${(event) => { shut(event); copy(text(m), label); }}>${label}</button>`;
  return html`<details class="menu"><summary class="button">Copy as</summary><div>
    ${item('a link', () => location.href)}
    ${!hidesPayloads() && html`
      ${may('send') && item('curl command', asCurl)}
      ${may('send') && item('later command', asCommand)}
      ${may('send') && item('Go code', asGo)}
      ${item('JSON', () => JSON.stringify(m, null, 2))}
      <button onClick=${(event) => { shut(event); download(`${m.queue}-${m.id}.json`, JSON.stringify(m, null, 2)); }}>
        Download JSON</button>`}
  </div></details>`;
}
