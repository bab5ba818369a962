// The messages of one queue or of all, in a state, a range of time, and by search.
import { path, query, get } from '../api.js';
import { iso, local, plural, relative, short, visible } from '../format.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';
import { payloadText } from '../json.js';
import { useKeys } from '../keys.js';
import { useNow } from '../live.js';
import { orderOf, useRows } from '../rows.js';
import { hasGroup } from '../search.js';
import { Empty, Failure, Nav, open, useEvery, useLoad } from '../ui.js';
import { go, Link, useUrl } from '../url.js';
import { hidesPayloads, may } from '../who.js';
import { actionsOf, act } from './actions.js';
import { Bulk } from './bulk.js';
import { DeadErrors } from './dead.js';
import { MessagePanel } from './message.js';

const rowHeight = 34;
const maxSources = 50;

// sourcesOf returns the queues and states that a list reads. Without a queue it is those that have such messages. A
// group is listed whatever the states of its messages.
function sourcesOf(params, overview, states, group) {
  const of = (queue) => states.map((state) => ({ queue, state }));
  if (params.queue) return of(params.queue);
  return overview.queues.flatMap((q) => of(q.queue).filter((s) => group || q[s.state] > 0));
}

// stateOf returns the state that is shown: "pending" is scheduled and ready ones, for a range of due times.
function stateOf(params) {
  return params.state ?? (params.from || params.to ? 'pending' : 'scheduled');
}

export function Messages({ overview }) {
  const params = useUrl();
  const state = stateOf(params);
  const group = hasGroup(params.q);
  const filter = { q: params.q, due_after: params.from, due_before: params.to };
  const states = group ? [undefined] : state === 'pending' ? ['ready', 'scheduled'] : [state];
  const choice = JSON.stringify([params.queue, states, params.from, params.to, params.q]);
  const all = sourcesOf(params, overview, states, group);
  const sources = all.slice(0, maxSources);
  const counts = params.queue ? overview.queues.find((q) => q.queue === params.queue) ?? {} : overview.counts;
  return html`<section class=${params.message ? 'card messages split' : 'card messages'} aria-label="Messages">
    <div class="list">
      <${Tabs} state=${state} counts=${counts} />
      ${state === 'dead' && params.group === 'error' ? html`<${DeadErrors} overview=${overview} key=${choice} />` :
        html`
        ${all.length > maxSources &&
          html`<p class="faint">The list reads ${maxSources} queues; choose one for the messages of the others.</p>`}
        <${List} key=${choice} sources=${sources} filter=${filter} state=${state} counts=${counts}
          many=${!params.queue} />`}
    </div>
    ${params.message && html`<${MessagePanel} key=${`${params.mq}/${params.message}`} queue=${params.mq ?? params.queue}
      id=${params.message} />`}
  </section>`;
}

function Tabs({ state, counts }) {
  const params = useUrl();
  const ranged = params.from || params.to;
  const total = (counts.scheduled ?? 0) + (counts.ready ?? 0);
  const usual = ranged ? 'pending' : 'scheduled';
  const tab = (name, label, n) => html`<${Link} to=${{ state: name === usual ? undefined : name, group: undefined }}
    aria-current=${state === name ? 'true' : undefined}>
      <span class=${`state ${name}`}>${label}</span> <b>${short(n ?? 0)}</b><//>`;
  return html`<${Nav} label="State">
    ${ranged && tab('pending', 'scheduled + ready', total)}
    ${tab('scheduled', 'scheduled', counts.scheduled)}
    ${tab('ready', 'ready', counts.ready)}
    ${tab('leased', 'leased', counts.leased)}
    ${tab('dead', 'dead', counts.dead)}
    ${state === 'dead' && !hidesPayloads() && html`<span class="segmented" role="group" aria-label="Dead messages">
      <${Link} to=${{ group: undefined }} aria-current=${params.group ? undefined : 'true'}>each<//>
      <${Link} to=${{ group: 'error' }} aria-current=${params.group ? 'true' : undefined}>by error<//>
    </span>`}
  <//>`;
}

// InRange counts the messages of a range exactly.
function InRange({ queue, from, to }) {
  const loaded = useLoad((signal) => get(path('overview') + query({
    queue, from: from ?? iso(1), to: to ?? iso(Date.UTC(2199, 0)), buckets: 1 }), { signal }), [queue, from, to], 2000);
  const n = loaded.data?.bands[0]?.counts[0];
  return n !== undefined && html`<strong>${plural(n, 'message')} in the range</strong>`;
}

