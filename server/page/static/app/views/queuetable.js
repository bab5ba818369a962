// All queues as a table that sorts by any column, from the overview that is pushed. Only rows in sight are drawn.
import { usePhone } from '../columns.js';
import { duration, millis, number, plural, short, visible } from '../format.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from '../html.js';
import { useKeys } from '../keys.js';
import { useLive } from '../live.js';
import { useSight } from '../sight.js';
import { Empty, Reading, Time } from '../ui.js';
import { go, Link, useUrl } from '../url.js';
import { Badges } from './badges.js';
import { Sparkline } from './queues.js';

const rowHeights = { list: 34, phone: 82 }; // pixels, as in style.css
const still = 5000; // milliseconds between sorts, so that rows can be read

const lateness = (q, field) => (q.lateness_samples > 0 ? millis(q[field]) : -1);

// columns have a name in the URL, a label, and the value by which they sort: numbers from the largest one at first.
const columns = [
  { name: 'queue', label: 'Queue', of: (q) => q.queue },
  { name: 'scheduled', label: 'Scheduled', of: (q) => q.scheduled },
  { name: 'ready', label: 'Ready', of: (q) => q.ready },
  { name: 'overdue', label: 'Overdue since', of: (q) => (q.oldest_due ? -Date.parse(q.oldest_due) : -Infinity) },
  { name: 'p50', label: 'Late p50', of: (q) => lateness(q, 'lateness_p50') },
  { name: 'p99', label: 'p99', of: (q) => lateness(q, 'lateness_p99') },
  { name: 'in', label: 'In/s', of: (q) => q.sent_per_second },
  { name: 'out', label: 'Out/s', of: (q) => q.handled_per_second },
  { name: 'failed', label: 'Failed/s', of: (q) => q.failed_per_second },
  { name: 'leased', label: 'Leased', of: (q) => q.leased },
  { name: 'dead', label: 'Dead', of: (q) => q.dead },
  { name: 'settings', label: 'Settings', of: (q) => (q.paused ? 4 : 0) + (q.flow ? 2 : 0) + (q.shards ? 1 : 0) },
];
const usual = '-overdue';

// orderOf returns the column and the direction of a parameter such as dead, or -dead for the largest first.
function orderOf(text = usual) {
  const down = text.startsWith('-');
  const column = columns.find((c) => c.name === text.slice(down ? 1 : 0));
  return column ? { column, down } : orderOf();
}

// sorted returns the names of queues in an order. Equal ones are sorted by name.
function sorted(queues, { column, down }) {
  const by = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const rows = queues.map((q) => [column.of(q), q.queue]);
  rows.sort(([a, x], [b, y]) => (down ? by(b, a) : by(a, b)) || by(x, y));
  return rows.map(([, name]) => name);
}

// useOrder returns the queues in an order that stays as it is while the pointer is on the table, and some seconds
// otherwise. New queues come last until then, and queues that are gone leave.
function useOrder(queues, sort, text, busy) {
  const kept = useRef({ names: [], at: 0 });
  const key = `${sort}\n${text}`;
  const now = Date.now();
  const byName = new Map(queues.map((q) => [q.queue, q]));
  if (kept.current.key !== key || (!busy && now - kept.current.at > still)) {
    kept.current = { key, at: now, names: sorted(queues, orderOf(sort)) };
  }
  const known = new Set(kept.current.names);
  kept.current.names = [...kept.current.names.filter((name) => byName.has(name)),
    ...queues.filter((q) => !known.has(q.queue)).map((q) => q.queue)];
  return kept.current.names.map((name) => byName.get(name));
}

export function QueueTable() {
  const { overview } = useLive();
  const params = useUrl();
  const [busy, setBusy] = useState(false);
  const text = (params.name ?? '').toLowerCase();
  const found = (overview?.queues ?? []).filter((q) => q.queue.toLowerCase().includes(text));
  const queues = useOrder(found, params.sort, text, busy);
  if (!overview) return html`<main><p class="empty" aria-busy="true">Loading…</p></main>`;
  const { queue_count: count, queues_left_out: leftOut } = overview;
  return html`<main><section class="card queuetable" aria-labelledby="queues-title">
    <header class="row"><h1 id="queues-title">Queues</h1>
      <span class="faint" role="status">${text && `${number(queues.length)} of `}${plural(count, 'queue')}</span>
      <span class="grow"></span>
      <${SortBy} sort=${params.sort} />
      <input id="queue-name" type="search" aria-label="Filter by name" placeholder="f filter by name" maxlength="128"
        value=${params.name ?? ''} onInput=${(event) => go({ name: event.target.value }, { replace: true })}
        onKeyDown=${(event) => event.key === 'Escape' && event.target.blur()} />
    </header>
    <${Reading} overview=${overview} />
    ${leftOut > 0 && html`<p class="faint">${plural(leftOut, 'queue')} of these left out: the server reads the first
      ${' '}${number(count - leftOut)} by name.</p>`}
    ${queues.length ? html`<${Rows} queues=${queues} sort=${params.sort} setBusy=${setBusy} />` :
      !overview.queues_read && html`<${Empty}
        title=${text ? 'No queue has this in its name.' : 'There are no queues yet.'} />`}
  </section></main>`;
}

// SortBy is the choice of a column where there is no room for the heads of columns.
function SortBy({ sort = usual }) {
  const { column, down } = orderOf(sort);
  return html`<span class="row sortby"><label>Sort by <select value=${column.name}
      onChange=${({ target: { value } }) => go({ sort: value === 'queue' ? value : `-${value}` }, { replace: true })}>
      ${columns.map((c) => html`<option value=${c.name} selected=${c === column}>${c.label}</option>`)}</select></label>
    <button aria-label="Other direction" onClick=${() => go({ sort: `${down ? '' : '-'}${column.name}` },
      { replace: true })}>${down ? '↓' : '↑'}</button></span>`;
}

