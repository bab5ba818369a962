// The past of a message and the steps to come, as far as the store knows them.
import { duration, millis, plural } from '../format.js';
import { html, useEffect, useState } from '../html.js';
import { follow, now, useNow } from '../live.js';
import { Time } from '../ui.js';

const keptFailures = 5; // by the store
const keptEvents = 100; // by the page

// Steps that events have, and the store keeps no times of.
const told = { claimed: 'Claimed', snoozed: 'Snoozed', released: 'Returned', rescheduled: 'Due time changed',
  edited: 'Changed', lease_lost: 'Lease lost', unsettled: 'Settle not stored' };

const on = (worker) => (worker ? ` on ${worker}` : '');
const after = (text) => (text ? ` after ${duration(millis(text))}` : '');

// failuresOf returns the failed attempts, and the steps that follow from their numbers.
function failuresOf(m) {
  const all = [...m.failures ?? []].reverse(); // the oldest first
  const steps = [];
  const replayed = (near) => ({ near, what: 'Replayed', unknown: 'the store keeps no time of that' });
  let last = 0; // the number of the last attempt
  all.forEach((f) => {
    const at = Date.parse(f.time);
    if (!f.attempt) {
      steps.push({ at, what: 'Given back', detail: on(f.worker), error: f.error });
      return;
    }
    if (f.attempt <= last) steps.push(replayed(at));
    else if (!last && f.attempt > 1 && all.length >= keptFailures) {
      steps.push({ near: at, what: plural(f.attempt - 1, 'earlier failed attempt'),
        unknown: `the store keeps the last ${keptFailures}` });
    }
    last = f.attempt;
    steps.push({ at, bad: true, what: `Attempt ${f.attempt} failed`, detail: after(f.duration) + on(f.worker),
      error: f.error });
  });
  if (last > (m.attempts ?? 0)) steps.push(replayed(Date.parse(all.at(-1).time)));
  return steps;
}

// expiryOf returns when a message expires that waits for its first delivery, or undefined.
function expiryOf(m) {
  if (m.delivered || !['scheduled', 'ready'].includes(m.state)) return undefined;
  if (m.expire_at) return Date.parse(m.expire_at);
  return m.expire_after && Date.parse(m.due) + millis(m.expire_after);
}

const leaseEnded = (m, time) => m.state === 'leased' && Date.parse(m.lease_deadline) <= time;

// pastOf returns the steps before a time, in order.
function pastOf(m, why, events, time) {
  const at = (text) => (text ? Date.parse(text) : undefined);
  const steps = [m.sent_at ? { at: at(m.sent_at), what: 'Sent' } :
    { near: 0, what: 'Sent', unknown: 'the store does not know when' }, ...failuresOf(m)];
  if (m.due && at(m.due) <= time) steps.push({ at: at(m.due), what: 'Fell due' });
  if (m.state === 'leased') {
    steps.push(why?.held_since ? { at: at(why.held_since), what: 'Claimed', detail: on(why.worker) } :
      { near: Infinity, what: 'Claimed', unknown: 'no worker has reported yet that it holds the message' });
  }
  if (leaseEnded(m, time)) {
    steps.push({ at: at(m.lease_deadline), bad: true, what: 'Lease ended',
      detail: ', a failed attempt at the next claim' });
  }
  if (expiryOf(m) <= time) {
    steps.push({ at: expiryOf(m), bad: true, what: 'Expired', detail: ', dead at the next claim' });
  }
  if (m.died_at) steps.push({ at: at(m.died_at), bad: true, what: `Dead: ${m.dead_reason.replaceAll('_', ' ')}` });
  for (const e of events) {
    if (e.kind === 'claimed' && why?.held_since && Math.abs(at(e.time) - at(why.held_since)) < 1000) continue;
    steps.push({ at: at(e.time), what: told[e.kind], detail: ', as this page has seen', error: e.error });
  }
  const order = (step) => (step.what === 'Sent' ? -Infinity : step.at ?? step.near); // by another clock than the rest
  return steps.map((step, i) => ({ step, i })).sort((a, b) => order(a.step) - order(b.step) || a.i - b.i)
    .map(({ step }) => step);
}

// futureOf returns the steps to come, in order. Without a time it is a condition.
function futureOf(m, time) {
  const due = Date.parse(m.due);
  const steps = [];
  if (due > time) steps.push({ at: due, what: 'Due' });
  if (m.state === 'leased' && !leaseEnded(m, time)) {
    steps.push({ at: Date.parse(m.lease_deadline), what: 'The lease ends', detail: ', unless the worker extends it' });
  }
  if (expiryOf(m) > time) steps.push({ at: expiryOf(m), what: 'Dead', detail: ', if it was not delivered before' });
  steps.sort((a, b) => a.at - b.at);
  if (m.state !== 'dead' && m.max_attempts > m.attempts) {
    steps.push({ what: 'Dead', detail: ` after ${plural(m.max_attempts - m.attempts,
      m.attempts ? 'more failed attempt' : 'failed attempt')}` });
  }
  return steps;
}

// Steps is a list of steps, each with its distance from the one before.
export function Steps({ past, future = [] }) {
  let before;
  const step = (s, to) => {
    const distance = s.at && before ? s.at - before : undefined;
    if (s.at) before = s.at;
    return html`<li class=${`${to ? 'future' : ''}${s.bad ? ' bad' : ''}${s.at ? '' : ' timeless'}`}>
      <p>${to && html`<span class="hidden">To come: </span>`}<strong>${s.what}</strong>${s.detail}
        ${s.unknown && html`<span class="faint"> – ${s.unknown}</span>`}</p>
      ${s.at && html`<p class="faint"><${Time} at=${new Date(s.at).toISOString()} />
        ${distance > 0 && html` <span class="distance">${duration(distance)} later</span>`}</p>`}
      ${s.error && html`<pre tabIndex="0" dir="auto">${s.error}</pre>`}
    </li>`;
  };
  return html`<ol class="timeline">${past.map((s) => step(s))}${future.map((s) => step(s, true))}</ol>`;
}

// Timeline is the steps of a message that exists.
export function Timeline({ m, why }) {
  useNow(); // times to come move into the past
  const [live, setLive] = useState(false);
  const [connected, setConnected] = useState(false);
  const [events, setEvents] = useState([]);
  useEffect(() => {
    if (!live) return undefined;
    return follow({ queue: m.queue, id: m.id }, {
      event: (e) => told[e.kind] && setEvents((all) => [...all, e].slice(-keptEvents)),
      state: setConnected,
    });
  }, [live, m.queue, m.id]);
  const time = now();
  return html`<section aria-labelledby="timeline-title">
    <header class="row"><h3 id="timeline-title">Timeline</h3><span class="grow"></span>
      <button class="quiet" aria-pressed=${live} onClick=${() => setLive(!live)}
        title="Show also what only events tell, from now on: one more connection to the server">
        ${!live ? 'Follow live' : connected ? 'Following live' : 'Connecting…'}</button></header>
    ${m.follows ?
      html`<p>A worker holds an earlier message with this id. This one takes its place when that ends.</p>` :
      html`<${Steps} past=${pastOf(m, why, events, time)} future=${futureOf(m, time)} />`}
    <p class="faint">The store keeps no times of snoozes, releases, edits and changes of the due time${m.delivered &&
      '; this message has come back from a worker, or was replayed'}.</p>
  </section>`;
}
