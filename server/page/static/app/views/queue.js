// The page of one queue: its problems, its counts, its activity in the last hour and day, its settings, and who works
// on it and sends to it.
import { ActivityChart } from '../activity.js';
import { get, path, query } from '../api.js';
import { duration, millis, number, plural } from '../format.js';
import { html } from '../html.js';
import { live, useLive } from '../live.js';
import { attempt, Empty, Facts, Failure, Loaded, Time, useLoad } from '../ui.js';
import { Link, useUrl } from '../url.js';
import { hidesPayloads, may } from '../who.js';
import { Badges } from './badges.js';
import { flowText, setFlow, showKeys } from './flow.js';
import { keyOf, Problem } from './problems.js';
import { rate, togglePause } from './queues.js';
import { retentionText, setRetention, setShards } from './queuesettings.js';
import { sendMessage } from '../dialogs.js';
import { Shards } from './shards.js';

const states = ['scheduled', 'ready', 'leased', 'dead'];
const look = 10_000; // milliseconds between looks at the data that is not pushed
const most = 500; // topics and schedules that are looked through

export function QueuePage() {
  const { overview } = useLive();
  const { queue } = useUrl();
  const q = overview?.queues.find((one) => one.queue === queue);
  if (!q && (!overview || overview.queues_read)) {
    return html`<main><p class="empty" aria-busy="true">Loading…</p></main>`;
  }
  return html`<main class="queuepage">
    <section class="card" aria-labelledby="queue-title">
      <header class="row">
        <${Link} fresh to=${{ view: 'queues' }} class="button" aria-label="Back to the queues">←<//>
        <h1 id="queue-title">${queue}</h1> ${q && html`<${Badges} q=${q} />`}
        <span class="grow"></span>
        <${Actions} q=${q ?? { queue }} />
      </header>
      <${Problems} queue=${queue} />
      ${q ? html`<${Counts} q=${q} />` : html`<${Empty} title="This queue has no messages and no settings.">
        Its first message creates it.<//>`}
    </section>
    <${Activity} key=${queue} queue=${queue} />
    <div class="columns">
      <${Settings} q=${q ?? { queue }} />
      <${Neighbours} key=${queue} queue=${queue} />
    </div>
  </main>`;
}

function Actions({ q }) {
  return html`<div class="row">
    ${may('send') && html`<button onClick=${() => sendMessage({ queue: q.queue })}>New message…</button>`}
    ${may('operate') && html`<button onClick=${() => togglePause(q)}>${q.paused ? 'Resume' : 'Pause…'}</button>`}
    <${Link} fresh class="button" to=${{ queue: q.queue }}>Messages and horizon<//>
  </div>`;
}

// Problems are the problems of the queue: of those that are pushed with the overview if these are all, or asked for.
function Problems({ queue }) {
  const { count = 0, items = [] } = live.problems ?? {};
  const all = count === items.length;
  const asked = useLoad(async (signal) => (all ? undefined : get(path('problems') + query({ queue }), { signal })),
    [queue, all], all ? 0 : look);
  const own = (all ? items : asked.data?.items ?? items).filter((p) => p.queue === queue);
  if (!own.length) return html`<${Failure} error=${asked.error} retry=${asked.reload} />`;
  return html`<section class="problems own" aria-label="Problems of this queue">
    <ul>${own.map((p) => html`<${Problem} key=${keyOf(p)} p=${p} />`)}</ul></section>`;
}

function Counts({ q }) {
  const late = q.lateness_samples > 0 && `late p50 ${duration(millis(q.lateness_p50))}, p99 ${
    duration(millis(q.lateness_p99))} in ${plural(q.lateness_samples, 'delivery', 'deliveries')} of the last 5 min`;
  const rates = [rate(q.sent_per_second, 'in'), rate(q.handled_per_second, 'out'), rate(q.failed_per_second, 'failed')]
    .filter(Boolean).join(' · ');
  return html`<p class="row figures">${states.map((state) => html`<${Link} fresh class="figure"
      to=${{ queue: q.queue, state }}><span class=${`state ${state}`}>${state}</span>${' '}
      <strong>${number(q[state])}</strong><//>`)}</p>
    <p class="row">
      ${q.oldest_due && html`<span class="late">overdue since <${Time} at=${q.oldest_due} /></span>`}
      ${q.next_due && html`<span>next due <${Time} at=${q.next_due} /></span>`}
      ${rates && html`<span>${rates}</span>`}
      ${late && html`<span>${late}</span>`}
      ${q.dead > 0 && !hidesPayloads() && html`<${Link} fresh
        to=${{ queue: q.queue, state: 'dead', group: 'error' }}>Dead messages by error<//>`}
      <${Link} fresh to=${{ view: 'events', queue: q.queue }}>Events of this queue<//>
    </p>`;
}

function Activity({ queue }) {
  const loaded = useLoad((signal) => get(path('queues', queue, 'activity'), { signal }).catch((error) => {
    if (error.code === 'not_found') return null;
    throw error;
  }), [queue], look);
  return html`<section class="card lately" aria-labelledby="activity-title">
    <h2 id="activity-title">Activity</h2>
    <${Loaded} of=${loaded} empty=${(data) => data === null && html`<${Empty} title="Nothing has happened yet." />`}>
      ${(activity) => html`<div class="charts">
        <${ActivityChart} title="Last hour, in parts of 5 minutes" window=${activity.hour} />
        <${ActivityChart} title="Last day, in parts of an hour" window=${activity.day} /></div>
        <p class="faint">Processes report what they did once a second. The last part goes on.</p>`}<//>
  </section>`;
}

function Settings({ q }) {
  const edit = (label, what, act) => may('operate') && html`<button class="quiet" onClick=${act}>${label}<span
    class="hidden"> ${what}</span></button>`;
  const retain = () => attempt('', async () => {
    const { max_age: age, max_count: count } = await get(path('queues', q.queue, 'dead-retention'))
      .catch((error) => (error.code === 'not_found' ? {} : Promise.reject(error)));
    setRetention({ ...q, dead_max_age: age, dead_max_count: count });
  });
  return html`<section class="card" aria-labelledby="settings-title">
    <h2 id="settings-title">Settings</h2>
    <${Facts} of=${[
      ['Deliveries', html`${q.paused ? html`<strong>paused</strong>` : 'go on'} ${edit(q.paused ? 'Resume' : 'Pause…',
        'the queue', () => togglePause(q))}`],
      ['Limits', html`${q.flow ? flowText(q.flow) : 'none'} ${edit('Change…', 'the limits', () => setFlow(q))}`],
      ['Keys', q.flow?.fair && html`${plural(q.flow.keys?.waiting ?? 0, 'key')} waiting${q.flow.keys?.halted > 0 &&
        `, ${number(q.flow.keys.halted)} halted`} <button class="quiet" onClick=${() => showKeys(q)}>Show…</button>`],
      ['Dead messages', html`kept ${retentionText(q)} ${edit('Change…', 'how long they are kept', retain)}`],
      ['Shards', html`${q.shards || 1} ${edit('Change…', 'the shards', () => attempt('', () => setShards(q)))}
        <${Shards} queue=${q.queue} />`],
    ]} />
  </section>`;
}

// feeding returns the workers of a queue, the topics that it is subscribed to, and the schedules that send to it.
async function feeding(queue, signal) {
  const [workers, topics, schedules] = await Promise.all([
    get(path('workers'), { signal }),
    get(path('topics') + query({ limit: most }), { signal }),
    get(path('schedules') + query({ limit: most }), { signal }),
  ]);
  return {
    workers: workers.items.filter((w) => w.queues.includes(queue)),
    someWorkers: workers.items.some((w) => w.queue_count > w.queues.length),
    topics: topics.items.filter((t) => t.queues.includes(queue)),
    schedules: schedules.items.filter((s) => s.queue === queue),
    more: Boolean(topics.next || schedules.next),
  };
}

function Neighbours({ queue }) {
  const loaded = useLoad((signal) => feeding(queue, signal), [queue], look);
  const list = (title, items, none, show) => html`<h3>${title}</h3>
    ${items.length ? html`<ul class="plain">${items.map((one) => html`<li>${show(one)}</li>`)}</ul>` :
      html`<p class="faint">${none}</p>`}`;
  return html`<section class="card" aria-labelledby="around-title"><h2 id="around-title">Workers and senders</h2>
    <${Loaded} of=${loaded}>${({ workers, someWorkers, topics, schedules, more }) => html`
      ${list('Workers', workers, 'No live worker takes messages of this queue.', (w) => html`
        <${Link} fresh to=${{ view: 'workers' }}>${w.name}<//> <span class=${`badge ${w.state}`}>${w.state}</span>
        <span class="faint"> holds ${plural(w.held.filter((h) => h.queue === queue).length, 'message')} of it${
          w.concurrency > 0 ? `, ${plural(w.concurrency, 'handler')} at a time` : ''}</span>`)}
      ${someWorkers && html`<p class="faint">
        Some workers have more queues than they report, and can be missing here.</p>`}
      ${list('Topics', topics, 'It is subscribed to no topic.', (t) => html`
        <${Link} fresh to=${{ view: 'topics', topic: t.topic }}>${t.topic}<//>`)}
      ${list('Schedules', schedules, 'No schedule sends to it.', (s) => html`
        <${Link} fresh to=${{ view: 'schedules', schedule: s.name }}>${s.name}<//>
        ${s.paused && html` <span class="badge">paused</span>`}
        ${s.next_run && html`<span class="faint"> next <${Time} at=${s.next_run.due} /></span>`}`)}
      ${more && html`<p class="faint">The first ${number(most)} topics and schedules were looked through.</p>`}`}<//>
  </section>`;
}
