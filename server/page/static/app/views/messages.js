// The messages of one queue or of all, in a state, a range of time, and by search.
import { Head, pick, usePhone, widen, widthsOf } from '../columns.js';
import { Bulk, sendMessage } from '../dialogs.js';
import { iso, local, plural, relative, short, visible } from '../format.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';
import { payloadText } from '../json.js';
import { useKeys } from '../keys.js';
import { live, now, useNow } from '../live.js';
import { orderOf, useRows } from '../rows.js';
import { hasGroup } from '../search.js';
import { keyOf, rowOf, selectable, useSelection } from '../selection.js';
import { useSight } from '../sight.js';
import { Empty, lazy, narrow, Nav, open, Trouble, useEvery } from '../ui.js';
import { go, Link, useUrl } from '../url.js';
import { hidesPayloads, may, useServer } from '../who.js';
import { actionsOf, act } from './actions.js';
import { FinishedTab, useKeeps } from './finishedtab.js';
import { Selected } from './selected.js';

const Finished = lazy(() => import('./finished.js').then((m) => m.Finished));
const MessagePanel = lazy(() => import('./message.js').then((m) => m.MessagePanel));
const DeadErrors = lazy(() => import('./dead.js').then((m) => m.DeadErrors));
const rowHeights = { list: 34, phone: 60 }; // pixels, as in style.css
const bytesPerMs = 0.7; // of a list that is read again and again
const nearby = 500; // rows before and after a place where the message of the cursor is looked for
const mostBulk = 50; // queues and states that one change of all messages is of

// sourcesOf returns the queues and states of the messages of a list. Without a queue these are all that have such
// messages. A group is listed whatever the states of its messages.
function sourcesOf(params, overview, states, group) {
  const of = (queue) => states.map((state) => ({ queue, state }));
  if (params.queue) return of(params.queue);
  return overview.queues.flatMap((q) => of(q.queue).filter((s) => group || q[s.state] > 0));
}

// stateOf returns the state that is shown: "pending" is scheduled and ready ones, for a range of due times.
function stateOf(params, keepsFinished) {
  if (params.state === 'finished' && !keepsFinished) return 'scheduled'; // it was of a queue that was left
  return params.state ?? (params.from || params.to ? 'pending' : 'scheduled');
}

export function Messages({ overview }) {
  const params = useUrl();
  const state = stateOf(params, useKeeps(params.queue));
  const group = hasGroup(params.q);
  const filter = { q: params.q, due_after: params.from, due_before: params.to };
  const ahead = params.from && Date.parse(params.from) > now(); // ready messages are due already
  const pending = ahead ? ['scheduled'] : ['ready', 'scheduled'];
  const states = group ? [undefined] : state === 'pending' ? pending : [state];
  const choice = JSON.stringify([params.queue, states, params.from, params.to, params.q]);
  const sources = sourcesOf(params, overview, states, group);
  const list = { ...filter, queue: params.queue, ...states.length > 1 ? { states } : { state: states[0] } };
  const none = overview.queues_read ? undefined : {}; // not known yet
  const counts = params.queue ? overview.queues.find((q) => q.queue === params.queue) ?? none :
    overview.queues_read ? undefined : overview.counts;
  return html`<section class=${params.message ? 'card messages split' : 'card messages'} aria-label="Messages">
    <div class="list">
      <${Tabs} state=${state} counts=${counts} />
      ${state === 'finished' ? html`<${Finished} queue=${params.queue} key=${params.queue} />` :
        state === 'dead' && params.group === 'error' ? html`<${DeadErrors} overview=${overview} key=${choice} />` :
        html`
        <${List} key=${choice} sources=${sources} filter=${filter} list=${list} state=${state} counts=${counts}
          many=${!params.queue} queues=${overview.queues} />`}
    </div>
    ${params.message && html`<${MessagePanel} key=${`${params.mq}/${params.message}`} queue=${params.mq ?? params.queue}
      id=${params.message} />`}
  </section>`;
}