function Head({ sort }) {
  const { column, down } = orderOf(sort);
  const turn = (c) => {
    const first = c.name === 'queue' ? '' : '-';
    const direction = c === column ? (down ? '' : '-') : first;
    go({ sort: direction + c.name }, { replace: true });
  };
  return html`<thead><tr>${columns.map((c) => html`<th scope="col" class=${`col-${c.name}`}
      aria-sort=${c === column ? (down ? 'descending' : 'ascending') : undefined}>
      <button class="plain" onClick=${() => turn(c)}>${c.label}
        <span aria-hidden="true">${c === column ? (down ? ' ↓' : ' ↑') : ''}</span></button></th>`)}
    <th scope="col" class="col-spark">5 min</th></tr></thead>`;
}

const show = (q) => go({ view: 'queue', queue: q.queue }, { base: {} });

// useDrawn returns the rows of some queues. A row that is the same as before is not drawn again.
function useDrawn(queues, chosen) {
  const drawn = useRef(new Map()); // by name
  const before = drawn.current;
  drawn.current = new Map();
  return queues.map((q) => {
    const current = q.queue === chosen;
    const known = before.get(q.queue);
    const one = known?.q === q && known.current === current ? known :
      { q, current, row: html`<${Row} key=${q.queue} q=${q} current=${current} />` };
    drawn.current.set(q.queue, one);
    return one.row;
  });
}

function Rows({ queues, sort, setBusy }) {
  const box = useRef();
  const [chosen, setChosen] = useState(); // the name of a queue
  const grab = useRef(false); // the keyboard, when the rows are drawn
  const height = usePhone() ? rowHeights.phone : rowHeights.list;
  const { first, to, measure, reveal } = useSight(box, queues.length, height);
  const rows = useDrawn(queues.slice(first, to), chosen);
  useEffect(() => { box.current.scrollTop = 0; }, [sort]);
  useLayoutEffect(() => {
    if (!grab.current) return;
    grab.current = false;
    box.current.querySelector('tr[tabindex="0"]')?.focus({ preventScroll: true });
  });
  const at = queues.findIndex((q) => q.queue === chosen);
  const move = (by) => {
    const next = Math.min(queues.length - 1, Math.max(0, at + by));
    setChosen(queues[next].queue);
    grab.current = true;
    reveal(next);
  };
  useKeys({
    j: ['next queue', () => move(1)],
    k: ['previous queue', () => move(-1)],
    Enter: ['open the queue', () => at >= 0 && show(queues[at])],
    f: ['filter by name', () => document.getElementById('queue-name').focus()],
  });
  const arrows = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by || !event.target.closest('tbody')) return;
    event.preventDefault();
    move(by);
  };
  const space = (n) => n > 0 && html`<tr aria-hidden="true" class="space">
    <td colspan=${columns.length + 1} style=${{ height: `${n * height}px` }}></td></tr>`;
  return html`<div class="rows queuerows" ref=${box} tabIndex="0" role="region" aria-label="All queues"
    onScroll=${measure} onKeyDown=${arrows}>
    <table aria-rowcount=${queues.length}><${Head} sort=${sort} /><tbody onPointerEnter=${() => setBusy(true)}
      onPointerLeave=${() => setBusy(false)} onfocusin=${() => setBusy(true)} onfocusout=${() => setBusy(false)}>
      ${space(first)}
      ${rows}
      ${space(queues.length - to)}
    </tbody></table></div>`;
}

// perSecond returns a rate in a few characters, also one of less than one a second.
const perSecond = (n) => (n >= 9.95 ? short(n) : n >= 0.05 ? n.toFixed(1) : n > 0 ? '<0.1' : '0');

function Row({ q, current }) {
  const count = (state) => html`<td class=${`number col-${state}`}>${q[state] > 0 ? html`<${Link} fresh tabIndex="-1"
    to=${{ queue: q.queue, state }} title=${`${number(q[state])} ${state}`}><span class=${`state ${state}`}>
    ${short(q[state])}<span class="hidden"> ${state}</span></span><//>` :
    html`<span class="faint">0<span class="hidden"> ${state}</span></span>`}</td>`;
  const late = (field, name) => html`<td class=${`number col-${name}`}>
    ${q.lateness_samples > 0 ? duration(millis(q[field])) : '–'}</td>`;
  const rate = (n, name, bad) => html`<td class=${`number col-${name}`}><span class=${bad && n > 0 ? 'late' : ''}>
    ${perSecond(n)}</span></td>`;
  return html`<tr tabIndex=${current ? 0 : -1} onClick=${(event) => event.target.closest('a, button') || show(q)}>
    <td class="col-queue" title=${visible(q.queue)}><${Link} fresh tabIndex="-1"
      to=${{ view: 'queue', queue: q.queue }}>${q.queue}<//></td>
    ${count('scheduled')}${count('ready')}
    <td class="col-overdue">${q.oldest_due ?
      html`<span class="late"><${Time} at=${q.oldest_due} only="relative" /></span>` : '–'}</td>
    ${late('lateness_p50', 'p50')}${late('lateness_p99', 'p99')}
    ${rate(q.sent_per_second, 'in')}${rate(q.handled_per_second, 'out')}${rate(q.failed_per_second, 'failed', true)}
    ${count('leased')}${count('dead')}
    <td class="col-settings"><${Badges} q=${q} /></td>
    <td class="col-spark"><${Sparkline} history=${q.history} /></td>
  </tr>`;
}
