// Messages that have finished, as far as the server has kept their outcomes.
import { get, path, query } from '../api.js';
import { duration, exact, iso, local, millis, number, plural } from '../format.js';
import { html, useState } from '../html.js';
import { now } from '../live.js';
import { Empty, Loaded, Table, Time, useLoad } from '../ui.js';
import { go, Link, useUrl } from '../url.js';
import { useKeeps } from './finishedtab.js';
import { Steps } from './timeline.js';

const bad = new Set(['buried', 'expired', 'died', 'dropped']);
const outcomes = ['acked', 'forwarded', 'buried', 'expired', 'died', 'dropped', 'cancelled', 'purged'];

const processOf = (p) => p && `${p.name || 'process'} ${p.pid}${p.host ? ` on ${p.host}` : ''}`;

function detailsOf(f) {
  return [
    f.count > 0 && plural(f.count, 'message'),
    f.attempt > 1 && `attempt ${f.attempt}`,
    f.lateness && `${duration(millis(f.lateness))} late`,
    f.duration && `took ${duration(millis(f.duration))}`,
    f.error,
  ].filter(Boolean).join(' · ');
}

export function Finished({ queue }) {
  const params = useUrl();
  const [cursor, setCursor] = useState();
  const { id, outcome } = params;
  const from = path('queues', queue, 'finished') + query({ id, outcome, cursor });
  const loaded = useLoad((signal) => get(from, { signal }),
    [queue, id, outcome, cursor], cursor ? 0 : 2000);
  const set = (name) => (event) => {
    setCursor(undefined);
    go({ [name]: event.target.value || undefined }, { replace: true });
  };
  return html`
    <div class="row filters">
      <label>Outcome <select value=${outcome ?? ''} onChange=${set('outcome')}>
        <option value="">all</option>${outcomes.map((name) => html`<option value=${name}>${name}</option>`)}
      </select></label>
      <label>Id <input value=${id ?? ''} onInput=${set('id')} placeholder="all" maxlength="128" /></label>
    </div>
    <${Loaded} of=${loaded}>${(page) => html`
      <${Kept} page=${page} />
      ${!page.items.length && html`<${Empty} title=${id || outcome || cursor ? 'Nothing matches.' :
        'Nothing has finished since the server began to look.'} />`}
      ${page.items.length > 0 && html`<${Table} tall class="events" label="Finished messages"
        head=${['Time', 'Outcome', 'Id', 'Details', 'Process']}>
        ${page.items.map((f, i) => html`
          <${Row} key=${`${f.time} ${f.id} ${i}`} f=${f} shown=${f.id === params.message} />`)}
      <//>`}
      <p class="row">${cursor && html`<button onClick=${() => setCursor(undefined)}>Latest</button>`}
        ${page.next && html`<button onClick=${() => setCursor(page.next)}>Earlier</button>`}</p>`}<//>`;
}

// Kept describes the list, and its gaps.
function Kept({ page }) {
  const missed = [page.missed > 0 && `${plural(page.missed, 'event')} missed`,
    page.gaps > 0 && `the store was not connected ${plural(page.gaps, 'time')}`].filter(Boolean).join(', ');
  const limits = `the last ${number(page.max_count)} for ${duration(millis(page.max_age))}`;
  return html`<p class="faint">This server keeps ${limits}, in its memory: ${plural(page.kept, 'message')}
    ${page.since && html` since <${Time} at=${page.since} />`}.
    ${missed && html` <strong class="late">Some are missing: ${missed}.</strong>`}</p>`;
}

function Row({ f, shown }) {
  const at = Date.parse(f.time);
  return html`<tr class=${shown ? 'shown' : ''}>
    <td title=${iso(at)}>${exact(at, now())}</td>
    <td><span class=${bad.has(f.outcome) ? 'kind bad' : 'kind'}>${f.outcome}</span></td>
    <td class="id">${f.id && html`<${Link} to=${{ message: f.id, mq: f.queue }}>${f.id}<//>`}</td>
    <td class="payload"><bdi>${detailsOf(f)}</bdi></td>
    <td class="faint">${processOf(f.process)}</td>
  </tr>`;
}

// sentence returns the outcome of a message, such as "acked 14:03:22 by mailer 4711 on web-1 after 12 ms".
function sentence(f) {
  return [f.outcome, local(Date.parse(f.time), now()), f.process && `by ${processOf(f.process)}`,
    f.duration && `after ${duration(millis(f.duration))}`].filter(Boolean).join(' ');
}

// Became shows the outcome of a message that does not exist any more.
export function Became({ queue, id, children }) {
  const kept = useKeeps(queue);
  const loaded = useLoad((signal) => (
    kept ? get(path('queues', queue, 'finished', id), { signal }).catch(() => null) : Promise.resolve(null)),
  [queue, id, kept]);
  if (loaded.data === undefined) return html`<p class="empty" aria-busy="true">Loading…</p>`;
  const [last, ...earlier] = loaded.data?.items ?? [];
  if (!last) return children;
  return html`<p class="why">This message was ${sentence(last)}.</p>
    <section aria-labelledby="became-title"><h3 id="became-title">Timeline</h3>
      <${Steps} past=${stepsOf([...earlier].reverse(), last)} />
      <p class="faint">From the live events that this server has seen; it has no payloads of finished messages.</p>
    </section>`;
}

// stepsOf returns the steps of the outcomes that are kept, the oldest first. Their times can be of several clocks.
function stepsOf(earlier, last) {
  const at = (text) => Date.parse(text);
  const ends = [...earlier, last];
  const steps = [];
  let before = -Infinity;
  for (const f of ends) {
    if (at(f.sent_at) > before) steps.push({ at: at(f.sent_at), what: 'Sent' }); // not by a replay
    before = at(f.time);
    if (f.due) steps.push({ at: at(f.due), what: 'Fell due' });
    const { error, ...rest } = f;
    const process = processOf(f.process);
    steps.push({ at: at(f.time), bad: bad.has(f.outcome), what: f.outcome[0].toUpperCase() + f.outcome.slice(1), error,
      detail: `${process ? ` by ${process}` : ''}${detailsOf(rest) && ` · ${detailsOf(rest)}`}` });
  }
  return steps;
}