// Tabs are the states. The counts are undefined while the queues are read.
function Tabs({ state, counts }) {
  const params = useUrl();
  const ranged = params.from || params.to;
  const usual = ranged ? 'pending' : 'scheduled';
  const tab = (name, label, n) => html`<${Link} to=${{ state: name === usual ? undefined : name, group: undefined }}
    aria-current=${state === name ? 'true' : undefined}>
      <span class=${`state ${name}`}>${label}</span>${n !== undefined && html` <b>${short(n)}</b>`}<//>`;
  return html`<${Nav} label="State">
    ${ranged && tab('pending', 'in the range')}
    ${tab('scheduled', 'scheduled', counts && (counts.scheduled ?? 0))}
    ${tab('ready', 'ready', counts && (counts.ready ?? 0))}
    ${tab('leased', 'leased', counts && (counts.leased ?? 0))}
    ${tab('dead', 'dead', counts && (counts.dead ?? 0))}
    <${FinishedTab} />
    ${state === 'dead' && !hidesPayloads() && html`<span class="segmented" role="group" aria-label="Dead messages">
      <${Link} to=${{ group: undefined }} aria-current=${params.group ? undefined : 'true'}>each<//>
      <${Link} to=${{ group: 'error' }} aria-current=${params.group ? 'true' : undefined}>by error<//>
    </span>`}
  <//>`;
}

