// Who changed what, and the operations of this server.
import { get, path, query, remove } from '../api.js';
import { plural } from '../format.js';
import { html } from '../html.js';
import { attempt, Empty, Loaded, Table, Time, useLoad } from '../ui.js';
import { Link } from '../url.js';
import { may } from '../who.js';

export function Changes() {
  const loaded = useLoad((signal) => get(path('changes') + query({ limit: 200 }), { signal }), [], 3000);
  return html`<main>
    <${Operations} />
    <section class="card" aria-labelledby="changes-title">
      <h1 id="changes-title">Changes</h1>
      <${Loaded} of=${loaded}
        empty=${(data) => !data.items.length && html`<${Empty} title="Nothing was changed through this server.">
        It remembers its last changes since it was started; its log has all of them.<//>`}>${(data) => html`
        <p class="faint">Through this server, since it was started <${Time} at=${data.since} />.</p>
        <${Table} label="Latest changes" head=${['Time', 'Who', 'What', 'Queue', 'Details']}>
          ${data.items.map((c) => html`<tr key=${c.id}>
            <td><${Time} at=${c.time} /></td><td>${c.who}</td><td>${c.what}</td>
            <td>${c.queue && html`<${Link} fresh to=${{ queue: c.queue }}>${c.queue}<//>`}</td>
            <td class="payload"><bdi>
              ${Object.entries(c.attributes ?? {}).map(([name, value]) =>
                `${name}=${typeof value === 'object' ? JSON.stringify(value) : value}`).join(' ')}</bdi></td>
          </tr>`)}<//>`}<//>
    </section>
  </main>`;
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