function List({ sources, filter, state, counts, many }) {
  const params = useUrl();
  const rows = useRows(sources, filter);
  const time = useNow();
  const box = useRef();
  const [view, setView] = useState({ top: 0, height: 600 });
  const [cursor, setCursor] = useState(-1);
  const [over, setOver] = useState(false);
  const grab = useRef(false);
  const searching = Boolean(params.q);
  useEffect(() => {
    if (sources.length && rows.began && !rows.count) rows.reload(); // the first queue
  }, [sources.length]);

  const first = Math.max(0, Math.floor(view.top / rowHeight) - 5);
  const to = Math.min(rows.count, Math.ceil((view.top + view.height) / rowHeight) + 5);
  useLayoutEffect(() => {
    const measure = () => setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => { if (rows.began) rows.see(first, to); });

  // New messages do not move the row that somebody points at.
  const total = state === 'pending' ? (counts.scheduled ?? 0) + (counts.ready ?? 0) : counts[state] ?? 0;
  const before = useRef(total);
  const busy = over || searching || view.top > 0 || box.current?.contains(document.activeElement);
  const reload = () => { before.current = total; rows.reload(); };
  useEvery(2000, () => { if (!busy && rows.began && !rows.busy) reload(); });
  const fresh = total - before.current;

  const move = (by) => {
    const next = Math.min(rows.count - 1, Math.max(0, cursor + by));
    setCursor(next);
    grab.current = true;
    const top = next * rowHeight;
    const el = box.current;
    if (top < el.scrollTop) el.scrollTop = top;
    else if (top + 2 * rowHeight > el.scrollTop + el.clientHeight) el.scrollTop = top + 2 * rowHeight - el.clientHeight;
    if (params.message && rows.row(next)) show(rows.row(next), true);
  };
  const show = (m, replace) => go({ message: m.id, mq: m.queue }, { replace });
  const current = rows.row(cursor);
  const on = (action) => () => current && actionsOf(current).includes(action) && act(action, current, rows.reload);
  useKeys({
    j: ['next message', () => move(1)],
    k: ['previous message', () => move(-1)],
    Enter: ['open the message', () => current && show(current)],
    r: ['run the message now, or replay it', () => (current?.state === 'dead' ? on('replay')() : on('run')())],
    s: ['reschedule the message', on('reschedule')],
    e: ['edit the message', on('edit')],
    x: ['cancel the message', on('cancel')],
    b: ['change all messages of the list', () => may('operate') && bulk()],
    '.': ['load the list again', reload],
    f: ['search the list', () => document.getElementById('search').focus()],
  });
  useLayoutEffect(() => {
    if (grab.current) {
      grab.current = false;
      box.current.querySelector('[data-cursor]')?.focus({ preventScroll: true });
    }
  });

  const columns = many ? 6 : 5;
  const bulk = () => open(Bulk, { sources, filter, state, done: reload });
  return html`<div class="row listhead">
      <${Search} />
      ${(params.from || params.to) && state === 'pending' && !params.q &&
        html`<${InRange} queue=${params.queue} from=${params.from} to=${params.to} />`}
      ${searching && html`<p class="counted"><span aria-live="polite">${plural(rows.count, 'message')} found
        ${rows.hasMore && ' so far'}, ${plural(rows.looked, 'message')} looked at</span>
        ${' '}<${Link} to=${{ q: undefined }}>clear the search<//></p>`}
      ${fresh !== 0 && busy && !searching &&
        html`<button onClick=${reload}>${fresh > 0 ? `${short(fresh)} new` : 'changed'}: show (.)</button>`}
      <span class="grow"></span>
      ${may('operate') && state !== 'leased' && sources.length > 0 &&
        html`<button onClick=${bulk}>Change all that match…</button>`}
    </div>
    <${Failure} error=${rows.error} retry=${rows.began ? rows.more : rows.reload} />
    <div class="rows" ref=${box} tabIndex="0" role="region" aria-label="List of messages"
      onScroll=${() => setView({ top: box.current.scrollTop, height: box.current.clientHeight })}
      onPointerEnter=${() => setOver(true)} onPointerLeave=${() => setOver(false)}>
      <table aria-rowcount=${rows.hasMore ? -1 : rows.count}>
        <${Head} state=${state} many=${many} />
        <tbody>
          ${first > 0 && html`<tr aria-hidden="true" class="space">
            <td colspan=${columns} style=${{ height: `${first * rowHeight}px` }}></td></tr>`}
          ${Array.from({ length: to - first }, (_, i) => first + i).map((i) => html`<${Row} key=${i} m=${rows.row(i)}
            state=${state} many=${many} current=${i === cursor} shown=${rows.row(i)?.id === params.message}
            show=${(m) => { setCursor(i); show(m); }} done=${rows.reload} time=${time} />`)}
          ${to < rows.count && html`<tr aria-hidden="true" class="space">
            <td colspan=${columns} style=${{ height: `${(rows.count - to) * rowHeight}px` }}></td></tr>`}
        </tbody>
      </table>
      ${rows.began && !rows.count && !rows.hasMore && html`<${None} state=${state} searching=${searching} />`}
      ${rows.busy && html`<p class="faint pad" aria-busy="true">Loading…</p>`}
      ${rows.stalled && html`<p class="pad">Looked at ${plural(rows.looked, 'message')} so far. <button
        onClick=${rows.more}>Look further</button></p>`}
    </div>`;
}

// Search asks for a text that the messages of the list are to match.
function Search() {
  const params = useUrl();
  const submit = (event) => {
    event.preventDefault();
    const q = new FormData(event.target).get('q').trim();
    event.target.querySelector('input').blur();
    go({ q, message: undefined, mq: undefined });
  };
  return html`<form role="search" aria-label="Search the list" onSubmit=${submit}>
    <input id="search" name="q" type="search" aria-label="Search the list" placeholder="f search the list"
      autocomplete="off" maxlength="4096" key=${params.q} defaultValue=${params.q ?? ''}
      onKeyDown=${(event) => event.key === 'Escape' && event.target.blur()} />
  </form>`;
}

function None({ state, searching }) {
  const { q } = useUrl();
  if (searching) {
    return html`<${Empty} title="Nothing matches.">
      <${Link} to=${{ find: q }}>Look in all queues and states<//><//>`;
  }
  const what = {
    pending: 'Nothing falls due in this range.', scheduled: 'Nothing is scheduled.',
    ready: 'Nothing waits for a worker.', leased: 'No worker holds a message.', dead: 'There are no dead messages.',
  };
  return html`<${Empty} title=${what[state]} />`;
}