function List({ sources, filter, list, state, counts, many, queues }) {
  const params = useUrl();
  const rows = useRows(list);
  const time = useNow();
  const box = useRef();
  const phone = usePhone();
  const rowHeight = phone ? rowHeights.phone : rowHeights.list;
  const needed = useRef({}); // by the columns
  const [over, setOver] = useState(false);
  const selection = useSelection(rows);
  const picks = may('operate') && state !== 'leased';
  const searching = Boolean(params.q);
  const { first, to, top, width, measure, reveal } = useSight(box, rows.count, rowHeight);
  useEffect(() => { if (rows.began) rows.see(first, to); });

  // New messages do not move the row under the pointer.
  const of = (name) => counts[name] ?? 0;
  const total = counts && (state === 'pending' ? of('scheduled') + of('ready') : of(state));
  const before = useRef();
  before.current ??= total;
  const busy = over || searching || top > 0 || box.current?.contains(document.activeElement);
  const reload = () => { before.current = total; return rows.refresh(busy ? rows.count : to); };
  useRefresh(many ? queues : queues.filter((q) => q.queue === params.queue), rows, busy, reload);
  const fresh = counts ? total - before.current : 0;
  const changeable = may('operate') && counts && sources.length <= mostBulk;
  const server = useServer();
  useEffect(() => { if (rows.error) reload(); }, [server]); // after a login

  const cursor = useCursor(rows, box, reveal);
  const { at } = cursor;
  const move = (by) => {
    const m = cursor.move(by);
    if (params.message && m) show(m, true);
  };
  const show = (m, replace) => go({ message: m.id, mq: m.queue }, { replace });
  const current = at >= 0 ? rows.row(at) : undefined;
  const on = (action) => () => current && actionsOf(current).includes(action) && act(action, current, reload);
  useKeys({
    j: ['next message', () => move(1)],
    k: ['previous message', () => move(-1)],
    Enter: ['open the message', () => current && show(current)],
    r: ['run the message now, or replay it, after asking', on(current?.state === 'dead' ? 'replay' : 'run')],
    s: ['reschedule the message', on('reschedule')],
    e: ['edit the message', on('edit')],
    x: ['cancel the message', on('cancel')],
    b: ['change all messages of the list', () => changeable && bulk()],
    '.': ['load the list again', reload],
    ...picks && current && { // else Space scrolls
      Space: ['select the message', () => selection.toggle(current, at)],
      'Shift Space': ['select all from the last selected to this one', () => selection.toggle(current, at, true)],
    },
    ...selection.count > 0 && { Escape: ['clear the selection', selection.clear] },
    f: ['search the list', () => document.getElementById('search').focus()],
  });

  const split = Boolean(params.message);
  const columns = (picks ? 1 : 0) + (split ? 3 : 4 + (many ? 1 : 0) + (narrow.matches ? 0 : 1)); // that are seen
  const shown = withKeys(Array.from({ length: to - first }, (_, i) => ({ i: first + i, m: rows.row(first + i) })));
  for (const { m } of shown) if (m) widen(needed.current, textsOf(m, state, time));
  const room = width - (picks ? pick : 0);
  const widths = !phone && width ? widthsOf(needed.current, room, many, split) : undefined;
  const bulk = () => open(Bulk, { sources, filter, state, done: reload });
  return html`<div class="listtop"><div class="row listhead" inert=${selection.count > 0}>
      <${Search} />
      ${searching && html`<p class="counted"><span aria-live="polite">${plural(rows.count, 'message')} found
        ${rows.hasMore && ' so far'}, ${plural(rows.looked, 'message')} looked at</span>
        ${' '}<${Link} to=${{ q: undefined }}>clear the search<//></p>`}
      ${fresh !== 0 && busy && !searching &&
        html`<button onClick=${reload}>${fresh > 0 ? `${short(fresh)} new` : 'changed'}: show (.)</button>`}
      <span class="grow"></span>
      ${may('send') && html`<button onClick=${() => sendMessage({ queue: params.queue })}>New message…</button>`}
      ${may('operate') && state !== 'leased' && sources.length > 0 && html`<button onClick=${bulk}
        disabled=${!changeable} title=${changeable ? undefined : counts ? tooMany(sources.length) : unread}>
        Change all that match…</button>`}
      </div>
      ${selection.count > 0 && html`<${Selected} selection=${selection} done=${reload} />`}
    </div>
    <${Trouble} error=${rows.error} retry=${reload} at=${rows.at} />
    <div class=${picks ? 'rows picks' : 'rows'} ref=${box} tabIndex="0" role="region" aria-label="List of messages"
      onScroll=${measure}
      onPointerEnter=${() => setOver(true)} onPointerLeave=${() => setOver(false)}>
      <table aria-rowcount=${rows.hasMore ? -1 : rows.count}>
        <${Head} state=${state} many=${many} widths=${widths} picks=${picks} />
        <tbody>
          ${first > 0 && html`<tr aria-hidden="true" class="space">
            <td colspan=${columns} style=${{ height: `${first * rowHeight}px` }}></td></tr>`}
          ${shown.map(({ i, m, key }) => html`<${Row} key=${key} m=${m} height=${rowHeight} columns=${columns}
            selected=${m && selection.has(m)} pick=${picks && ((shift) => selection.toggle(m, i, shift))}
            state=${state} many=${many} current=${i === at} shown=${m && isShown(m, params)}
            show=${(one) => { cursor.put(i); show(one); }} done=${reload} time=${time} />`)}
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

// useCursor returns the row of the message that keys act on, which stays the same while rows move, or -1, and functions
// that put the cursor on a row, or move it with the keyboard and return its message.
function useCursor(rows, box, reveal) {
  const [key, setKey] = useState(); // of the message
  const place = useRef(0); // where it was seen last
  const grab = useRef(false);
  const at = rowOf(rows, key, place.current, nearby);
  if (at >= 0) place.current = at;
  const put = (i) => {
    place.current = i;
    setKey(rows.row(i) && keyOf(rows.row(i)));
  };
  const move = (by) => {
    const from = at >= 0 ? at + by : place.current + Math.min(by, 0); // a message that went away has left its place
    const next = Math.min(rows.count - 1, Math.max(0, from));
    put(next);
    grab.current = true;
    reveal(next);
    return rows.row(next);
  };
  const focused = document.activeElement?.matches('[data-cursor]'); // which a row that moves would lose
  useLayoutEffect(() => {
    if (grab.current || focused) {
      grab.current = false;
      box.current.querySelector('[data-cursor]')?.focus({ preventScroll: true });
    }
  });
  return { at, put, move };
}

// hasMoved reports whether messages of a queue have changed between two of its overviews. Edited and rescheduled ones
// are events, and change no count.
function hasMoved(before, after) {
  return ['queue', 'scheduled', 'ready', 'leased', 'dead', 'next_due', 'events'].some((f) => before[f] !== after[f]);
}

const unread = 'Not before all queues are read';
const tooMany = (n) =>
  `Choose a queue: the messages are in ${n} queues and states, and one change has ${mostBulk} at most`;

// useRefresh reads the list again when one of its queues has changed, and not more often than its size allows, so that
// a list in a forgotten tab costs little.
function useRefresh(queues, rows, busy, reload) {
  const seen = useRef(queues);
  const at = useRef(0);
  useEvery(500, () => {
    const pause = Math.max(2000, rows.bytes / bytesPerMs);
    const moved = queues.length !== seen.current.length || queues.some((q, i) => hasMoved(seen.current[i], q));
    const down = rows.error && !(rows.error.status >= 400 && rows.error.status < 500);
    const back = down && live.connected && !live.problem; // the store answers again, perhaps
    const quiet = busy || !moved || rows.busy || !rows.began;
    if (rows.refreshing() || (quiet && !back) || Date.now() - at.current < pause) return;
    seen.current = queues;
    at.current = Date.now();
    reload();
  });
}

// isShown reports whether the panel beside the list has a message. Other queues may have its id.
const isShown = (m, { message, mq, queue }) => m.id === message && m.queue === (mq ?? queue);

// withKeys gives each row the key of its message, so that the focus stays with the message when rows move. One that is
// listed twice, because it moved while pages were read, has it once.
function withKeys(shown) {
  const used = new Set();
  return shown.map(({ i, m }) => {
    const key = m && !used.has(keyOf(m)) ? keyOf(m) : i;
    used.add(key);
    return { i, m, key };
  });
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

// timeOf returns the time of a message that its state is about, or 0.
function timeOf(m, state) {
  return Date.parse(state === 'leased' ? m.lease_deadline : orderOf(m)) || 0;
}

// textsOf returns the texts of the columns for a message.
function textsOf(m, state, time) {
  const at = timeOf(m, state);
  const payload = hidesPayloads() ? 'hidden' :
    payloadText(m) ?? (m.payload_base64 ? 'bytes' : m.raw_base64 ? 'unreadable' : '');
  const text = (state === 'dead' ? m.last_error || m.dead_reason : payload) ?? '';
  return { when: at ? `${local(at, time)} ${relative(at, time)}` : '–', queue: m.queue, id: visible(m.id),
    text: visible(text.slice(0, 300)) };
}

function Row({ m, state, many, current, shown, show, done, time, height, columns, selected, pick: toggle }) {
  if (!m) return html`<tr class="space"><td colspan=${columns} style=${{ height: `${height}px` }}>…</td></tr>`;
  const at = timeOf(m, state);
  const { id, text } = textsOf(m, state, time);
  return html`<tr class=${[shown && 'shown', selected && 'picked'].filter(Boolean).join(' ')}
      data-cursor=${current ? '' : undefined} tabIndex=${current ? 0 : -1}
      onClick=${(event) => event.target.closest('button, a, .pick') || show(m)}>
    ${toggle && html`<td class="pick"><label><input type="checkbox" checked=${selected} disabled=${!selectable(m)}
      tabIndex=${current ? 0 : -1} onClick=${(event) => toggle(event.shiftKey)} /><span class="hidden">
      Select ${id}</span></label></td>`}
    <td class="when" title=${at ? iso(at) : ''}>
      ${at ? html`${local(at, time)} <span class="faint">${relative(at, time)}</span>` : '–'}</td>
    ${many && html`<td class="queue">${m.queue}</td>`}
    <td class="id" title=${id}><${Link} to=${{ message: m.id, mq: m.queue }} tabIndex="-1">${id}<//></td>
    <td class=${m.attempts > 0 ? 'tries number' : 'tries number none'}>
      ${m.attempts > 0 ? html`<span class="late">${m.attempts}</span>` : '0'}<span class="unit"> failed</span></td>
    <td class="payload"><bdi>${text}</bdi></td>
    <td class="act"><span>${actionsOf(m).slice(0, 3).map((name) => html`
      <button tabIndex=${current ? 0 : -1} onClick=${() => act(name, m, done)}>${name}</button> `)}</span></td>
  </tr>`;
}
