// The list of queues with their counts, rates and lateness, each a link to its messages.
import { path } from '../api.js';
import { duration, millis, number, plural, short } from '../format.js';
import { html, useState } from '../html.js';
import { noRange } from '../ranges.js';
import { rove } from '../rove.js';
import { attempt, Confirm, open, Time } from '../ui.js';
import { change, offer } from '../undo.js';
import { go, Link, useUrl } from '../url.js';
import { may } from '../who.js';
import { flowText, setFlow, showKeys } from './flow.js';
import { Shards } from './shards.js';

const most = 200; // queues in the list: more would keep the browser busy with each overview

export function Queues({ overview }) {
  const { queue } = useUrl();
  const [find, setFind] = useState('');
  const found = overview.queues.filter((q) => q.queue.includes(find));
  return html`<section class="card queues" aria-labelledby="queues-title">
    <header class="row">
      <h2 id="queues-title">Queues</h2>
      <${Link} to=${{ queue: undefined, message: undefined }} aria-current=${queue ? undefined : 'true'}>all<//>
    </header>
    ${overview.queue_count > 10 && html`<input type="search" aria-label="Find a queue" placeholder="Find a queue"
      value=${find} onInput=${(event) => setFind(event.target.value)} />`}
    <ul onKeyDown=${rove} aria-describedby="queues-help">
      ${queue && !overview.queues.some((q) => q.queue === queue) && html`<li class="current"><strong>${queue}</strong>
        ${!overview.queues_read && html`<p class="faint">has no messages</p>`}</li>`}
      ${found.slice(0, most).map((q) => html`<${Queue} key=${q.queue} q=${q} current=${q.queue === queue} />`)}
    </ul>
    <p id="queues-help" class="hidden">Up and down move between queues, left and right among the links and buttons of
      one.</p>
    ${found.length > most && html`<p class="faint">and ${plural(found.length - most, 'other queue')}</p>`}
    ${overview.queues_left_out > 0 &&
      html`<p class="faint">${plural(overview.queues_left_out, 'other queue')}, which the
      sums leave out. <button class="plain" onClick=${() => open(Choose)}>Choose by name…</button></p>`}
  </section>`;
}

// Choose asks for the name of a queue, and shows it.
export function Choose({ close }) {
  const submit = (event) => {
    event.preventDefault();
    close();
    go({ queue: new FormData(event.target).get('queue'), message: undefined });
  };
  return html`<form onSubmit=${submit}><h2 id="dialog-title">Show a queue</h2>
    <label class="field"><span>Name</span><input name="queue" required autofocus maxlength="128" /></label>
    <div class="buttons"><button type="button" onClick=${close}>Close</button>
      <button class="primary">Show</button></div>
  </form>`;
}

// rate returns how many there are in a second, or in a minute if that is less than one.
export function rate(perSecond, way) {
  return perSecond * 60 >= 1 &&
    `${perSecond >= 1 ? `${short(perSecond)}/s` : `${Math.round(perSecond * 60)}/min`} ${way}`;
}

function Queue({ q, current }) {
  const count = (state, n) => n > 0 &&
    html`<${Link} tabIndex="-1" to=${{ queue: q.queue, state, ...noRange, message: undefined }}
    title=${`${number(n)} ${state}`}><span class=${`state ${state}`}>
      ${short(n)}<span class="hidden"> ${state}</span></span><//>`;
  const rates = [
    rate(q.sent_per_second, 'in'),
    rate(q.handled_per_second, 'out'),
    q.lateness_samples > 0 && `late p50 ${duration(millis(q.lateness_p50))} p99 ${duration(millis(q.lateness_p99))}`,
  ].filter(Boolean).join(' · ');
  return html`<li class=${current ? 'current' : ''}>
    <div class="row">
      <${Link} to=${{ queue: q.queue, message: undefined }} class="name" aria-current=${current ? 'true' : undefined}>
        ${q.queue}<//>
      ${q.paused && html`<span class="badge">paused</span>`}
      <${Sparkline} history=${q.history} />
    </div>
    <div class="row counts">
      ${count('scheduled', q.scheduled)} ${count('ready', q.ready)} ${count('leased', q.leased)}
      ${' '}${count('dead', q.dead)}
      ${!(q.scheduled + q.ready + q.leased + q.dead) && html`<span class="faint">empty</span>`}
    </div>
    ${q.oldest_due ? html`<p class="late">overdue since <${Time} at=${q.oldest_due} /></p>` :
      q.next_due && html`<p class="faint">next <${Time} at=${q.next_due} /></p>`}
    ${rates && html`<p class="faint">${rates}</p>`}
    ${q.flow && html`<p class="faint">limited: ${flowText(q.flow)}</p>`}
    ${q.flow?.keys?.halted > 0 && html`<p class="late">
      ${plural(q.flow.keys.halted, 'key')} halted by dead messages</p>`}
    ${may('operate') && html`<button tabIndex="-1" class=${q.paused ? '' : 'quiet'} onClick=${() => togglePause(q)}>
      ${q.paused ? 'Resume' : 'Pause…'}
      <span class="hidden"> ${q.queue}</span></button> <button tabIndex="-1" class="quiet"
      onClick=${() => setFlow(q)}>
      Limits…<span class="hidden"> ${q.queue}</span></button>`}
    <${Link} fresh tabIndex="-1" class="more" to=${{ view: 'queue', queue: q.queue }}>
      Details<span class="hidden"> of ${q.queue}</span><//>
    ${q.flow?.fair && html` <button tabIndex="-1" class="quiet" onClick=${() => showKeys(q)}>
      Keys…<span class="hidden"> ${q.queue}</span></button>`}
    ${current && html`<${Shards} queue=${q.queue} />`}
  </li>`;
}

// togglePause resumes a queue, or pauses it after asking.
export function togglePause(q) {
  const act = async (action, done, back) => {
    const { undo } = await change('POST', path('queues', q.queue, action));
    offer(`${q.queue} is ${done}`, undo, { said: `${q.queue} is ${back}` });
  };
  if (q.paused) {
    attempt('', () => act('resume', 'resumed', 'paused again'));
    return;
  }
  open(Confirm, {
    title: `Pause ${q.queue}?`, action: 'Pause',
    text: 'Its messages stay and fall due, but no worker receives one until it is resumed. Sends go on.',
    submit: () => act('pause', 'paused', 'resumed'),
  });
}

// Sparkline shows the messages sent and handled in the last minutes. The rates next to it are the same in words.
export function Sparkline({ history }) {
  const most = history ? Math.max(...history.sent, ...history.handled) : 0;
  if (!most) return html`<span class="spark"></span>`;
  const line = (field) => history[field].map((n, i) => `${i ? 'L' : 'M'}${i} ${15 - (n / most) * 14}`).join('');
  return html`<svg class="spark" width="60" height="16" viewBox="0 0 60 16" aria-hidden="true">
    <path class="sent" d=${line('sent')} /><path class="handled" d=${line('handled')} /></svg>`;
}