function Head({ state, many }) {
  const time = { leased: 'Held until', dead: 'Died' }[state] ?? 'Due';
  return html`<thead><tr>
    <th scope="col" class="when">${time}</th>
    ${many && html`<th scope="col" class="queue">Queue</th>`}
    <th scope="col" class="id">Id</th>
    <th scope="col" class="tries">Failed</th>
    <th scope="col" class="payload">${state === 'dead' ? 'Error' : 'Payload'}</th>
    <th scope="col" class="act"><span class="hidden">Actions</span></th>
  </tr></thead>`;
}

function Row({ m, state, many, current, shown, show, done, time }) {
  if (!m) return html`<tr class="space"><td colspan=${many ? 6 : 5} style=${{ height: `${rowHeight}px` }}>…</td></tr>`;
  const at = Date.parse(state === 'leased' ? m.lease_deadline : orderOf(m)) || 0;
  const payload = hidesPayloads() ? 'hidden' :
    payloadText(m) ?? (m.payload_base64 ? 'bytes' : m.raw_base64 ? 'unreadable' : '');
  const text = state === 'dead' ? m.last_error || m.dead_reason : payload;
  return html`<tr class=${shown ? 'shown' : ''} data-cursor=${current ? '' : undefined} tabIndex=${current ? 0 : -1}
      onClick=${(event) => event.target.closest('button, a') || show(m)}>
    <td class="when" title=${at ? iso(at) : ''}>
      ${at ? html`${local(at, time)} <span class="faint">${relative(at, time)}</span>` : '–'}</td>
    ${many && html`<td class="queue">${m.queue}</td>`}
    <td class="id"><${Link} to=${{ message: m.id, mq: m.queue }} tabIndex="-1">${visible(m.id)}<//></td>
    <td class="tries">${m.attempts > 0 ? html`<span class="late">${m.attempts}</span>` : '0'}</td>
    <td class="payload"><bdi>${visible((text ?? '').slice(0, 300))}</bdi></td>
    <td class="act"><span>${actionsOf(m).slice(0, 3).map((name) => html`
      <button tabIndex=${current ? 0 : -1} onClick=${() => act(name, m, done)}>${name}</button> `)}</span></td>
  </tr>`;
}
