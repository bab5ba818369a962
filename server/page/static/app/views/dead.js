// Dead messages of all queues by error: how many, where, when in the last day, and replaying or cancelling those with
// one error.
import { get, path, query } from '../api.js';
import { Bulk } from '../dialogs.js';
import { clockOf, number, plural, short } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { word } from '../search.js';
import { Empty, Failure, open, Time } from '../ui.js';
import { Link, useUrl } from '../url.js';
import { may } from '../who.js';

const look = { first: 2500, more: 10_000 }; // messages that a request looks at
const shownQueues = 4;
const hour = 3600e3;
const orders = {
  count: ['most', (a, b) => b.count - a.count || a.pattern.localeCompare(b.pattern)],
  last: ['latest', (a, b) => Date.parse(b.last) - Date.parse(a.last)],
};

const none = { groups: new Map(), looked: 0 };

// merged returns two groups of the same error as one.
function merged(a, b) {
  if (!a) return b;
  const counts = new Map(a.queues.map(({ queue, count }) => [queue, count]));
  for (const { queue, count } of b.queues) counts.set(queue, (counts.get(queue) ?? 0) + count);
  const latest = Date.parse(a.last) > Date.parse(b.last) ? a : b;
  return { ...latest, count: a.count + b.count, first: Date.parse(a.first) < Date.parse(b.first) ? a.first : b.first,
    queues: [...counts].map(([queue, count]) => ({ queue, count })).sort((x, y) => y.count - x.count),
    hours: a.hours.map((n, i) => n + b.hours[i]) };
}

export function DeadErrors() {
  const { queue } = useUrl();
  const [state, setState] = useState({ ...none, busy: true });
  const [order, setOrder] = useState('count');
  const [turn, setTurn] = useState(0);

  useEffect(() => {
    const abort = new AbortController();
    const { groups: before, looked, next: cursor } = state;
    const request = query({ queue, cursor, look: cursor ? look.more : look.first });
    get(path('dead-errors') + request, { signal: abort.signal }).then((page) => {
      const groups = new Map(before);
      page.items.forEach((g) => groups.set(g.pattern, merged(groups.get(g.pattern), g)));
      setState({ ...page, groups, looked: looked + page.looked });
    }, (error) => abort.signal.aborted || setState((s) => ({ ...s, busy: false, error })));
    return () => abort.abort();
  }, [turn]);
  const read = (from) => {
    setState({ ...from, busy: true, error: undefined });
    setTurn((n) => n + 1);
  };
  const again = () => read(none);

  const groups = [...state.groups.values()].sort(orders[order][1]);
  return html`<${Failure} error=${state.error} retry=${() => read(state)} />
    <div class="row listhead">
      <${Looked} of=${state} kinds=${groups.length} />
      ${state.next && !state.busy && html`<button onClick=${() => read(state)}>Look further</button>`}
      <span class="grow"></span>
      <span class="segmented" role="group" aria-label="Order">${Object.entries(orders).map(([name, [label]]) => html`
        <button aria-pressed=${name === order} onClick=${() => setOrder(name)}>${label}</button>`)}</span>
      <button onClick=${again}>Refresh</button>
    </div>
    ${!groups.length && !state.busy && !state.error && !state.next &&
      html`<${Empty} title="There are no dead messages." />`}
    <ul class="errors">${groups.map((g) => html`<${Group} key=${g.pattern} g=${g} from=${state.hours_from}
      part=${!state.hours_complete} done=${again} />`)}</ul>`;
}

// Looked says how many messages were looked at.
function Looked({ of: state, kinds }) {
  if (state.dead === undefined) return html`<span aria-live="polite" aria-busy=${Boolean(state.busy)}>Looking…</span>`;
  const all = state.looked >= state.dead;
  return html`<span aria-live="polite">${plural(kinds, 'kind')} of errors in
    ${all ? ` ${plural(state.looked, 'dead message')}` :
    ` ${number(state.looked)} of ${plural(state.dead, 'dead message')}, those of the last 24 h first`}
    ${state.left_out > 0 && `; ${plural(state.left_out, 'queue')} cannot be read`}</span>`;
}

function Group({ g, from, part, done }) {
  const change = (first) => () => open(Bulk, { sources: g.queues.map(({ queue }) => ({ queue, state: 'dead' })),
    filter: { error_pattern: g.pattern }, state: 'dead', first, done });
  const only = g.queues.length === 1 ? g.queues[0].queue : undefined;
  const more = g.queues.length - shownQueues;
  const link = (queue) => ({ group: undefined, queue, q: word('pattern', g.pattern) });
  return html`<li>
    <div class="row"><${Link} class="what" to=${link(only)} title="Show these messages">
      <strong>${short(g.count)}</strong> <bdi>${g.pattern}</bdi><//>
      <${Trend} hours=${g.hours} from=${Date.parse(from)} part=${part} /></div>
    <p class="faint">${g.queues.slice(0, shownQueues).map(({ queue, count }, i) => html`${i > 0 && ', '}
      <${Link} to=${link(queue)}>${queue}<//>${!only && ` ${short(count)}`}`)}
      ${more > 0 && ` and ${plural(more, 'more queue')}`}
      ${' '}· first <${Time} at=${g.first} /> · last <${Time} at=${g.last} /></p>
    ${g.error && g.error !== g.pattern && html`<p class="faint example">such as <${Link}
      to=${{ message: g.example_id, mq: g.example_queue }}>${g.example_id}<//>:
      ${' '}<bdi>${g.error}</bdi></p>`}
    ${may('operate') && html`<p class="row"><button onClick=${change('replay')}>Replay…</button>
      <button class="danger" onClick=${change('cancel')}>Cancel…</button></p>`}
  </li>`;
}

// Trend draws how many died in each of the last 24 hours. part says that not all of them were looked at yet.
function Trend({ hours, from, part }) {
  const sum = hours.reduce((a, b) => a + b, 0);
  const most = Math.max(...hours);
  const of = (i) => `${clockOf(from + i * hour, hour / 2)}–${clockOf(from + (i + 1) * hour, hour / 2)}`;
  const least = part ? 'at least ' : '';
  if (!sum) return html`<span class="faint">${part ? 'last 24 h: not looked at yet' : 'none in the last 24 h'}</span>`;
  const text = `${least}${plural(sum, 'death')} in the last 24 h, most ${of(hours.indexOf(most))}: ${number(most)}; ` +
    `in the last hour that began: ${number(hours.at(-1))}`;
  return html`<span class="row"><svg class="trend" viewBox="0 0 96 20" role="img" aria-label=${text}>
      <path class="base" d="M0 19.5H96" />
      ${hours.map((n, i) => n > 0 && html`<rect key=${i} x=${i * 4} y=${19 - Math.max(1.5, (18 * n) / most)} width="3"
        height=${Math.max(1.5, (18 * n) / most)}><title>${of(i)}: ${number(n)}</title></rect>`)}
    </svg><span class="faint" aria-hidden="true">${least}${short(sum)} in 24 h</span></span>`;
}
