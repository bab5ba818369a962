// Dead messages by error: how many, since when, and replaying those with one error.
import { get, path, query } from '../api.js';
import { Bulk } from '../dialogs.js';
import { plural, short } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { word } from '../search.js';
import { Empty, Failure, open, Time } from '../ui.js';
import { Link, useUrl } from '../url.js';
import { may } from '../who.js';

const lookAtOnce = 20_000;

// merge adds a group of a page to those of the same error in the same queue.
function merge(groups, queue, group) {
  const key = `${queue}\n${group.pattern}`;
  const before = groups.get(key);
  if (!before) {
    groups.set(key, { ...group, queue });
    return;
  }
  before.count += group.count;
  if (group.first < before.first) before.first = group.first;
  if (group.last > before.last) before.last = group.last;
}

export function DeadErrors({ overview }) {
  const params = useUrl();
  const queues = params.queue ? [params.queue] : overview.queues.filter((q) => q.dead > 0).map((q) => q.queue);
  const [state, setState] = useState({ groups: new Map(), looked: 0, left: queues.map((queue) => ({ queue })) });
  const [turn, setTurn] = useState(0);

  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      const groups = new Map(state.groups);
      let { looked } = state;
      const budget = looked + lookAtOnce;
      const left = [...state.left];
      try {
        while (left.length && looked < budget) {
          const { queue, cursor } = left[0];
          const page = await get(path('queues', queue, 'dead-errors') + query({ cursor }), { signal: abort.signal });
          page.items.forEach((group) => merge(groups, queue, group));
          looked += page.looked;
          if (page.next) left[0] = { queue, cursor: page.next };
          else left.shift();
          setState({ groups, looked, left: [...left], busy: true });
        }
        setState({ groups, looked, left });
      } catch (error) {
        if (!abort.signal.aborted) setState((s) => ({ ...s, busy: false, error }));
      }
    };
    read();
    return () => abort.abort();
  }, [turn]);

  const groups = [...state.groups.values()].sort((a, b) => b.count - a.count);
  const again = () => {
    setState({ groups: new Map(), looked: 0, left: queues.map((queue) => ({ queue })) });
    setTurn((n) => n + 1);
  };
  const replay = (g) => open(Bulk, {
    sources: [{ queue: g.queue, state: 'dead' }], filter: { error_pattern: g.pattern }, state: 'dead', first: 'replay',
    done: again,
  });
  return html`<${Failure} error=${state.error} retry=${again} />
    <p class="row"><span aria-live="polite">
      ${plural(groups.length, 'kind')} of errors in ${plural(state.looked, 'dead message')} that were looked at</span>
      ${state.left.length > 0 && !state.busy &&
        html`<button onClick=${() => setTurn((n) => n + 1)}>Look further</button>`}
      <button onClick=${again}>Refresh</button></p>
    ${!groups.length && !state.busy && !state.left.length && html`<${Empty} title="There are no dead messages." />`}
    <ul class="errors">${groups.map((g) => html`<li key=${g.queue + g.pattern}>
      <${Link} to=${{ group: undefined, queue: g.queue, q: word('pattern', g.pattern) }} title="Show these messages">
        <strong>${short(g.count)}</strong> <bdi>${g.pattern || g.reason}</bdi><//>
      <p class="faint">${g.queue} · first <${Time} at=${g.first} /> · last <${Time} at=${g.last} /></p>
      ${g.error && g.error !== g.pattern && html`<p class="faint example">such as: <bdi>${g.error}</bdi></p>`}
      ${may('operate') && html`<button onClick=${() => replay(g)}>Replay…</button>`}
    </li>`)}</ul>`;
}
