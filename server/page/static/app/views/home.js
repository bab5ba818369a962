// The first view: the horizon, the queues, and the messages of the selected range and queue.
import { short } from '../format.js';
import { Horizon } from '../horizon.js';
import { html, useLayoutEffect, useRef } from '../html.js';
import { useLive } from '../live.js';
import { noRange } from '../ranges.js';
import { Empty, narrow, Reading, Time } from '../ui.js';
import { Link, useUrl } from '../url.js';
import { may } from '../who.js';
import { Due } from './due.js';
import { Messages } from './messages.js';
import { Queues } from './queues.js';
import { sendMessage } from '../dialogs.js';

export function Home() {
  const { overview, problem } = useLive();
  const params = useUrl();
  useListInSight(params);
  if (!overview) {
    return html`<main><h1 class="hidden">Horizon</h1><p class="empty" aria-busy="true">
      ${problem ? 'Waits for the store. What it has appears here once it answers.' : 'Loading…'}</p></main>`;
  }
  const read = overview.queues_read;
  if (!overview.queues.length && !params.queue && !read) return html`<main><${Welcome} /></main>`;
  return html`<main class="home">
    <section class="card" aria-labelledby="horizon-title">
      <header class="row">
        <h1 id="horizon-title">Horizon</h1>
        ${read ? html`<${Reading} overview=${overview} />` : html`<${Summary} overview=${overview} />`}
      </header>
      ${read ? html`<p class="empty reading" aria-busy="true">The chart appears when all queues are read.</p>` :
        html`<${Horizon} overview=${overview} />`}
      ${(params.from || params.to) && html`<${Due} />`}
    </section>
    <div class="columns">
      <${Queues} overview=${overview} />
      <${Messages} overview=${overview} />
    </div>
  </main>`;
}

// useListInSight scrolls to the list on a narrow screen, where it is below the chart and the queues, when another queue
// or state is chosen.
function useListInSight({ queue, state, group }) {
  const choice = [queue, state, group].join('\n');
  const before = useRef(choice);
  useLayoutEffect(() => {
    if (choice === before.current) return;
    before.current = choice;
    if (narrow.matches) document.querySelector('.messages')?.scrollIntoView({ block: 'start' });
  }, [choice]);
}

function Summary({ overview: { counts, next_due: next, oldest_due: oldest } }) {
  const state = (name, label) => html`<${Link} class="figure" to=${{ state: name, ...noRange }}>
    <span class=${`state ${name}`}>${label}</span> <strong>${short(counts[name])}</strong><//>`;
  return html`<p class="figures">
    ${state('scheduled', 'scheduled')}
    ${state('ready', 'ready')}
    ${state('leased', 'leased')}
    ${state('dead', 'dead')}
    ${next && html`<span class="figure">next <${Time} at=${next} /></span>`}
    ${oldest && html`<span class="figure late">longest overdue <${Time} at=${oldest} /></span>`}
  </p>`;
}

function Welcome() {
  return html`<h1 class="hidden">Horizon</h1><${Empty} title="There are no queues yet.">
    Send a message, and it appears here: <code>later send mail hello --in 30m</code>
    ${may('send') && html`<br /><button onClick=${() => sendMessage()}>New message…</button>`}
  <//>`;
}
