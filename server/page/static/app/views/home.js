// The first view: the horizon, the queues, and the messages of what is selected in these.
import { local, short } from '../format.js';
import { clearRange, Horizon } from '../horizon.js';
import { html } from '../html.js';
import { useLive } from '../live.js';
import { Empty, Time } from '../ui.js';
import { Link, useUrl } from '../url.js';
import { Messages } from './messages.js';
import { Queues } from './queues.js';

export function Home() {
  const { overview } = useLive();
  const params = useUrl();
  if (!overview) return html`<main><p class="empty" aria-busy="true">Loading…</p></main>`;
  if (!overview.queues.length && !params.queue) return html`<main><${Welcome} /></main>`;
  return html`<main class="home">
    <section class="card" aria-labelledby="horizon-title">
      <header class="row">
        <h1 id="horizon-title">Horizon</h1>
        <${Summary} overview=${overview} />
      </header>
      <${Horizon} overview=${overview} />
      ${(params.from || params.to) && html`<${Range} from=${params.from} to=${params.to} />`}
    </section>
    <div class="columns">
      <${Queues} overview=${overview} />
      <${Messages} overview=${overview} />
    </div>
  </main>`;
}

function Summary({ overview: { counts, next_due: next, oldest_due: oldest } }) {
  const state = (name, label) => html`<${Link} class="figure" to=${{ state: name, from: undefined, to: undefined }}>
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

function Range({ from, to }) {
  const time = Date.now();
  const text = (t) => local(Date.parse(t), time);
  return html`<p class="row range">
    <span>Selected: due ${from && `from ${text(from)}`} ${to && `before ${text(to)}`}</span>
    <button onClick=${clearRange}>Clear (Esc)</button>
  </p>`;
}

function Welcome() {
  return html`<h1 class="hidden">Horizon</h1><${Empty} title="There are no queues yet.">
    Send a message, and it appears here: <code>later send mail hello --in 30m</code>
  <//>`;
}
