// The range that is selected at the horizon: how many messages fall due in it, and in which queues.
import { get, path, query } from '../api.js';
import { local, number, plural } from '../format.js';
import { html, useState } from '../html.js';
import { now } from '../live.js';
import { clearRange } from '../ranges.js';
import { Failure, useLoad } from '../ui.js';
import { Link, useUrl } from '../url.js';

const few = 8; // queues that are shown at first
const most = 200; // the limit of the server
const look = 5000; // ms between counts

export function Due() {
  const { from, to, queue } = useUrl();
  const [all, setAll] = useState(false);
  const asked = path('overview', 'queues') + query({ queue, from, to, limit: all ? most : few });
  const loaded = useLoad((signal) => get(asked, { signal }), [asked], look);
  const text = (at) => local(Date.parse(at), now(), Date.parse(at) % 60e3 !== 0);
  return html`<section class="range" aria-label="Selected range">
    <p class="row"><span>
      ${loaded.data && html`<strong>${plural(loaded.data.count, 'message')} in the range</strong>${' '}`}
      Selected: due ${from && `from ${text(from)}`} ${to && `before ${text(to)}`}</span>
      <button onClick=${clearRange}>Clear (Esc)</button></p>
    <${Failure} error=${loaded.error} retry=${loaded.reload} />
    ${loaded.data && !queue && html`<${Queues} of=${loaded.data} more=${!all && (() => setAll(true))} />`}
  </section>`;
}

function Queues({ of: { count, items, queue_count: known, left_out: leftOut }, more }) {
  const rest = known - items.length;
  const others = count - items.reduce((n, q) => n + q.count, 0);
  return html`<ul class="row due" aria-label="Queues of the range">
    ${items.map((q) => html`<li key=${q.queue}><${Link} to=${{ queue: q.queue, state: undefined, message: undefined }}>
      ${q.queue} <b>${number(q.count)}</b><//></li>`)}
    ${rest > 0 && html`<li>${more ? html`<button class="plain" onClick=${more}>
      and ${plural(rest, 'other queue')} with ${number(others)}</button>` :
      html`<span class="faint">and ${plural(rest, 'other queue')} with ${number(others)}</span>`}</li>`}
    ${leftOut > 0 && html`<li class="faint">${plural(leftOut, 'queue')} not counted</li>`}
  </ul>`;
}
