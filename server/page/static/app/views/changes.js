// The changes with their authors, and the operations of this server.
import { get, path, query, remove } from '../api.js';
import { plural } from '../format.js';
import { html } from '../html.js';
import { attempt, Confirm, Empty, Loaded, open, Table, Time, useLoad } from '../ui.js';
import { undoAll } from '../undo.js';
import { Link } from '../url.js';
import { may } from '../who.js';

export function Changes() {
  const loaded = useLoad((signal) => get(path('changes') + query({ limit: 200 }), { signal }), [], 3000);
  return html`<main>
    <${Operations} />
    <section class="card" aria-labelledby="changes-title">
      <h1 id="changes-title">Changes</h1>
      <${Loaded} of=${loaded}
        empty=${(data) => !data.items.length && html`<${Empty} title="Nothing was changed through a server.">
        The store keeps the last 1,000 changes; the logs of the servers have all of them.<//>`}>${(data) => html`
        <p class="faint">Through all servers of the store.</p>
        <${Table} label="Latest changes" head=${['Time', 'Who', 'What', 'Queue', 'Details', 'Undo']}>
          ${data.items.map((c) => html`<tr key=${c.id}>
            <td><${Time} at=${c.time} /></td><td>${c.who}</td><td>${c.what}</td>
            <td>${c.queue && html`<${Link} fresh to=${{ queue: c.queue }}>${c.queue}<//>`}</td>
            <td class="payload"><bdi>${detailsOf(c)}</bdi></td>
            <td><${Undo} c=${c} done=${loaded.reload} /></td>
          </tr>`)}<//>`}<//>
    </section>
  </main>`;
}

// detailsOf returns the objects of a change. The ids of operations say nothing to people.
function detailsOf({ attributes = {} }) {
  return Object.entries(attributes).filter(([name]) => name !== 'operation' && name !== 'undoes').map(([name, value]) =>
    `${name}=${typeof value === 'object' ? JSON.stringify(value) : value}`).join(' ');
}

// Undo is a button while a change can be undone, or who undid it.
function Undo({ c, done }) {
  if (c.undone) return html`<span class="faint">undone by ${c.undone.who} <${Time} at=${c.undone.time} /></span>`;
  if (!c.undo) return null;
  const { messages, until } = c.undo;
  const what = messages > 1 ? `Undo for ${plural(messages, 'message')}` : 'Undo';
  const submit = () => { undoAll([c.id], { said: messages ? undefined : 'Undone', done }); };
  const ask = () => open(Confirm, {
    title: `Undo "${c.what}"?`, action: what, submit,
    text: html`By ${c.who}${c.queue && ` in ${c.queue}`}, ${detailsOf(c)}. What has changed since is left as
      it is.`,
  });
  return html`<button onClick=${ask} aria-label=${`${what}… ${c.what} ${c.queue ?? ''}`}>${what}…</button>
    ${until && html` <span class="faint">until <${Time} at=${until} only="relative" /></span>`}`;
}

function Operations() {
  const loaded = useLoad((signal) => get(path('operations'), { signal }), [], 1000);
  const all = loaded.data?.items.filter((o) => !o.dry_run) ?? [];
  if (!all.length) return null;
  return html`<section class="card" aria-labelledby="operations-title">
    <h2 id="operations-title">Bulk changes</h2>
    <ul class="plain">${all.map((o) => html`<li class="row" key=${o.id}>
      <span class=${`badge ${o.state}`}>${o.state}</span> <strong>${o.action}</strong> <${Link} fresh
        to=${{ queue: o.queue }}>${o.queue}<//>
      <span>${plural(o.changed, 'message')} of ${o.matched}${o.skipped > 0 && `, ${o.skipped} skipped`}</span>
      <span class="faint">${o.by} <${Time} at=${o.started} /></span>
      ${o.state === 'running' &&
        html`<progress value=${o.changed + o.skipped} max=${Math.max(1, o.matched)} aria-label="Progress"></progress>
        ${may('operate') && html`<button
          onClick=${() => attempt('Told to stop', () => remove(path('operations', o.id))).then(loaded.reload)}>
            Stop</button>`}`}
      ${o.error && html`<span class="late">${o.error.detail}</span>`}
    </li>`)}</ul>
  </section>`;
}
