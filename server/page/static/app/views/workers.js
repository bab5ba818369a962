// Workers: the messages that each holds and since when, and pausing, draining and restarting them.
import { get, path, query } from '../api.js';
import { duration, plural } from '../format.js';
import { html } from '../html.js';
import { useNow } from '../live.js';
import { attempt, Confirm, Empty, Loaded, open, Table, Time, useLoad } from '../ui.js';
import { change, offer } from '../undo.js';
import { Link } from '../url.js';
import { may } from '../who.js';

const stuckAfter = 60e3; // milliseconds that a handler may take before it stands out

export function Workers() {
  const loaded = useLoad((signal) => get(path('workers') + query({ report: true }), { signal }), [], 4000);
  return html`<main><section class="card" aria-labelledby="workers-title">
    <header class="row"><h1 id="workers-title">Workers</h1>
      ${loaded.data && html`<span class="faint">${plural(loaded.data.items.length, 'live worker')}</span>`}</header>
    <${Loaded} of=${loaded} empty=${(data) => !data.items.length && html`<${Empty} title="No worker is running.">
      Start one in your program, or try <code>later work mail</code>.<//>`}>${(data) => html`
      <ul class="workers">${data.items.map((w) => html`<${Worker} key=${w.id} w=${w} done=${loaded.reload} />`)}
        </ul>`}<//>
  </section></main>`;
}

const questions = {
  drain: 'It claims no more messages, lets its handlers finish, and ends.',
  restart: 'It drains, and its program starts again, in a new version if there is one.',
};

function Worker({ w, done }) {
  const tell = (command) => attempt('', async () => {
    const { undo } = await change('POST', path('workers', w.id, command));
    offer(`${w.name}: ${command}`, undo, { said: `${w.name}: undone`, done });
  }).then(done);
  const ask = (command) => open(Confirm, {
    title: `${command[0].toUpperCase()}${command.slice(1)} ${w.name}?`, text: questions[command], action: command,
      submit: () => tell(command),
  });
  const time = useNow();
  const heldFor = (h) => Math.max(0, Math.floor((time - Date.parse(h.since)) / 1e3) * 1e3);
  return html`<li class="card">
    <header class="row">
      <h2>${w.name}</h2> <span class=${`badge ${w.state}`}>${w.state}</span>
      <span class="grow"></span>
      ${may('operate') && w.concurrency > 0 && html`
        ${w.state === 'paused' ?
          html`<button onClick=${() => tell('resume')}>Resume<span class="hidden"> ${w.name}</span></button>` :
          html`<button onClick=${() => tell('pause')}>Pause<span class="hidden"> ${w.name}</span></button>`}
        <button onClick=${() => ask('drain')}>Drain…<span class="hidden"> ${w.name}</span></button>
        <button onClick=${() => ask('restart')}>Restart…<span class="hidden"> ${w.name}</span></button>`}
    </header>
    <p class="faint">${w.pid ? `process ${w.pid} on ${w.host}` : 'over HTTP'}
      ${w.version && `, version ${w.version}`} · ${w.concurrency ? `${plural(w.concurrency, 'handler')} at a time` :
        'clients that give no name, and take no commands'} ·
      started <${Time} at=${w.started} only="relative" /> · heartbeat <${Time} at=${w.heartbeat} only="relative" /></p>
    <p>${w.queues.map((queue) => html`<${Link} fresh class="chip" to=${{ queue }}>${queue}<//> `)}
      ${w.queue_count > w.queues.length &&
        html`<span class="faint">and ${plural(w.queue_count - w.queues.length, 'other queue')}</span>`}</p>
    ${w.forwards?.map((f) => html`<p>forwards ${f.queue} → <code>${f.to}</code></p>`)}
    ${w.given_back?.map((g) => html`<p class="late">gives back ${plural(g.messages, 'message')} of
      <${Link} fresh to=${{ queue: g.queue }}>${g.queue}<//>${g.error && `: ${g.error}`}</p>`)}
    ${w.held.length > 0 ?
      html`<${Table} label=${`Messages that ${w.name} holds`} numbers=${2} head=${['Holds', 'Queue', 'Attempt', 'For']}>
        ${w.held.map((h) => html`<tr key=${h.queue + h.id}>
        <td class="id"><${Link} fresh to=${{ queue: h.queue, message: h.id }}>${h.id}<//></td>
        <td>${h.queue}</td><td class="number">${h.attempt}</td>
        <td class=${heldFor(h) > stuckAfter ? 'number late' : 'number'}>${duration(heldFor(h))}</td></tr>`)}<//>
      ${w.held_count > w.held.length &&
        html`<p class="faint">and ${plural(w.held_count - w.held.length, 'other message')}</p>`}` :
      html`<p class="faint">holds no messages</p>`}
  </li>`;
}
